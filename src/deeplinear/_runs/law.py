"""The law of a lazy network on power-law data, whose learning rate changes, and its derivatives.

With the rate eta at every step, v the squared norm of the weights in units of its first value, and

    dv/dt = -2 kappa eta v + sigma eta^2 ,      h = (eta / (ref sqrt(v)))^p ,      dtau = h dt ,

the loss is

    L = L0 + A M(b, c tau) + N int_0^tau M(q, c (tau - tau')) h(tau') dtau' .

``PLAIN`` has v = 1 and p = 1: this is the theory for gradient descent, where b is the source of the data,
q = 2 - 1/capacity, and N goes with 1/batch. ``NORM`` is for Adam with weight decay, whose steps have a size that does
not depend on the gradient: what counts is the step relative to the weights. It has q = 1.5, and p = 1 unless several
peak rates tell more; kappa and sigma are constants. Steps count in thousands, so that c is of order one.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._runs.path import Paths
from deeplinear._time.decays import RATES, left_behind, mode_weights

Array = NDArray[np.float64]

THOUSAND = 1000.0


@dataclass(frozen=True)
class Law:
    """One form of the law.

    Attributes
    ----------
    shape
        Names of the parameters that enter nonlinearly and are fitted; the others have their usual values.
    decay, growth
        kappa and sigma; zero where the norm of the weights plays no part.
    """

    shape: tuple[str, ...]
    decay: float = 0.0
    growth: float = 0.0

    def values(self, shape: Array) -> dict[str, float]:
        """All nonlinear parameters."""
        return dict(_USUAL) | dict(zip(self.shape, shape.tolist(), strict=True))

    def columns(self, paths: Paths, reference: float, shape: Array) -> list[Array]:
        """Return what L0, A and N multiply in each run, shape (steps, 3): 1, M and the integral."""
        at = self.values(shape)
        steps, _ = self._steps(paths, reference, at["p"])
        widths = paths.lengths / THOUSAND * steps * at["c"]
        x = np.cumsum(widths, axis=0)
        (left,) = left_behind(widths, steps)
        integral = left @ mode_weights(at["q"])[0] / at["c"]
        return _gathered(paths, np.ones_like(x), np.exp(-x[..., None] * RATES) @ mode_weights(at["b"])[0], integral)

    def columns_and_slopes(self, paths: Paths, reference: float, shape: Array) -> tuple[list[Array], list[list[Array]]]:
        """Return ``columns``, and for each run its derivative with respect to each parameter of ``shape``."""
        at = self.values(shape)
        steps, slope = self._steps(paths, reference, at["p"])
        lengths = paths.lengths / THOUSAND
        widths = [lengths * steps * at["c"]]
        sources = [steps]
        kinds = [name for name in self.shape if name in ("c", "p")]
        for name in kinds:
            change = slope if name == "p" else np.zeros_like(steps)
            sources.append(change)
            widths.append(lengths * (at["c"] * change if name == "p" else steps))
        x = np.cumsum(widths[0], axis=0)
        left = left_behind(widths[0], sources[0], *zip(widths[1:], sources[1:], strict=True))
        (kept, kept_slope), (noise, noise_slope) = mode_weights(at["b"]), mode_weights(at["q"])
        decays = np.exp(-x[..., None] * RATES)
        first, second = decays @ kept, left[0] @ noise / at["c"]
        downward = -(decays * RATES) @ kept
        slopes = {"b": (decays @ kept_slope, None), "q": (None, left[0] @ noise_slope / at["c"])}
        for index, name in enumerate(kinds, start=1):
            integral = left[index] @ noise / at["c"] - (second / at["c"] if name == "c" else 0.0)
            slopes[name] = (downward * np.cumsum(widths[index], axis=0), integral)
        columns = _gathered(paths, np.ones_like(x), first, second)
        parts = [_gathered(paths, None, *slopes[name]) for name in self.shape]
        return columns, [list(each) for each in zip(*parts, strict=True)]

    def _steps(self, paths: Paths, reference: float, power: float) -> tuple[Array, Array]:
        """Return h in each stretch, and its derivative with respect to p."""
        relative = paths.rates / reference
        if self.growth or self.decay:
            relative = relative / np.sqrt(self.squared_norm(paths))
        logs = np.log(relative, out=np.zeros_like(relative), where=relative > 0)
        steps = np.where(relative > 0, np.exp(power * logs), 0.0)
        return steps, steps * logs

    def squared_norm(self, paths: Paths) -> Array:
        """Return v in the middle of each stretch."""
        fall = 2.0 * self.decay * paths.rates * paths.lengths
        rise = self.growth * paths.squares * paths.lengths
        kept, half = np.exp(-fall), np.exp(-0.5 * fall)
        gained, gained_half = rise * _mean_decay(fall), 0.5 * rise * _mean_decay(0.5 * fall)
        state, middle = np.ones(fall.shape[1]), np.empty_like(fall)
        for index in range(len(fall)):
            middle[index] = half[index] * state + gained_half[index]
            state = kept[index] * state + gained[index]
        return middle


_USUAL = {"b": 0.5, "c": 1.0, "q": 1.5, "p": 1.0}

PLAIN = Law(("b", "c", "q"))

NORM = Law(("b", "c"), decay=0.07e-3 / 3e-4, growth=0.3e-3 / 3e-4**2)
"""Rounded from fits to language models of 25 and 100 million weights whose peak rate was 3e-4."""

SEVERAL_PEAKS = Law(("b", "c", "p"), decay=NORM.decay, growth=NORM.growth)


def _mean_decay(x: Array) -> Array:
    """(1 - e^-x) / x."""
    return np.where(x > 0, -np.expm1(-x) / np.where(x > 0, x, 1.0), 1.0)


def _gathered(paths: Paths, *columns: Array | None) -> list[Array]:
    """Put columns together, at the steps that were asked for; columns are one at the start, or zero."""
    size = next(each for each in columns if each is not None).shape
    start = [1.0, 1.0, 0.0] if columns[0] is not None else [0.0, 0.0, 0.0]
    whole = np.empty((size[0] + 1, size[1], 3))
    whole[0] = start
    for index, each in enumerate(columns):
        whole[1:, :, index] = 0.0 if each is None else each
    found = [whole[places + 1, run] for run, places in enumerate(paths.places)]
    return [each if each.ndim == 2 else each.mean(axis=1) for each in found]
