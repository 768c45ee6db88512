"""Models that are solved, kept in a folder: a plan that was interrupted resumes, and several processes share one.

Each model has a file of its own, whose name is a digest of all that its losses depend on; the digest also stands in the
file, which has a checksum. A file that is damaged, or belongs to another model, counts as missing. Processes that share
the folder, on one machine or on several, claim models one by one. What another process is working on is waited for.
"""

import hashlib
import io
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from deeplinear._core.claims import Claims
from deeplinear._core.files import is_intact, sealed, write_atomically
from deeplinear._core.refusal import Refusal
from deeplinear._planning.budget import Envelope
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem

_FORMAT = "2"
"""Changes whenever what is kept, or how it is found, does."""

_MODELS, _MARK = "models", ".deeplinear-plan"

_WAIT = 0.5
"""Seconds between two looks at what other processes have finished."""


def solve_kept(
    models: Sequence[Problem], objective: str, folder: Path, solve: Callable[[Problem], Envelope]
) -> list[Envelope]:
    """Return what each model is solved to, from its file where there is one.

    Raises
    ------
    ValueError
        If the folder has something else in it.
    OSError
        If it cannot be written.
    """
    work = _opened(folder)
    names = [_name(model, objective) for model in models]

    def read(name: str, model: Problem) -> Envelope | None:
        with _in_use(folder):
            return _read(work, name, model.steps)

    todo = {name: model for name, model in zip(names, models, strict=True) if read(name, model) is None}
    with _in_use(folder):
        claims = Claims(work)
    try:
        while todo:
            with _in_use(folder):
                taken = next((name for name in todo if claims.take(name)), None)
            if taken is None:
                time.sleep(_WAIT)
            else:
                if read(taken, todo[taken]) is None:  # nobody has finished it meanwhile
                    found = solve(todo[taken])
                    with _in_use(folder):
                        _write(work, taken, found)
                claims.release(taken)
            todo = {name: model for name, model in todo.items() if read(name, model) is None}
    finally:
        claims.close()
    kept = [read(name, model) for name, model in zip(names, models, strict=True)]
    if any(each is None for each in kept):
        raise OSError(f"store {folder} has lost models that were written to it")
    return [each for each in kept if each is not None]


@contextmanager
def _in_use(folder: Path) -> Iterator[None]:
    """Name the store in what the file system refuses."""
    try:
        yield
    except OSError as error:
        raise OSError(f"store {folder} cannot be read or written: {error.strerror or error}") from error


def _opened(folder: Path) -> Path:
    """Make the folder, or refuse one with something else in it; return where the work is."""
    if folder.exists() and not folder.is_dir():
        raise Refusal("store", folder, "a folder", got=f"the file {folder}")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).is_dir():
        text = f"store must be new or hold plans; the folder {folder} has something else in it"
        raise Refusal("store", folder, "new or hold plans", text=text)
    work = folder / _MARK
    with _in_use(folder):
        (work / _MODELS).mkdir(parents=True, exist_ok=True)
    return work


def _name(model: Problem, objective: str) -> str:
    """Digest of all that the losses depend on; the problem's own rate is not among it."""
    text = "\n".join([_FORMAT, objective, replace(model, {"lr": 1.0}).to_toml()])
    return hashlib.sha256(text.encode()).hexdigest()


def _write(work: Path, name: str, found: Envelope) -> None:
    path, content = work / _MODELS / f"{name}.npz", io.BytesIO()
    np.savez(content, losses=found.losses, lrs=found.lrs, model=np.array(name))
    if path.is_dir():  # whatever this is, it is not ours to delete
        path.rename(path.with_name(f".{path.name}-{uuid.uuid4().hex}"))
    write_atomically(path, lambda temporary: temporary.write_bytes(sealed(content)))


def _read(work: Path, name: str, steps: int) -> Envelope | None:
    """What the file of a model holds; None where it has none, or what is there has to be written again."""
    try:
        file = io.BytesIO((work / _MODELS / f"{name}.npz").read_bytes())
    except (FileNotFoundError, IsADirectoryError):
        return None
    if not is_intact(file):
        return None
    try:
        with np.load(file) as kept:
            found, model = Envelope(kept["losses"], kept["lrs"]), str(kept["model"])
    except (KeyError, TypeError, ValueError, OSError, EOFError, zipfile.BadZipFile):  # something else with a checksum
        return None
    return found if model == name and found.losses.shape == found.lrs.shape == (steps,) else None
