"""``fit_runs``: fit the law to real training runs."""

from collections.abc import Sequence
from typing import Any

from deeplinear._core import checks
from deeplinear._core.refusal import Refusal
from deeplinear._runs.law import NORM, PLAIN, SEVERAL_PEAKS, Law
from deeplinear._runs.read import read_runs
from deeplinear._runs.resample import resample
from deeplinear._runs.result import RunsFit
from deeplinear._runs.run import FEWEST, Run
from deeplinear._runs.solve_law import Data, solve_law

LAWS = ("auto", "plain", "norm")

_SEVERAL = 1.1
"""Ratio of the largest to the least peak from which on the power of the rate is fitted too."""


def fit_runs(runs: Any, *, law: str = "auto", start: int | None = None, **reading: Any) -> RunsFit:
    """Fit the law of learning-rate schedules to training runs of one network, to predict other schedules.

    The law is that of a lazy network on power-law data: a power of the sum of all rates, plus the noise that recent
    rates leave. Three runs tell most if one holds its rate, one lets it drop at once, and one is a usual schedule.

    Parameters
    ----------
    runs
        A ``Run``, a table (dictionary or DataFrame with columns ``step``, ``loss`` and ``lr`` or the like), the path of
        a CSV file, of a TensorBoard event file or of a folder of them; or a list of these. A table may hold several
        runs: in columns such as ``run 1 - loss``, as Weights & Biases exports them, or in rows that a column ``run`` or
        ``seed`` tells apart. Rows without a loss only tell the rate.
    law
        ``"plain"`` is the theory for gradient descent; ``"norm"`` follows the norm of the weights as well, which Adam
        and weight decay move, and is usually better for these. ``"auto"`` takes the one that predicts each run better
        from the others; of a single run, the one that fits better.
    start
        Losses before this step are not fitted; by default those in the warm-up.
    reading
        For tables and files: names of columns as ``steps``, ``loss`` and ``lr`` (or rates as ``Run`` takes them), where
        they are called otherwise; ``warmup``, ``smoothing`` and ``total`` of ``Run``.

    Returns
    -------
    RunsFit
        Parameters, residuals, errors of runs that were left out, and what it predicts.

    Raises
    ------
    ValueError
        If runs are not rising steps with finite losses and as many rates, or a loss does not fall.

    Examples
    --------
    >>> import numpy as np
    >>> import deeplinear as dl
    >>> steps = np.arange(100, 2001, 20)
    >>> rates = np.full(2000, 0.1), np.where(np.arange(2000) < 1400, 0.1, 0.01)
    >>> losses = 2 + 30 / steps**0.5 + 0.2, 2 + 30 / steps**0.5 + np.where(steps < 1400, 0.2, 0.05)
    >>> fit = dl.fit_runs([dl.Run(steps, loss, lr) for loss, lr in zip(losses, rates)], law="plain")
    >>> bool(fit.predict(dl.schedules.wsd(0.1), 3000) < losses[0][-1])
    True
    """
    found = _read(runs, reading)
    law = checks.word("law", law, LAWS)
    if start is not None:
        start = checks.whole("start", start, at_least=0)
    _check(found, start)
    data = Data.of(found, start)
    peaks = [run.peak for run in found]
    with_norm = SEVERAL_PEAKS if max(peaks) > _SEVERAL * min(peaks) else NORM
    forms = {"plain": PLAIN, "norm": with_norm}
    fits = {name: _fitted(form, data, found) for name, form in forms.items() if law in ("auto", name)}
    best = min(fits, key=lambda name: fits[name].score)
    return fits[best]


def _fitted(form: Law, data: Data, runs: Sequence[Run]) -> RunsFit:
    fitted = solve_law(form, data)
    return RunsFit(tuple(runs), "plain" if form is PLAIN else "norm", fitted, data, resample(data, fitted))


def _read(runs: Any, reading: dict[str, Any]) -> list[Run]:
    """Return runs from any of the forms that they may have, with names that differ."""
    given = runs if isinstance(runs, list | tuple) else [runs]
    found: list[Run] = []
    for each in given:
        found += [each] if isinstance(each, Run) else read_runs(each, **reading)
    if not found:
        raise Refusal("runs", runs, "at least one run")
    names: dict[str, int] = {}
    for index, run in enumerate(found):
        names[run.name] = names.get(run.name, 0) + 1
        if names[run.name] > 1:
            found[index] = run.renamed(f"{run.name} {names[run.name]}")
    return found


def _check(runs: Sequence[Run], start: int | None) -> None:
    for run in runs:
        first = run.rises if start is None else start
        kept = run.loss[run.steps - 0.5 * run.smoothing >= first]
        if len(kept) < FEWEST:
            text = f"{run.name} has {len(kept)} losses from step {first} on, where the fit starts; it needs {FEWEST}"
            raise Refusal("runs", len(kept), f"at least {FEWEST} losses", text=text)
        part = max(len(kept) // 10, 2)
        if not kept[-part:].mean() < kept[:part].mean():
            ends = f"from {kept[:part].mean():.3g} to {kept[-part:].mean():.3g}"
            text = (
                f"the loss of {run.name} does not fall, {ends}; the law is for training that works: leave "
                f"this run out, or the part where it diverges"
            )
            raise Refusal("runs", run.name, "a run whose loss falls", text=text)
