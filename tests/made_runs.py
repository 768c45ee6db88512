"""Runs whose losses follow the law exactly, with known parameters."""

import numpy as np

import deeplinear as dl
from deeplinear._runs.law import NORM, PLAIN, Law
from deeplinear._runs.path import Paths
from deeplinear._runs.solve_law import Fitted

PEAK, WARMUP = 3e-4, 200
LINEAR = np.array([2.5, 6.0, 2.0])
SHAPES = {"plain": np.array([0.5, 30.0, 1.5]), "norm": np.array([0.5, 30.0])}
LAWS: dict[str, Law] = {"plain": PLAIN, "norm": NORM}


def truth(law: str = "norm") -> Fitted:
    """Return the law with its parameters."""
    return Fitted(LAWS[law], PEAK, LINEAR, SHAPES[law])


def losses(rates: np.ndarray, steps: np.ndarray, law: str = "norm") -> np.ndarray:
    """Return losses at some steps, followed in stretches of four steps at most."""
    fine = np.unique(np.concatenate([np.arange(0, steps[-1], 4), steps]))
    return truth(law).losses(Paths.of([rates], [fine]))[0][np.searchsorted(fine, steps)]


def made(
    schedule: dl.schedules.Schedule,
    steps: int = 8000,
    law: str = "norm",
    every: int = 80,
    first: int = 240,
    **more: object,
) -> dl.Run:
    """Return a run that logs every so many steps, with the scatter ``noise``."""
    at = np.arange(first, steps + 1, every)
    rates = schedule.values(steps)
    noise = float(more.pop("noise", 0.0))  # type: ignore[arg-type]
    scatter = noise * np.random.default_rng(0).normal(size=len(at))
    return dl.Run(at, losses(rates, at, law) + scatter, rates, name=schedule.shape, **more)  # type: ignore[arg-type]


def three(law: str = "norm", **more: object) -> list[dl.Run]:
    """Return a constant rate, one that drops, and a cosine."""
    share = WARMUP / 8000
    kinds = (
        dl.schedules.constant(PEAK, warmup=share),
        dl.schedules.piecewise(PEAK, [0.6], [0.2], warmup=share),
        dl.schedules.cosine(PEAK, warmup=share, end=0.1),
    )
    return [made(kind, law=law, **more) for kind in kinds]  # type: ignore[arg-type]
