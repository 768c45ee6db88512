"""Measure `solve` and `simulate` on a device of PyTorch, and how far they are from NumPy; print a table in Markdown.

python benchmarks/device.py [device, "cuda" if left out] [names of sections]

It takes a few minutes on a large graphics card. Each row is printed once it is measured; a section that fails says so
and the next one follows. The last row of a section compares with NumPy on this machine's processor.
"""

import datetime
import platform
import sys
import time
import traceback
from collections.abc import Callable, Iterator

import numpy as np

import deeplinear as dl
from deeplinear._core.device import Device, find_device
from deeplinear._equations import system
from deeplinear._equations.coefficients import coefficients
from deeplinear._equations.products import rows_times, rows_times_transpose
from deeplinear._equations.two_time import Causal
from deeplinear._experiment.in_place import add_outer
from deeplinear._experiment.network import Outer
from deeplinear._solvers.dense import Dense, DenseRun

Row = tuple[str, str, str]


def mlp(steps: int, lr: float, depth: int = 4) -> dl.Problem:
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(lr)
    return dl.Problem(dl.MLP(depth, 1.0), data, dl.FullBatch(2.0), rule, steps)


def difference(actual: np.ndarray, expected: np.ndarray) -> str:
    """Largest difference, relative to the largest value."""
    return f"{np.abs(actual - expected).max() / np.abs(expected).max():.1e}"


def waiting(device: Device, work: Callable[[], object]) -> Callable[[], None]:
    """The same work, with a wait until the device has done it."""

    def done() -> None:
        work()
        if device.torch_device.type == "cuda":
            import torch

            torch.cuda.synchronize(device.torch_device)

    return done


def products(device: Device, scale: float) -> Iterator[Row]:
    """Bandwidth of what steps consist of, to see what the rest is made of."""
    rng = np.random.default_rng(0)
    for count, e in ((2, int(4000 * scale)), (int(1024 * scale), 200)):
        matrix = device.put(np.tril(rng.standard_normal((e, e)))).expand(count, e, e).clone()
        lower, rows = Causal(matrix), device.put(rng.standard_normal((count, 1, e)))
        other = device.put(rng.standard_normal((count, 1, e)))
        for name, work, passes in (
            ("copy", lambda m=matrix: m.clone(), 2),
            ("rows times matrix", lambda m=matrix, r=rows: r @ m, 1),
            ("rows times transpose", lambda m=matrix, r=rows: (m @ r.mT).mT, 1),
            ("rows times causal matrix", lambda m=lower, r=rows: rows_times(r, m), 1),
            ("rows times transpose of causal matrix", lambda m=lower, r=rows: rows_times_transpose(r, m), 1),
            ("rank-1 update", lambda m=matrix, r=rows, o=other: add_outer(m, Outer(1e-9, r.mT, o.mT)), 2),
        ):
            work()
            seconds = quickest(waiting(device, lambda work=work: [work() for _ in range(20)])) / 20
            rate = passes * matrix.numel() * 8 / seconds
            yield f"{name}, {count} of {e} x {e}", f"{rate / 1e12:.2f} TB/s", f"{1e6 * seconds:.0f} us"


def stepping(device: Device, scale: float) -> Iterator[Row]:
    """Time of a step where the matrices are tiny: what starting operations takes."""
    for name, network in (("MLP, L = 4", dl.MLP(4, 1.0)), ("residual, L = 4", dl.ResNet(4, 1.0))):
        problem = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), dl.GradientDescent(0.01), 40)
        here = quickest(lambda problem=problem: dl.solve(problem, device=device.name)) / 40
        there = quickest(lambda problem=problem: dl.solve(problem)) / 40
        yield f"one small step, {name}", f"{1e6 * here:.0f} us", f"{1e6 * there:.0f} us with NumPy"


def batch(device: Device, scale: float) -> Iterator[Row]:
    """Many problems of equal shape."""
    count = max(8, int(512 * scale))
    problems = [mlp(200, 0.002 + 1e-5 * i) for i in range(count)]
    dl.solve(problems[:2], device=device.name)  # compiles what has to be compiled
    seconds = quickest(lambda: dl.solve(problems, device=device.name))
    setting_up = timed(waiting(device, lambda: coefficients(problems, device=device)))
    c = coefficients(problems, device=device)
    filling = quickest(waiting(device, lambda: DenseRun(problems, c).fill()))
    yield (
        f"{count} problems, L = 4, T = 200",
        f"{seconds:.2f} s",
        f"{setting_up:.2f} s to set up, {filling:.2f} s to fill all rows",
    )
    chosen = [0, count // 2, count - 1]
    actual, expected = dl.solve(problems, device=device.name), dl.solve([problems[i] for i in chosen])
    for name in ("test_loss", "feature_correlation"):
        ours = np.stack([getattr(actual[i], name) for i in chosen])
        theirs = np.stack([getattr(each, name) for each in expected])
        yield f"{name} of {len(chosen)} of them, against NumPy", difference(ours, theirs), ""


def large(device: Device, scale: float) -> Iterator[Row]:
    """One large dense problem; training is causal, so its first steps are those of a shorter one."""
    shorter = int(800 * scale)
    expected = dl.solve(mlp(shorter, 0.001), method="dense").test_loss
    for steps in (int(4000 * scale), int(10000 * scale)):
        if steps == int(4000 * scale):  # kernels are compiled for each size; that takes a small part of the longer run
            dl.solve(mlp(steps, 0.001), device=device.name, method="dense")
        start = time.perf_counter()
        solution = dl.solve(mlp(steps, 0.001), device=device.name, method="dense")
        seconds = time.perf_counter() - start
        shape = Dense().shape(mlp(steps, 0.001))
        causal, symmetric = system.products(shape)
        read = 8 * (causal / 2 + symmetric) * steps**3 / 3  # the half of causal functions is zero
        yield (
            f"one problem, L = 4, T = {steps}",
            f"{seconds:.2f} s",
            f"{1e3 * seconds / steps:.2f} ms a step, {read / seconds / 1e12:.2f} TB/s read at least, "
            f"{system.memory(shape) / 1e9:.1f} GB kept",
        )
        ours = solution.test_loss[:shorter]
        yield f"test_loss, first {shorter} steps, against NumPy", difference(ours, expected), ""
        if steps == int(4000 * scale):
            yield "its analysis of variance", f"{timed(lambda s=solution: s.variance):.2f} s", ""
        del solution


def ensemble(device: Device, scale: float) -> Iterator[Row]:
    """Many large networks."""
    dim, seeds, steps = int(4000 * scale), 16, 100
    for depth in (2, 3):

        def problem(steps: int, depth: int = depth) -> dl.Problem:
            data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(0.01)
            return dl.Problem(dl.MLP(depth, 1.0), data, dl.FullBatch(1.0), rule, steps)

        dl.simulate(problem(2), dim, 1, device=device.name)
        few, many = (
            timed(lambda t=t, problem=problem: dl.simulate(problem(t), dim, seeds, device=device.name))
            for t in (2, steps)
        )
        yield (
            f"{seeds} networks, L = {depth}, D = N = P = {dim}, {steps} steps",
            f"{many:.2f} s",
            f"{few:.2f} s of it for 2 steps (drawing and copying), {1e3 * (many - few) / (steps - 2):.1f} ms a step",
        )
    actual, expected = (dl.simulate(problem(6), dim, 2, device=name) for name in (device.name, "cpu"))
    for name in ("test_loss", "feature_correlation"):
        yield (
            f"{name}, 2 networks, 6 steps, against NumPy",
            difference(getattr(actual, name), getattr(expected, name)),
            "",
        )


def deep(device: Device, scale: float) -> Iterator[Row]:
    """Infinite depth, whose steps are swept until they stand still."""
    data, rule = dl.Isotropic(noise=0.3), dl.GradientDescent(0.01)
    problem = dl.Problem(dl.ResNet(np.inf, 1.0), data, dl.FullBatch(2.0), rule, max(8, int(100 * scale)))
    dl.solve(problem.replace(steps=8), device=device.name)
    here = timed(lambda: dl.solve(problem, device=device.name))
    there = timed(lambda: dl.solve(problem))
    yield f"infinite depth, T = {problem.steps}", f"{here:.2f} s", f"{there:.2f} s with NumPy"
    actual, expected = dl.solve(problem, device=device.name), dl.solve(problem)
    yield "test_loss against NumPy", difference(actual.test_loss, expected.test_loss), ""


def agreement(device: Device, scale: float) -> Iterator[Row]:
    """Every kind of problem against NumPy: losses, tangent kernel and the correlation of features."""
    plain, data = dl.GradientDescent(0.02), dl.Isotropic(noise=0.3)
    full, network = dl.FullBatch(2.0), dl.MLP(3, [1.0, 0.5, 2.0])
    problem = dl.Problem(network, data, full, plain, max(8, int(300 * scale)))
    gram = [[1.0, 0.3], [0.3, 0.5]]
    kinds = {
        "full batch": problem,
        "online SGD, momentum": problem.replace(sampling=dl.OnlineSGD(2.0), momentum=0.5),
        "many passes, weight decay": problem.replace(sampling=dl.MultiPassSGD(2.0, 0.5), weight_decay=0.1),
        "residual": problem.replace(network=dl.ResNet(3, 1.0)),
        "centered": problem.replace(centered=True),
        "spectrum": problem.replace(data=dl.Spectrum([1.0, 0.5, 0.2], [0.3, 0.3, 0.4], noise=0.1)),
        "two outputs": problem.replace(data=dl.Isotropic(0.3, gram)),
        "infinite width": problem.replace(width="infinite"),
        "clipping": problem.replace(clip=0.5),
    }
    for name, each in kinds.items():
        actual, expected = (dl.solve(each, device=where, method="dense") for where in (device.name, "cpu"))
        curves = ("test_loss", "train_loss", "kernel", "feature_correlation")
        worst = max(float(difference(getattr(actual, curve), getattr(expected, curve))) for curve in curves)
        yield f"{name}, T = {each.steps}, against NumPy", f"{worst:.1e}", ""


def timed(work: Callable[[], object]) -> float:
    """Seconds that some work takes, by the clock: the processor may sleep while a card works."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def quickest(work: Callable[[], object], repeats: int = 5) -> float:
    """Seconds of the fastest of several repeats by the clock, after one to warm up."""
    return min([timed(work) for _ in range(repeats + 1)][1:])


def panels(device: Device, scale: float) -> Iterator[Row]:
    """Many long smooth runs, on one grid of nodes in time."""
    steps = int(10**5 * scale)

    def problem(part: float) -> dl.Problem:
        network, rule = dl.MLP(3, 0.8 + 0.4 * part), dl.GradientDescent(0.002 + 0.004 * part)
        return dl.Problem(network, dl.Isotropic(noise=0.3), dl.FullBatch(2.0), rule, steps)

    for count in (max(8, int(64 * scale)), max(12, int(256 * scale))):
        problems = [problem(index / (count - 1)) for index in range(count)]
        chosen = [0, count // 3, 2 * count // 3, count - 1]
        dl.solve([each.replace(steps=1000) for each in problems], device=device.name, method="panels")
        start = time.perf_counter()
        together = dl.solve(problems, device=device.name, method="panels")
        seconds = time.perf_counter() - start
        start = time.perf_counter()
        alone = dl.solve([problems[index] for index in chosen], method="panels")
        each = (time.perf_counter() - start) / len(chosen)
        batch, nodes = (together[0].stats[name] for name in ("batch", "nodes"))
        yield (
            f"{count} long runs, L = 3, T = {steps}",
            f"{seconds:.2f} s",
            f"{batch} together at {nodes} nodes, {each:.2f} s each with NumPy",
        )
        at = np.unique(np.geomspace(1, steps, 50).astype(int)) - 1
        pairs = [(together[index].at(at), found.at(at)) for index, found in zip(chosen, alone, strict=True)]
        ours, theirs = (np.stack([pair[side].test_loss.values for pair in pairs]) for side in (0, 1))
        worst = np.abs(ours / theirs - 1).max()
        yield f"test_loss of {len(chosen)} of them, against NumPy", f"{worst:.1e}", ""


SECTIONS = (batch, panels, large, deep, stepping, agreement, ensemble, products)


def main() -> None:
    words = sys.argv[1:]
    names = [section.__name__ for section in SECTIONS]
    chosen = [word for word in words if word in names] or names
    device = find_device(next((word for word in words if word not in names), "cuda"))
    is_card = device.torch_device.type == "cuda"
    scale = 1.0 if is_card else 0.05  # without a card, a rehearsal
    print(f"Measured on {datetime.date.today()} on {describe(device)}.\n")
    print("| what | measured | details |\n|---|---|---|", flush=True)
    for section in SECTIONS:
        if section.__name__ not in chosen:
            continue
        try:
            for row in section(device, scale):
                print("| " + " | ".join(row) + " |", flush=True)
        except Exception:
            reason = traceback.format_exc()
            print(f"| {section.__name__} failed | | {reason.splitlines()[-1]} |", flush=True)
            print(reason, file=sys.stderr, flush=True)
        if is_card:
            import torch

            torch.cuda.empty_cache()


def describe(device: Device) -> str:
    """Name the device, its library and the processor beside it."""
    import torch

    name = torch.cuda.get_device_name(device.torch_device) if device.torch_device.type == "cuda" else device.name
    return f"{name} ({platform.machine()}, PyTorch {torch.__version__}, NumPy {np.__version__})"


if __name__ == "__main__":
    main()
