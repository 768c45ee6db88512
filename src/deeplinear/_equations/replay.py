"""Steps on a graphics card that are recorded once and then replayed for every row.

Starting an operation from Python takes longer than a small one takes on the card. A step of the equations is some
hundred operations, of which none depends on the number of the row but by where it reads and writes. So the number is
kept on the card, rows are as long as the whole training, with zeros beyond their own time, and the operations of one
step are recorded as a graph that the card replays by itself.
"""

import gc
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from importlib.util import find_spec
from typing import Any

from deeplinear._core.arrays import Array, namespace, zeros
from deeplinear._equations.coefficients import Coefficients, Structure, row_set
from deeplinear._equations.fixed_point import Accelerated, AnyPast, AnySweeps
from deeplinear._equations.two_time import Room

_MOST_PROGRAMS = 2**16 - 1
"""Programs that a card starts at most along the second and the third axis of a grid."""


class Recorded:
    """A function that is recorded when it is called for the second time, and replayed from then on.

    Parameters
    ----------
    call
        Takes one array, or none, and returns one, or none; all else that it reads and writes stays where it is. What it
        returns is good until the next call.
    """

    def __init__(self, call: Callable[..., Any]) -> None:
        self._call = call
        self._calls = 0
        self._graph: Any = None
        self._given: list[Array] = []
        self._made: Any = None

    def __call__(self, *given: Array) -> Any:
        self._calls += 1
        if self._calls == 1:
            return self._call(*given)  # which compiles what has to be compiled
        if self._graph is None:
            self._given = [namespace(each).asarray(each, copy=True) for each in given]
            self._graph = record(self._make)
        for place, value in zip(self._given, given, strict=True):
            place[...] = value
        self._graph.replay()
        return self._made

    def _make(self) -> None:
        self._made = self._call(*self._given)


class Replay:
    """Steps in the order of rows, recorded on the way.

    Parameters
    ----------
    c
        Coefficients of the problems, on a graphics card.
    step
        Fills rows of some functions of two times; it is given the rows.
    rooms
        Where all of these functions stand.
    """

    def __init__(self, c: Coefficients, step: Callable[[Any], None], rooms: Sequence[Room]) -> None:
        self._c, self._step, self._rooms = c, step, rooms
        self._rows: Any = None
        self._move: Callable[[], None] | None = None

    def __call__(self, row: int) -> None:
        """Fill the next row."""
        if self._move is None:
            if row == 0 and is_first_alone(self._c.structure):
                self._step(row_set(self._c, row))
                return
            rows = self._rows = moving_rows(self._c, row)
            self._use(rows)
            move = partial(take_step, self._step, rows)
            self._move = move if rows.calls is not None else Recorded(move)
        with on_card(self._rows):
            self._move()

    def end(self) -> None:
        """Let products be as they were, and forget what was recorded.

        The recorded parts of a step refer to the rows, which refer to them: without an end of that, all matrices would
        stay on the card until garbage is collected.
        """
        self._use(None)
        if self._rows is not None and self._rows.calls is not None:
            self._rows.calls.clear()
        self._rows = self._move = None

    def _use(self, rows: Any) -> None:
        products = None
        if rows is not None and self._c.structure.outputs == 1:
            from deeplinear._equations.device_rows import DeviceRows

            products = DeviceRows(rows)
        for room in self._rooms:
            room.replay(products)


def is_first_alone(s: Structure) -> bool:
    """Whether the first row is filled by itself, before others are replayed.

    Sweeps along the depth begin from the row before, and what centered networks subtract is a row of its own.
    """
    return bool(s.depth_nodes) or s.centered


def take_step(step: Callable[[Any], None], rows: Any) -> None:
    """Fill rows, and go on to the next ones."""
    namespace(rows).eq(rows.places, rows[:, None], out=rows.identity)
    step(rows)
    rows += len(rows)
    if len(rows) > 1:
        rows.times += 1


def why_not(c: Coefficients) -> str | None:
    """Return why steps cannot be replayed, None if they can."""
    device = c.gamma0.device
    if getattr(device, "type", "cpu") != "cuda":
        return "they are not on an NVIDIA graphics card"
    if c.xp.isdtype(c.gamma0.dtype, "complex floating"):
        return "derivatives are complex numbers"
    if find_spec("triton") is None:
        return "Triton is not installed"
    if not any(map(shutil.which, (os.environ.get("CC", "cc"), "gcc", "clang"))):
        return "Triton finds no C compiler"
    if c.batch > most_problems(c.structure):
        return "there are more matrices than programs that a card starts along an axis"
    return "the card is too old for Triton" if _capability(device) < (7, 0) else None


def most_problems(s: Structure) -> int:
    """Return how many problems are replayed together at most: pairs of matrices, or one of each mode, fit a grid."""
    return _MOST_PROGRAMS // max(2, s.modes)


def _capability(device: Any) -> tuple[int, int]:
    import torch

    found: tuple[int, int] = torch.cuda.get_device_capability(device)
    return found


def moving_rows(c: Coefficients, row: int) -> Any:
    """Return rows that start with those of some time, and move on in the memory of a device.

    They are a tensor that arrays can be indexed by, and have what is asked of a slice: they stop where the matrices do,
    and are as many as one time has. ``times`` has the number of their time, which with one output is the row, in the
    same memory; ``identity`` has these rows of the identity. Where a step is swept until it stands still, it cannot be
    recorded as a whole: ``calls`` has its parts.
    """
    s, xp = c.structure, c.xp
    rows = xp.arange(row * s.outputs, (row + 1) * s.outputs, device=c.gamma0.device)
    rows.start, rows.stop = s.size - s.outputs, s.size
    rows.times = rows.view(-1) if s.outputs == 1 else xp.full((1,), row, dtype=rows.dtype, device=rows.device)
    rows.places = xp.arange(s.size, device=rows.device)
    rows.identity = zeros((s.outputs, s.size), c.gamma0)
    rows.calls = {} if s.depth_nodes else None
    return rows


def part_of_step(rows: Any, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
    """Return a part of a step to be called: recorded, where rows are such that parts are; the same for all rows."""
    calls = getattr(rows, "calls", None)
    if calls is None:
        return call
    recorded: Callable[..., Any] = calls.setdefault(name, Recorded(call))
    return recorded


class RecordedSweeps:
    """Accelerated sweeps that are recorded, each as a whole."""

    def __init__(self, sweeps: Accelerated) -> None:
        self.x = sweeps.x
        self.begin, self.advance = Recorded(sweeps.begin), Recorded(sweeps.advance)


def recorded_sweeps(rows: Any, name: str, sweep: Callable[[Array], Array], like: Array) -> AnySweeps | None:
    """Return accelerated sweeps that are the same for all rows, where rows are recorded in parts."""
    calls = getattr(rows, "calls", None)
    if calls is None:
        return None
    if name not in calls:
        calls[name] = RecordedSweeps(Accelerated(sweep, like, past_on_card(like)))
    sweeps: AnySweeps = calls[name]
    return sweeps


def past_on_card(like: Array) -> AnyPast:
    """Return what remembers earlier sweeps on a card."""
    from deeplinear._equations.device_past import PastOnCard

    return PastOnCard(like)


def on_card(like: Any) -> AbstractContextManager[Any]:
    """Let work be recorded and started on the card of an array, which may not be the first one."""
    if like.device.type != "cuda":
        return nullcontext()
    import torch

    card: AbstractContextManager[Any] = torch.cuda.device(like.device)
    return card


def record(work: Callable[[], None]) -> Any:
    """Return a graph of the operations that some work starts on a card, none of which is done yet."""
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream), no_garbage_collection():
        graph.capture_begin(capture_error_mode="thread_local")
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Keep what nobody refers to for a while: a graph that goes while another is recorded spoils the record."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def earlier_rows(rows: Any, count: int) -> Any:
    """Return the rows of the time before, which has as many of them; those of the first time, a slice, are its own."""
    if getattr(rows, "times", None) is not None:
        return rows - count
    return slice(max(rows.start - count, 0), max(rows.start, count))
