"""Pictures of real runs: every run, the law, residuals, and what a schedule gains."""

from functools import cache

import matplotlib.pyplot as plt
import numpy as np

import deeplinear as dl
from made_runs import PEAK, three


@cache
def fit() -> dl.RunsFit:
    return dl.fit_runs(three(), law="norm")


def test_a_fit_shows_runs_rates_and_residuals() -> None:
    figure = fit().plot()
    losses, rates, rest = figure.axes
    labels = [text.get_text() for text in losses.get_legend().get_texts()]
    assert labels == ["constant", "piecewise", "cosine", "law"]
    assert max(line.get_ydata().max() for line in rates.get_lines()) == PEAK
    assert len(rest.get_lines()) == 4  # and the line at zero
    plt.close(figure)


def test_only_losses_are_drawn_into_given_axes() -> None:
    figure, ax = plt.subplots()
    assert fit().plot(ax=ax) is figure
    assert len(ax.get_lines()) == 6
    plt.close(figure)


def test_a_forecast_has_its_band() -> None:
    found = fit().forecast(dl.schedules.wsd(PEAK), np.arange(1000, 9001, 1000))
    (ax,) = found.plot().axes
    assert ax.get_lines()[0].get_ydata().tolist() == found.loss.tolist()
    assert ax.collections[0].get_paths()[0].vertices[:, 1].max() == found.high.max()


def test_a_schedule_shows_what_others_cost() -> None:
    best = fit().best_schedule(3000, "wsd")
    rates, others = best.plot().axes
    assert rates.get_lines()[0].get_ydata().max() == PEAK
    assert others.get_yticklabels()[0].get_text() == "wsd"
    assert len(best.plot(ax=plt.figure().add_subplot()).axes) == 1
    plt.close("all")
