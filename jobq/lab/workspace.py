"""The learner's own copy of the notebooks. The originals stay clean."""

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from jobq.errors import LabError

MANIFEST = ".jobq-course.json"  # in a working copy: each file's SHA-256 as it was copied
SHOWN = 5  # names in a question


@dataclass(frozen=True, slots=True)
class Prepared:
    """What became of the notebooks."""

    fresh: tuple[str, ...]  # the same as the originals
    kept: tuple[str, ...]  # changed by the learner, and left alone


def source_notebooks() -> Path:
    """Return the folder of the original notebooks, installed or in a checkout."""
    package = Path(__file__).parent.parent
    installed = package / "_notebooks"
    return installed if installed.is_dir() else package.parent / "notebooks"


def prepare(source: Path, target: Path) -> Prepared:
    """Copy the notebooks from `source` to `target`, but over none that the learner has changed.

    A notebook that only the original's authors have changed is replaced. Raises LabError if
    `target` holds other things, or `source` no notebooks.
    """
    originals = _files(source)
    if not originals:
        raise LabError(f"{source} holds no notebooks: install jobq again")
    if target.exists() and not _is_working_copy(target) and any(target.iterdir()):
        raise LabError(f"{target} is no copy of the course, and not empty: name another folder")
    target.mkdir(parents=True, exist_ok=True)
    copied = _copied(target)
    _write_manifest(target, copied)  # first, so that a copy cut short is known for one
    fresh, kept = [], []
    for name, original in originals.items():
        copy = target / name
        if copy.exists() and _digest(copy) not in {copied.get(name), _digest(original)}:
            kept.append(name)
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, copy)
        copied[name] = _digest(original)
        fresh.append(name)
    _write_manifest(target, copied)
    return Prepared(tuple(fresh), tuple(kept))


def reset(target: Path, confirm: Callable[[str], bool]) -> bool:
    """Delete a working copy, if `confirm` says yes to the question; return whether it is gone.

    The question names what would be lost. Raises LabError for a folder that `prepare` did not
    make.
    """
    if not target.exists():
        return True
    if target.is_symlink() or not _is_working_copy(target):
        raise LabError(f"{target} is no copy of the course, so it is not deleted")
    copied = _copied(target)
    own = [name for name, path in _files(target).items() if _digest(path) != copied.get(name)]
    names = ", ".join(own[:SHOWN]) + (", …" if len(own) > SHOWN else "")
    lost = f"with {len(own)} of your own or changed: {names}" if own else "nothing in it is yours"
    if not confirm(f"delete {target}, {lost}?"):
        return False
    shutil.rmtree(target)
    return True


def _files(folder: Path) -> dict[str, Path]:
    """Return every file below the folder by its relative name, but the hidden ones."""
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*"))}
    return {
        name.as_posix(): path
        for name, path in paths.items()
        if path.is_file() and not any(part.startswith(".") for part in name.parts)
    }


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _is_working_copy(folder: Path) -> bool:
    return (folder / MANIFEST).is_file()


def _copied(target: Path) -> dict[str, str]:
    """Return the digests that the manifest holds; none if there is no manifest."""
    try:
        digests = json.loads((target / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise LabError(f"{target / MANIFEST} is damaged: move the folder away") from error
    return {str(name): str(digest) for name, digest in digests.items()}


def _write_manifest(target: Path, copied: dict[str, str]) -> None:
    """Write the manifest whole: an interruption leaves the old one or the new one."""
    new = target / f"{MANIFEST}.new"
    new.write_text(json.dumps(copied, indent=2) + "\n", encoding="utf-8")
    new.replace(target / MANIFEST)
