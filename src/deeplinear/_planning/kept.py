"""Models that are solved, kept in a folder: a plan that was interrupted resumes, and several processes share one.

Each model has a file of its own, whose name is a digest of all that its losses depend on. Processes that share the
folder, on one machine or on several, claim models one by one. What another process is working on is waited for.
"""

import hashlib
import io
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from deeplinear._core.claims import Claims
from deeplinear._core.files import is_intact, sealed, write_atomically
from deeplinear._core.refusal import Refusal
from deeplinear._planning.budget import Envelope
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem

_FORMAT = "1"
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
    todo = {name: model for name, model in zip(names, models, strict=True) if _read(work, name) is None}
    claims = Claims(work)
    try:
        while todo:
            taken = next((name for name in todo if claims.take(name)), None)
            if taken is None:
                time.sleep(_WAIT)
            else:
                if _read(work, taken) is None:  # nobody has finished it meanwhile
                    _write(work, taken, solve(todo[taken]))
                claims.release(taken)
            todo = {name: model for name, model in todo.items() if _read(work, name) is None}
    finally:
        claims.close()
    found = [_read(work, name) for name in names]
    if any(each is None for each in found):
        raise OSError(f"store {folder} has lost models that were written to it")
    return [each for each in found if each is not None]


def _opened(folder: Path) -> Path:
    """Make the folder, or refuse one with something else in it; return where the work is."""
    if folder.exists() and not folder.is_dir():
        raise Refusal("store", folder, "a folder", got=f"the file {folder}")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / _MARK).is_dir():
        text = f"store must be new or hold plans; the folder {folder} has something else in it"
        raise Refusal("store", folder, "new or hold plans", text=text)
    work = folder / _MARK
    try:
        (work / _MODELS).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OSError(f"store {folder} cannot be written: {error.strerror or error}") from error
    return work


def _name(model: Problem, objective: str) -> str:
    """Digest of all that the losses depend on; the problem's own rate is not among it."""
    text = "\n".join([_FORMAT, objective, replace(model, {"lr": 1.0}).to_toml()])
    return hashlib.sha256(text.encode()).hexdigest()


def _write(work: Path, name: str, found: Envelope) -> None:
    content = io.BytesIO()
    np.savez(content, losses=found.losses, lrs=found.lrs)
    write_atomically(work / _MODELS / f"{name}.npz", lambda temporary: temporary.write_bytes(sealed(content)))


def _read(work: Path, name: str) -> Envelope | None:
    """What a file holds; None where there is none, or it is damaged and has to be written again."""
    try:
        with (work / _MODELS / f"{name}.npz").open("rb") as file:
            if not is_intact(file):
                return None
            with np.load(file) as kept:
                return Envelope(kept["losses"], kept["lrs"])
    except FileNotFoundError:
        return None
