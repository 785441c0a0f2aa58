"""`python -m jobq` is the command `jobq`."""

from jobq.cli import main

if __name__ == "__main__":
    main()
