"""How fast a step of the equations is, beside the same recursion in C and in JAX; write ``benchmarks/step.md``.

python benchmarks/step.py [--repeats 7] [--without-jax]

``recursion/recursion.c`` writes one kind of problem out with the library's own row products and nothing around them,
so no step of the equations can be much faster. It is compiled here with the flags of the package.
``recursion/with_jax.py`` is what somebody who knows JAX would write in an hour; its time to compile is given apart.
"""

import argparse
import ctypes
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core import threads
from measure import circumstances, race

HERE = Path(__file__).parent
FLAGS = ["-O3", "-fno-signed-zeros", "-fno-trapping-math", "-fassociative-math", "-shared", "-fPIC"]
STEPS, LONG_STEPS = (25, 50, 100, 200), (400, 800)
DEPTH, LR, NOISE, LIST = 3, 0.03, 0.3, 24
SAMPLING = {"full batch": (dl.FullBatch(2.0), 0.5, 0.0), "online": (dl.OnlineSGD(0.5), 0.0, 2.0)}
OTHERS: dict[str, dict[str, Any]] = {
    "residual": {"network": dl.ResNet(DEPTH, 1.0)},
    "centered": {"network": dl.MLP(DEPTH, 1.0, centered=True)},
    "momentum": {"optimizer": dl.GradientDescent(LR, momentum=0.5)},
    "weight decay": {"optimizer": dl.GradientDescent(LR, weight_decay=0.1)},
    "multi-pass": {"sampling": dl.MultiPassSGD(2.0, 0.5)},
    "8 modes": {"data": dl.Spectrum.power_law(1.5, 1.0, 8)},
    "two outputs": {"data": dl.Isotropic(NOISE, [[1.0, 0.2], [0.2, 1.0]])},
    "clipped": {"optimizer": dl.GradientDescent(LR, clip=0.5)},
    "normalised": {"optimizer": dl.NormalizedDescent(LR)},
}


def problem(steps: int, lr: float = LR, **changes: Any) -> dl.Problem:
    """Return a problem that the recursion knows, or another one."""
    whole = dl.Problem(dl.MLP(DEPTH, 1.0), dl.Isotropic(NOISE), dl.FullBatch(2.0), dl.GradientDescent(lr), steps=steps)
    return whole.replace(**changes)


def in_c(folder: str) -> Callable[..., Any]:
    """Compile the recursion, and return it as a function of steps, rate, reuse and draws."""
    library = Path(folder, "recursion.so")
    include = f"-I{HERE.parent / 'src/deeplinear/_equations'}"
    subprocess.run(["cc", *FLAGS, include, str(HERE / "recursion/recursion.c"), "-o", str(library)], check=True)
    function = ctypes.CDLL(str(library)).recursion
    function.argtypes = [ctypes.c_long, ctypes.c_long, *[ctypes.c_double] * 5, ctypes.c_void_p]
    function.restype = None

    def losses(steps: int, lr: float, reuse: float, draws: float) -> Any:
        found = np.zeros(steps)
        function(DEPTH, steps, lr, 1.0, reuse, draws, NOISE, found.ctypes.data)
        return found

    return losses


def waited(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what JAX computes once it is there."""
    return function(*arguments).block_until_ready()


def milliseconds(seconds: float) -> str:
    """Write a time."""
    return f"{1e3 * seconds:.3g}"


def main() -> None:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--without-jax", action="store_true")
    asked = parser.parse_args()
    threads.count_cores = lambda: 1  # type: ignore[assignment]  # the recursion has one thread
    about = circumstances()
    where = f"{about['date']}; {about['machine']}; load {about['load']}."
    lines = ["# A step beside the same recursion in C and in JAX", "", where, ""]
    lines += [
        f"Three layers, noise {NOISE}, rate {LR}. Milliseconds of the processor on one thread, the least of"
        f" {asked.repeats} repeats that took turns; in brackets how many times as long as in C. A list has {LIST}"
        " rates, and its time is that of one problem.",
        "",
        "| problem | steps | in C | `solve` | in a list | JAX, jitted | JAX, vmapped | JAX compiles in |",
        "|---|---|---|---|---|---|---|---|",
    ]
    rates = [LR * (1 + i) / LIST for i in range(LIST)]
    with TemporaryDirectory() as folder:
        recursion = in_c(folder)
        for name, (sampling, reuse, draws) in SAMPLING.items():
            for steps in (*STEPS, *LONG_STEPS):
                one, many = problem(steps, sampling=sampling), [problem(steps, lr, sampling=sampling) for lr in rates]
                np.testing.assert_allclose(
                    recursion(steps, LR, reuse, draws), dl.solve(one, method="dense").test_loss, rtol=1e-11
                )
                works: dict[str, Callable[[], Any]] = {
                    "c": partial(recursion, steps, LR, reuse, draws),
                    "solve": partial(dl.solve, one, method="dense"),
                }
                if steps in STEPS:
                    works["list"] = partial(dl.solve, many, method="dense")
                compiling = 0.0
                if not asked.without_jax and name == "full batch" and steps in STEPS:
                    from recursion.with_jax import compiled

                    start = time.process_time()
                    for key, argument in (("jax", LR), ("vmap", np.array(rates))):
                        works[key] = partial(waited, compiled(steps, key == "vmap"), argument, reuse)
                        found = np.asarray(works[key]())
                        compiling = compiling or time.process_time() - start
                        np.testing.assert_allclose(
                            found[-1] if key == "vmap" else found, recursion(steps, LR, reuse, draws), rtol=1e-11
                        )
                times = race(works, asked.repeats)
                for each in ("list", "vmap"):
                    if each in times:
                        times[each] /= LIST
                cells = [
                    f"{milliseconds(times[each])} ({times[each] / times['c']:.1f})" if each in times else ""
                    for each in ("solve", "list", "jax", "vmap")
                ]
                took = f"{compiling:.1f} s" if compiling else ""
                lines.append(f"| {name} | {steps} | {milliseconds(times['c'])} | {' | '.join(cells)} | {took} |")
                print(lines[-1], file=sys.stderr)
        lines += ["", "Other problems, 100 steps, beside the recursion of a full batch of as many:", ""]
        lines += ["| problem | `solve` |", "|---|---|"]
        works = {name: partial(dl.solve, problem(100, **changes)) for name, changes in OTHERS.items()}
        times = race(works | {"c": partial(recursion, 100, LR, 0.5, 0.0)}, asked.repeats)
        lines += [f"| {name} | {milliseconds(times[name])} ({times[name] / times['c']:.1f}) |" for name in OTHERS]
    (HERE / "step.md").write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
