"""Steps on a graphics card that are recorded once and then replayed for every row.

Starting an operation from Python takes longer than a small one takes on the card. A step of the equations is some
hundred operations, of which none depends on the number of the row but by where it reads and writes. So the number is
kept on the card, rows are as long as the whole training, with zeros beyond their own time, and the operations of one
step are recorded as a graph that the card replays by itself.
"""

from collections.abc import Callable, Sequence
from typing import Any

from deeplinear._core.arrays import zeros
from deeplinear._equations.coefficients import Coefficients, row_set
from deeplinear._equations.two_time import Room

_FIRST = 3
"""Row that is recorded: the first one is not like others, and the next ones compile what has to be compiled."""


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
        self._graph: Any = None

    def __call__(self, row: int) -> None:
        """Fill the next row."""
        if row == 0:
            self._step(row_set(self._c, 0))
            self._rows = moving_rows(self._c)
            self._use(self._rows)
        elif row < _FIRST:
            self._move()
        else:
            if self._graph is None:
                self._graph = record(self._move)
            self._graph.replay()

    def end(self) -> None:
        """Let products be as they were."""
        self._use(None)

    def _move(self) -> None:
        """Fill rows, and go on to the next ones."""
        rows = self._rows
        rows.identity.copy_(rows.places == rows[:, None])
        self._step(rows)
        rows += len(rows)
        rows.times += 1

    def _use(self, rows: Any) -> None:
        products = None
        if rows is not None and self._c.structure.outputs == 1:
            from deeplinear._equations.device_rows import DeviceRows

            products = DeviceRows(rows)
        for room in self._rooms:
            room.replay(products)


def why_not(c: Coefficients) -> str | None:
    """Return why steps cannot be replayed, None if they can."""
    if getattr(c.gamma0.device, "type", "cpu") != "cuda":
        return "they are not on a graphics card of NVIDIA"
    if c.gamma0.dtype.is_complex:
        return "derivatives are complex numbers"
    if c.structure.depth_nodes:
        return "steps along the depth are swept until they stand still"
    try:
        import triton  # noqa: F401
    except ImportError:
        return "Triton is not installed"
    return None


def moving_rows(c: Coefficients) -> Any:
    """Return rows that start with those of the second time, and move on in the memory of a device.

    They are a tensor that arrays can be indexed by, and have what is asked of a slice: they stop where the matrices do,
    and are as many as one time has. ``times`` has the number of their time, and ``identity`` these rows of the identity.
    """
    s, xp = c.structure, c.xp
    rows = xp.arange(s.outputs, 2 * s.outputs, device=c.gamma0.device)
    rows.start, rows.stop = s.size - s.outputs, s.size
    rows.times = xp.ones(1, dtype=rows.dtype, device=rows.device)
    rows.places = xp.arange(s.size, device=rows.device)
    rows.identity = zeros((s.outputs, s.size), c.gamma0)
    return rows


def record(work: Callable[[], None]) -> Any:
    """Return a graph of the operations that some work starts on a card, none of which is done yet."""
    import torch

    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graph.capture_begin()
        try:
            work()
        finally:
            graph.capture_end()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
