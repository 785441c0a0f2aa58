"""Names for jobs and workers that are the same in each run of an experiment."""

import re


class Names:
    """J1, J2, … and w1, w2, …, in the order in which jobs and workers become known."""

    def __init__(self) -> None:
        self._jobs: dict[str, str] = {}
        self._workers: dict[str, str] = {}
        self._others: dict[str, str] = {}

    def job(self, job_id: str) -> str:
        """Return the name of a job; one that is new gets the next."""
        return self._jobs.setdefault(job_id, f"J{len(self._jobs) + 1}")

    def worker(self, worker: str) -> str:
        """Return the name of a worker; a new one that runs as a process gets the next.

        A worker that is named otherwise than by its process keeps its own name.
        """
        if worker in self._workers or not worker.startswith("worker-"):
            return self._workers.get(worker, worker)
        return self._workers.setdefault(worker, self.next_worker())

    def next_worker(self) -> str:
        """Return the name that the next new worker will get."""
        return f"w{len(self._workers) + 1}"

    def call(self, text: str, name: str) -> None:
        """Let `name` stand for some other text, such as the address of an API."""
        self._others[text] = name

    def in_text(self, text: str) -> str:
        """Return the text with the names in the place of ids, short ids and worker names."""
        short = {job_id[:8]: name for job_id, name in self._jobs.items()}
        names = short | self._jobs | self._workers | self._others
        known = "|".join(re.escape(word) for word in sorted(names, key=len, reverse=True))
        if not known:
            return text
        return re.sub(rf"(?<![\w-])({known})(?![\w-])", lambda found: names[found[0]], text)
