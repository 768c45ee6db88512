"""Networks trained on the rows of a real data set, in the notation of the simulator.

    python tests/real_data.py

measures what the page of findings says about handwritten digits; otherwise only tests use this.
"""

import numpy as np
from sklearn.datasets import load_digits

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from deeplinear._experiment.network import FiniteNetwork
from deeplinear._experiment.sizes import Sizes
from deeplinear._experiment.steps import Gradient, Steps
from spectra import make


def digits(standardised: bool) -> tuple[np.ndarray, np.ndarray]:
    """Pixels of handwritten digits, and whether the digit is odd; 61 of 64 pixels vary."""
    x, digit = load_digits(return_X_y=True)
    spread = x.std(axis=0)
    return (x / np.where(spread > 0, spread, 1.0) if standardised else x / 16), 2.0 * (digit % 2) - 1


def relative_error(problem: dl.Problem, x: np.ndarray, y: np.ndarray, seeds: int) -> np.ndarray:
    """Deviation of the mean test loss from theory, shape (steps,)."""
    with one_blas_thread():
        return losses(problem, x, y, seeds).mean(axis=0) / dl.solve(problem).test_loss - 1


def losses(problem: dl.Problem, x: np.ndarray, y: np.ndarray, seeds: int) -> np.ndarray:
    """Test loss of one network per seed over the whole data set before each update, shape (seeds, steps).

    Means are subtracted. Samples and batches are rows drawn with replacement, so that each is an independent draw.
    """
    x, y = x - x.mean(axis=0), (y - y.mean(axis=0)).reshape(len(y), -1)
    return np.array([_train(problem, x, y, np.random.default_rng([seed, 11])) for seed in range(seeds)])


def _train(problem: dl.Problem, x: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    widths = tuple(round(width) for width in problem.network.widths)
    sizes = Sizes(x.shape[1], widths, 0, y.shape[1], dimension_free=True)
    network = FiniteNetwork.draw(rng, sizes, problem.network.gamma0)
    descent = Steps(problem.optimizer, network.weights, problem.steps)
    start = network.predictor(network.backward()[0]) if problem.network.centered else 0.0
    rows = _rows(problem.sampling, len(x), rng)
    curve = []
    for t in range(problem.steps):
        g = network.backward()
        predictor = network.predictor(g[0]) - start
        curve.append(np.sum((y - x @ predictor) ** 2) / len(x))
        seen, factor = next(rows)
        residual = factor * (y[seen] - x[seen] @ predictor)
        h = network.forward(x[seen].T @ residual / len(seen))
        descent.step(t, Gradient(network.gradients(h, g), lambda: network.squares(h, g)))  # noqa: B023
    return np.array(curve)


def _rows(sampling, count, rng):
    """Rows seen at each step, and the factor on their residuals."""
    if isinstance(sampling, dl.Population):
        while True:
            yield np.arange(count), 1.0
    if isinstance(sampling, dl.OnlineSGD):
        while True:
            yield rng.integers(count, size=round(sampling.batch)), 1.0
    seen = rng.integers(count, size=round(sampling.samples))
    (keep,) = sampling.keeps(1)
    while True:
        yield seen, (rng.random((len(seen), 1)) < keep) / keep


def main() -> None:
    """Measure the largest deviation over 150 steps of 128 networks of width 128."""
    for standardised, lr in ((False, 0.1), (True, 0.01)):
        x, y = digits(standardised)
        spectrum = dl.Spectrum.from_data(x, y)
        print("every pixel scaled to variance 1" if standardised else "pixels as they are")
        for regime, samples, batch in (
            ("population", 256, 32),
            ("online", 256, 32),
            ("online", 256, 8),
            ("multi-pass", 256, 32),
            ("full batch", 256, 32),
            ("full batch", 64, 32),
        ):
            problem = make(spectrum, regime, width=128.0, samples=samples, batch=batch, lr=lr, steps=150)
            with np.errstate(over="ignore", invalid="ignore"):
                error = relative_error(problem, x, y, 128)
            largest = error[np.abs(error).argmax()]
            print(f"  {problem.sampling}:", f"{largest:+.1%}" if np.isfinite(largest) else "overflow", flush=True)


if __name__ == "__main__":
    main()
