"""Measure programs of other groups beside `solve`, on problems that they share; write ``benchmarks/peers.md``.

python benchmarks/peers.py [parts: rates, patterns, streaming, batches]

The named parts are measured, at most a few minutes each, and kept in ``benchmarks/peers.json``; the page is written
from what is kept. Without a part nothing is measured, and nothing of the peers has to be there.

To measure, install JAX (``pip install jax``), check out the repositories of ``PEERS`` at the commits given there, and
put their folders on the path. Both are plain Python, and nothing of them is part of this project:

PYTHONPATH=jpc/experiments/limits_paper:Experimental python benchmarks/peers.py rates patterns streaming batches
"""

import argparse
import hashlib
import importlib
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

import deeplinear as dl
from deeplinear._core.files import write_atomically
from deeplinear._core.threads import one_blas_thread
from measure import circumstances, race
from peer import fixed_point
from peers_page import page

Array = NDArray[np.float64]
HERE = Path(__file__).parent
STORE, PAGE = HERE / "peers.json", HERE / "peers.md"

PEERS = {
    "theory_utils": {
        "repository": "thebuckleylab/jpc",
        "commit": "7d6cc05742d28b543311e6c4d4ca140ba996f8b5",
        "license": "MIT",
        "sha256": "d97bc26fb464da1e9129b5d85518fad37a7cb803ab22c74a93895f86a81dcdc9",
    },
    "power_law_rf.ode": {
        "repository": "LosVolterrosHermanos/Experimental",
        "commit": "607f79e20301a31dbee01c8a746e44af8e1f1ee7",
        "license": "Apache 2.0",
        "sha256": "b037863c018bbddf7acd3b433cb8ec47ee1cbd0b834da3237707ac4893aa4991",
    },
}
"""The module that is measured, where it is from, and the hash of its file, so that numbers belong to a commit."""

DEPTH, RICHNESS, SPAN = 2, 1.0, 1.0
"""Hidden layers and richness of networks of infinite width, and rate times steps, which is the same for all rates."""
RATES, PATTERNS, STEPS = (0.1, 0.025, 0.00625), (1, 4, 16), 40
ITERATIONS = 10
"""How often jpc updates all matrices unless told otherwise."""
WIDE, SEEDS = 1e10, 8
"""Width and number of the networks that are trained as a check."""
DAMPING, TOLERANCE = 0.0, 1e-6

SLOW, DIM, NOISE, LAZY = (0.1, 0.025, 0.0025), 1000, 0.3, 1e-4
"""Rates of streaming SGD, input dimension of the ODE, noise of the labels, and a richness that is practically none."""
MODES, BATCHES = 40, (4, 64)
FINE, COARSE = 1e-3, 1e-2
"""Steps in log time of the ODE, both of which its authors use."""

SETTINGS: dict[str, Any] = {"depth": DEPTH, "richness": RICHNESS, "iterations": ITERATIONS, "tolerance": TOLERANCE}
SETTINGS |= {"networks": SEEDS, "width": WIDE, "dimensions": DIM, "modes": MODES, "noise": NOISE}
SETTINGS |= {"steps of the ODE": [FINE, COARSE]}
"""What the page says of the problems, kept with the numbers."""


def peer(name: str) -> ModuleType:
    """Import a module of a peer and make sure that it is the one named."""
    module = importlib.import_module(name)
    found = hashlib.sha256(Path(str(module.__file__)).read_bytes()).hexdigest()
    if found != PEERS[name]["sha256"]:
        raise SystemExit(f"{name} is not that of {PEERS[name]['repository']} at {PEERS[name]['commit']}: {found}")
    return module


def gram(patterns: int) -> tuple[Array, Array]:
    """Gram matrix of some inputs, and labels; one input has unit length and label 1."""
    if patterns == 1:
        return np.ones((1, 1)), np.ones(1)
    rng = np.random.default_rng([patterns, 21])
    inputs = rng.standard_normal((patterns, 2 * patterns))
    return inputs @ inputs.T / (2 * patterns), rng.standard_normal(patterns)


def shared(kernel: Array, labels: Array, lr: float, steps: int, width: float | str = "infinite") -> dl.Problem:
    """Training on fixed inputs as a problem: the population is the inputs, whose covariance has the Gram's spectrum."""
    values, vectors = np.linalg.eigh(kernel / len(labels))
    power = (vectors.T @ labels) ** 2 / len(labels) / values
    data = dl.Spectrum(values[::-1].tolist(), power[::-1].tolist())
    return dl.Problem(dl.MLP(DEPTH, width, RICHNESS), data, dl.Population(), dl.GradientDescent(lr), steps)


def whole_matrices(kernel: Array, labels: Array, lr: float, steps: int) -> Callable[[], Array]:
    """Mean squared error by the iteration of jpc, compiled as a whole, which its own script does not do."""
    theory = peer("theory_utils")
    import jax

    def errors(kernel: Any, labels: Any) -> Any:
        features, gradients, _, _ = theory.solve_kernels(
            kernel, labels, DEPTH, lr, RICHNESS, T=steps, num_steps=ITERATIONS
        )
        return (theory.get_Delta(features, gradients, kernel, labels, lr) ** 2).sum(2).mean(1)

    compiled = jax.jit(errors)
    return lambda: np.asarray(compiled(kernel, labels))


def beside_jpc(patterns: int, lr: float, steps: int) -> tuple[dict[str, Any], dict[str, Callable[[], Any]]]:
    """Errors of jpc, as parts of the first loss, and what is to be timed."""
    kernel, labels = gram(patterns)
    problem = shared(kernel, labels, lr, steps)
    exact = dl.solve(problem, method="dense").test_loss
    networks = dl.simulate(shared(kernel, labels, lr, steps, WIDE), seeds=SEEDS, record="losses").test_loss
    work = whole_matrices(kernel, labels, lr, steps)
    start = time.process_time()
    found = work()
    row = {
        "patterns": patterns,
        "lr": lr,
        "steps": steps,
        "first": time.process_time() - start,
        "jpc": largest(found - exact) / exact[0],
        "networks": largest(networks.mean(0) - exact) / exact[0],
    }
    return row, {"solve": lambda: dl.solve(problem, method="dense"), "jpc": work}


def rates() -> list[dict[str, Any]]:
    """One input: the rate falls while rate times steps stays; the damped fixed point takes part."""
    rows = []
    for lr in RATES:
        steps = round(SPAN / lr)
        row, works = beside_jpc(1, lr, steps)
        # So wide and on so many examples that the difference from infinitely many is below rounding of the loss.
        wide = dl.Problem(
            dl.MLP(DEPTH, 1e15, RICHNESS), dl.Isotropic(), dl.FullBatch(1e15), dl.GradientDescent(lr), steps
        )
        ended = fixed_point(wide, DAMPING, TOLERANCE)
        assert ended.test_loss is not None, ended.reason
        row |= {"iterations": ended.iterations, "damped": largest(ended.test_loss - works["solve"]().test_loss)}
        works["damped"] = lambda wide=wide: fixed_point(wide, DAMPING, TOLERANCE)
        rows.append(row | {"seconds": race(works)})
    return rows


def patterns() -> list[dict[str, Any]]:
    """More and more inputs at one rate."""
    measured = (beside_jpc(count, SPAN / STEPS, STEPS) for count in PATTERNS)
    return [row | {"seconds": race(works)} for row, works in measured]


def streaming() -> list[dict[str, Any]]:
    """The lazy limit on isotropic data, one fresh batch of as many examples as dimensions in each step."""
    values, power, rows = np.full(DIM, 1 / DIM), np.ones(DIM), []
    for lr in SLOW:
        steps = round(10 / lr)
        network, rule = dl.MLP(1, "infinite", LAZY), dl.GradientDescent(lr)
        problem = dl.Problem(network, dl.Isotropic(NOISE), dl.OnlineSGD(1.0), rule, steps)
        rows.append(beside_ode(problem, values, power, 2 * lr * DIM, DIM))
    return rows


def batches() -> list[dict[str, Any]]:
    """The lazy limit on a power law, with small batches, whose noise of order 1/B theory keeps on request."""
    order = np.arange(1.0, MODES + 1)
    values, power, rows = order**-1.5, order**-1.0, []
    for batch in BATCHES:
        network, data = dl.MLP(1, "infinite", LAZY), dl.Spectrum(values.tolist(), power.tolist(), noise=NOISE)
        problem = dl.Problem(network, data, dl.OnlineSGD(float(batch)), dl.GradientDescent(0.05), 400)
        rows.append(beside_ode(problem, values, power, 0.1, batch))
    return rows


def beside_ode(problem: dl.Problem, values: Array, power: Array, lr: float, batch: int) -> dict[str, Any]:
    """Largest relative errors of the loss against its exact mean, and times; ``lr`` is that of a linear model."""
    works: dict[str, Callable[[], Array]] = {"solve": lambda: dl.solve(problem).test_loss}
    works["recursion"] = lambda: moments(values, power, lr, batch, problem.steps)
    if problem.data.dimension_free:
        complete = problem.replace(sampling=dl.OnlineSGD(batch, small_batch=True))
        works["small_batch"] = lambda: dl.solve(complete).test_loss
    exact = works["recursion"]()
    for name, step, approximate in (("ode", FINE, False), ("coarse", COARSE, False), ("approximate", FINE, True)):
        works[name] = lambda step=step, approximate=approximate: differential_equation(
            values, power, lr, batch, problem.steps, step, approximate
        )
    errors, first = {}, {}
    for name, work in works.items():
        start = time.process_time()
        losses = work()  # the equation ends a little before the last step
        first[name] = time.process_time() - start
        errors[name] = largest(losses / exact[: len(losses)] - 1)
    del errors["recursion"]  # it is what the others are compared with
    return {
        "lr": float(problem.optimizer.lr),
        "steps": problem.steps,
        "batch": batch,
        "errors": errors,
        "first": first["ode"],
        "seconds": race({name: works[name] for name in ("solve", "ode", "recursion")}, 2),
    }


def differential_equation(
    values: Array, power: Array, lr: float, batch: int, steps: int, step: float, approximate: bool
) -> Array:
    """Twice the risk at whole steps, by the ODE of streaming SGD without momentum."""
    ode = peer("power_law_rf.ode")
    import jax.numpy as jnp

    none = jnp.zeros(len(values))
    inputs = ode.ODEInputs(jnp.asarray(values), jnp.asarray(power), none, none, NOISE**2 / 2)
    rule = ode.DanaHparams(lambda _: 0.0, lambda _: lr, lambda _: 0.0, lambda _: 1.0)
    times, risks = ode.ode_resolvent_log_implicit(
        inputs, rule, batch, len(values), float(steps), step, approximate=approximate
    )
    whole = np.arange(int(times[-1]) + 1)
    return np.interp(whole, np.asarray(times), np.asarray(risks))


def moments(values: Array, power: Array, lr: float, batch: int, steps: int) -> Array:
    """Mean loss of a linear model under streaming SGD on Gaussian data, exactly, at any size.

    The mean square of the error in each eigendirection closes: with gradients of a batch of B examples it becomes
    (1 - lr λ)² + (lr λ)²/B times itself, plus lr² λ/B times the loss.
    """
    square, losses = power, np.empty(steps)
    kept = (1 - lr * values) ** 2 + (lr * values) ** 2 / batch
    for step in range(steps):
        losses[step] = values @ square + NOISE**2
        square = kept * square + lr**2 / batch * values * losses[step]
    return losses


def largest(values: Array) -> float:
    return float(np.abs(values).max())


@contextmanager
def fair_jax() -> Iterator[None]:
    """JAX in double precision, on one thread, and keeping what it has compiled, also for calls that start afresh."""
    os.environ.setdefault("XLA_FLAGS", "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1")
    import jax

    with TemporaryDirectory() as compiled:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_compilation_cache_dir", compiled)
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        yield


PARTS = {"rates": rates, "patterns": patterns, "streaming": streaming, "batches": batches}


def versions() -> dict[str, str]:
    import jax

    return {"jax": jax.__version__} | {each["repository"]: each["commit"] for each in PEERS.values()}


def measure(parts: list[str], kept: dict[str, Any]) -> None:
    """Measure some parts, in one process, and keep each as soon as it is done."""
    with one_blas_thread(), fair_jax():
        for name in parts:
            where, rows = circumstances(), PARTS[name]()
            kept[name] = {"circumstances": where, "versions": versions(), "settings": SETTINGS, "rows": rows}
            write_atomically(STORE, lambda path: path.write_text(json.dumps(kept, indent=1) + "\n"))
            print(f"{name}: {json.dumps(rows, indent=1)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="part", help=f"any of {', '.join(PARTS)}; none by default")
    parts = parser.parse_args().parts
    for name in parts:
        if name not in PARTS:
            parser.error(f"part must be one of {', '.join(PARTS)}, got {name}")
    kept: dict[str, Any] = json.loads(STORE.read_text()) if STORE.exists() else {}
    if parts:
        measure(parts, kept)
    text = page(kept)
    write_atomically(PAGE, lambda path: path.write_text(text))
    print(text)


if __name__ == "__main__":
    main()
