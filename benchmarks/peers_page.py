"""The page of ``peers.py``: what is kept in ``peers.json``, as Markdown and a picture."""

from collections.abc import Iterator
from typing import Any

from pictures import COLORS, INK, log_axis, picture, sizes_axis
from sections import rounded, seconds, table

Kept = dict[str, Any]


def page(kept: Kept) -> str:
    """Write what has been measured; draws ``images/peers.png``."""
    draw(kept)
    lines = [
        "## Programs of other groups",
        "",
        "`python benchmarks/peers.py` shows these numbers, which are kept with commit and date; its first lines say "
        "what to install to measure them again. What is compared ran in turns in one process, in double precision and "
        "on one thread; times are processor time, and those of JAX are of later calls, once everything is compiled.",
        "",
        "![Difference over the learning rate; time over the number of inputs](images/peers.png)",
        "",
        *whole_matrices(kept["rates"], kept["patterns"]),
        *streaming(kept["streaming"], kept["batches"]),
        *origins(kept),
    ]
    return "\n".join(lines)


def whole_matrices(rates: Kept, patterns: Kept) -> Iterator[str]:
    """Networks of infinite width on a few fixed inputs."""
    rows, used = [*rates["rows"], *patterns["rows"][1:]], rates["settings"]
    first = [row["first"] for row in rows]
    before, last = rates["rows"][-2:]
    yield (
        f"**Iteration of whole matrices** (thebuckleylab/jpc, MIT: `solve_kernels`, {used['iterations']} iterations). "
        f"Networks of infinite width with {used['depth']} hidden layers learn P fixed inputs at richness "
        f"{used['richness']:g}. The peer keeps matrices over all pairs of times and inputs; `solve` takes the inputs "
        "as a population whose eigenvalues are those of the Gram matrix over P. Errors are the largest differences "
        "from `solve`, as parts of the first loss. The peer moves outputs by the tangent kernel times the "
        "rate, which leaves out higher orders of the rate, so it is right for small rates only: with rate times steps "
        f"fixed, the last {before['lr'] / last['lr']:g}-fold decrease of the rate makes its error "
        f"{before['jpc'] / last['jpc']:.1f} times smaller. `solve` has no such error: the mean of {used['networks']} "
        f"networks of width {used['width']:.0e}, trained step by step, agrees with it to what they scatter. The damped "
        "fixed point is our own writing of the published one (`benchmarks/peer.py`); one input needs no damping, and "
        f"it ends when nothing changes by more than {used['tolerance']:g}. The first call of jpc, which compiles, "
        f"takes {seconds(min(first))} to {seconds(max(first))}."
    )
    yield ""
    header = ["inputs P", "lr", "steps", "error: jpc", "damped", "networks", "time: jpc", "damped", "`solve`"]
    yield from table([*header, "jpc / `solve`"], (_matrix_row(row) for row in rows))


def _matrix_row(row: Kept) -> list[str]:
    times = row["seconds"]
    damped = [f"{row['damped']:.0e}", seconds(times["damped"])] if "damped" in row else ["-", "-"]
    problem = [f"{row['patterns']}", f"{row['lr']:g}", f"{row['steps']}"]
    errors = [f"{row['jpc']:.1e}", damped[0], f"{row['networks']:.0e}"]
    ratio = rounded(times["jpc"] / times["solve"])
    return [*problem, *errors, seconds(times["jpc"]), damped[1], seconds(times["solve"]), ratio]


def streaming(isotropic: Kept, power_law: Kept) -> Iterator[str]:
    """The lazy limit, where the mean loss is known exactly."""
    used = isotropic["settings"]
    first = [row["first"] for row in (*isotropic["rows"], *power_law["rows"])]
    fine, coarse = used["steps of the ODE"]
    yield (
        "**ODE of streaming SGD** (LosVolterrosHermanos/Experimental, Apache 2.0: `ode_resolvent_log_implicit`, no "
        "momentum). In the lazy limit a network is a linear model, and the mean of its loss over all draws is known "
        "exactly at any size, by a recursion for mean squares. Errors are the largest relative differences from it. "
        f"Isotropic data in {used['dimensions']} dimensions, then {used['modes']} modes of a power law with small "
        f"batches; depth 1, noise {used['noise']:g}. The ODE replaces steps by a flow, so its error falls with the "
        f"rate. A coarser step of the ODE ({coarse:g} in log time for {fine:g}) adds to it visibly at the smallest "
        "rate only; the variant without terms of second order in the rate, which the authors offer, is closer here. "
        "`solve` follows the steps and is a limit of large sizes; with `small_batch=True` it keeps noise of order 1/B, "
        "which makes it exact here. It does more than this problem needs: a linear model has no use for functions of "
        "two times. So the ODE is faster in long runs and with many modes, and the recursion is faster than both. The "
        "first call of the ODE takes "
        f"{seconds(min(first))} to {seconds(max(first))}."
    )
    yield ""
    header = ["data", "batch", "lr", "steps", "error: ODE", "coarser", "no second order", "`solve`", "`small_batch`"]
    rows = [("isotropic", row) for row in isotropic["rows"]] + [("power law", row) for row in power_law["rows"]]
    times = ["time: ODE", "recursion", "`solve`", "ODE / `solve`"]
    yield from table([*header, *times], (_stream_row(*row) for row in rows))


def _stream_row(data: str, row: Kept) -> list[str]:
    times, errors = row["seconds"], row["errors"]
    names = ("ode", "coarse", "approximate", "solve", "small_batch")
    shown = [f"{errors[name]:.1e}" if name in errors else "-" for name in names]
    ratio = rounded(times["ode"] / times["solve"])
    problem = [data, f"{row['batch']}", f"{row['lr']:g}", f"{row['steps']}"]
    return [*problem, *shown, *(seconds(times[name]) for name in ("ode", "recursion", "solve")), ratio]


def origins(kept: Kept) -> Iterator[str]:
    """Which commits, when and where; the same words only once."""
    told: dict[str, list[str]] = {}
    for name, part in kept.items():
        used = ", ".join(f"{what} {version[:12]}" for what, version in part["versions"].items())
        where = part["circumstances"]
        told.setdefault(f"{where['date']}, {where['machine']}, {used}", []).append(f"{name} {where['load']}")
    for words, loads in told.items():
        yield f"{words}; load before the run: {', '.join(loads)}."
        yield ""


def draw(kept: Kept) -> None:
    """Differences over the rate, and times over the number of inputs."""
    with picture("peers", 2) as (errors, times):
        rates, flows = kept["rates"]["rows"], kept["streaming"]["rows"]
        steps = [row["lr"] for row in flows]
        errors.plot([row["lr"] for row in rates], [row["jpc"] for row in rates], "o-", color=COLORS[0], label="jpc")
        errors.plot(steps, [row["errors"]["ode"] for row in flows], "s-", color=COLORS[1], label="streaming ODE")
        guide = [0.3 * flows[-1]["errors"]["ode"] * lr / steps[-1] for lr in steps]
        errors.plot(steps, guide, ":", color=INK, label="slope 1")
        sizes_axis(errors.xaxis, sorted({*steps, *(row["lr"] for row in rates)}))
        errors.set(xlabel="learning rate", ylabel="largest error of the loss")
        rows = kept["patterns"]["rows"]
        for name, marker, color in (("jpc", "o-", COLORS[0]), ("solve", "s-", COLORS[2])):
            taken = [row["seconds"][name] for row in rows]
            times.plot([row["patterns"] for row in rows], taken, marker, color=color, label=name)
        sizes_axis(times.xaxis, [row["patterns"] for row in rows])
        times.set(xlabel=f"inputs $P$, {rows[0]['steps']} steps", ylabel="seconds")
        for axes in (errors, times):
            log_axis(axes)
            axes.legend(loc="best")
