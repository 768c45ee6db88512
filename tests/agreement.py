"""What it means that two solvers agree, or theory and networks."""

import numpy as np

import deeplinear as dl
from deeplinear._core.threads import one_blas_thread
from deeplinear._solvers.reference import reference

OBSERVABLES = (
    "test_loss",
    "train_loss",
    "feature_correlation",
    "gradient_correlation",
    "error_correlation",
    "residual_correlation",
)


def assert_close(actual, expected, tolerance=1e-10):
    assert np.isfinite(expected).all()  # or anything would be close to it
    scale = max(1.0, np.abs(expected).max())
    assert np.abs(actual - expected).max() <= tolerance * scale


def of_every_program(solution):
    """What a solution of any program knows, under the names that the reference gives it."""
    parts = solution.decomposition
    return {
        "test_loss": solution.test_loss,
        "train_loss": solution.train_loss,
        "bias": parts.bias,
        "width": parts.width,
        "data": parts.data,
        "Cv": solution.error_correlation,
        "CDelta": solution.residual_correlation,
        "Ch": solution.feature_correlation,
        "Cg": solution.gradient_correlation,
        "Rhr": solution.feature_response,
        "Rgu": solution.gradient_response,
    }


def under_names_of_the_reference(solution):
    """What a solution without phases or update rules of its own knows, under the names that the reference gives it."""
    variance = solution.variance
    return of_every_program(solution) | {
        "Rvu": solution.error_response,
        "RDelta": solution.residual_response,
        "overlap_data": variance.bias + variance.data,
        "overlap_init": variance.bias + variance.initialization,
    }


def assert_agrees_with_the_reference(problem):
    """Everything that both solvers know is equal to rounding."""
    with one_blas_thread():
        expected, solution = reference(problem), dl.solve(problem)
    for name, actual in under_names_of_the_reference(solution).items():
        assert_close(actual, expected[name])
    assert_close(sum(vars(solution.variance).values()), solution.test_loss)


def z_scores(values, theory):
    """Deviation of the mean over seeds in standard errors; zero where both are equal to rounding."""
    mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
    settled = np.isclose(mean, theory, rtol=1e-9, atol=1e-12)
    return np.where(settled, 0.0, (mean - theory) / np.where(settled, 1.0, error))


def assert_networks_agree(problem, dim, seeds, *, rms, relative):
    """Losses within 4 standard errors and a fraction, every observable within so many in root mean square."""
    theory, experiment = dl.solve(problem), dl.simulate(problem, dim, seeds)
    for name in OBSERVABLES:
        z = np.abs(z_scores(getattr(experiment, name), getattr(theory, name)))
        # Correlations are thousands of numbers: their largest deviation says little, its mean square much.
        if name.endswith("loss"):
            assert z.max() < 4.0, name
        assert np.sqrt((z**2).mean()) < rms, name
    assert np.abs(experiment.mean("test_loss") / theory.test_loss - 1).max() < relative


def true_error(solution, exact):
    """Largest relative error of the losses over all steps; of small ones, relative to the scale that is reported."""
    found, floor = solution.at(np.arange(exact.problem.steps)), solution.stats["error_floor"]
    return max(
        (np.abs(found[name].values - loss) / np.maximum(loss, floor * loss[0])).max()
        for name, loss in {"test_loss": exact.test_loss, "train_loss": exact.train_loss}.items()
    )
