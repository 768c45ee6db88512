"""Models that are solved, kept in a folder: a plan that was interrupted resumes, and several processes share one.

Each model has a file of its own, whose name is a digest of all that its losses depend on.
"""

import hashlib
import io
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from deeplinear._core.drive import drive
from deeplinear._core.pool import InProcess
from deeplinear._core.refusal import Refusal
from deeplinear._core.store import ARRAYS, Damaged, Format, Store, in_use
from deeplinear._planning.budget import Envelope
from deeplinear._problem.edit import replace
from deeplinear._problem.problem import Problem

_MODELS, _MARK = "models", ".deeplinear-plan"


def _unpack(content: io.BytesIO) -> Envelope:
    arrays = ARRAYS.unpack(content)
    try:
        return Envelope(arrays["losses"], arrays["lrs"])
    except KeyError:
        raise Damaged from None


_ENVELOPES = Format[Envelope](
    ARRAYS.suffix, lambda found: ARRAYS.pack({"losses": found.losses, "lrs": found.lrs}), _unpack
)


def solve_kept(
    models: Sequence[Problem], objective: str, folder: Path, solve: Callable[[Problem], Envelope]
) -> list[Envelope]:
    """Return what each model is solved to, from its file where there is one.

    Raises
    ------
    ValueError
        If the folder has something else in it, or a model that another build has solved.
    OSError
        If it cannot be written.
    """
    tasks = {_name(model, objective): model for model in models}
    store = open_store(folder, tasks)
    try:
        drive(tasks, solve, store, InProcess())
        found = dict(store.results())
    finally:
        store.close()
    if len(found) < len(tasks):
        raise OSError(f"store {folder} has lost models that were written to it")
    return [found[_name(model, objective)] for model in models]


def open_store(folder: Path, names: Iterable[str]) -> Store[Envelope]:
    """Make the folder, or refuse one with something else in it."""
    if folder.exists() and not folder.is_dir():
        raise Refusal("store", folder, "a folder", got=f"the file {folder}")
    work = folder / _MARK
    with in_use(folder):
        if folder.is_dir() and any(folder.iterdir()) and not work.is_dir():
            text = f"store must be new or hold plans; the folder {folder} has something else in it"
            raise Refusal("store", folder, "new or hold plans", text=text)
        (work / _MODELS).mkdir(parents=True, exist_ok=True)
    return Store(folder, work / _MODELS, work, {name: name for name in names}, _ENVELOPES)


def _name(model: Problem, objective: str) -> str:
    """Digest of all that the losses depend on; the problem's own rate is not among it."""
    text = "\n".join([objective, replace(model, {"lr": 1.0}).to_toml()])
    return hashlib.sha256(text.encode()).hexdigest()
