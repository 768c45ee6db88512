"""The slow reference with as many digits as one likes, for problems in which double precision runs out of them."""

from types import SimpleNamespace

import mpmath
import numpy as np
import pytest

from deeplinear._problem.edit import replace_unchecked
from deeplinear._solvers import reference as _reference


def many_digits(problem, digits):
    """What ``reference`` returns, computed with so many digits and then rounded.

    The reference takes its arrays and inverses from NumPy. Here they hold and make numbers of mpmath, the richness and
    the weight decay, which alone may be tiny, being such numbers; all else follows from them.
    """
    with mpmath.workdps(digits), pytest.MonkeyPatch.context() as patch:
        patch.setattr(_reference, "np", _Numbers())
        exact = {name: mpmath.mpf(value) for name, value in _small(problem).items()}
        answer = _reference.reference(replace_unchecked(problem, exact))
        return {name: np.array(value, dtype=float) for name, value in answer.items()}


def _small(problem):
    return {"richness": problem.network.richness, "weight_decay": problem.optimizer.weight_decay}


class _Numbers:
    """NumPy, but for what makes floats of numbers of mpmath."""

    linalg = SimpleNamespace(inv=lambda matrix: np.array(mpmath.inverse(mpmath.matrix(matrix.tolist())).tolist()))

    def zeros(self, shape):
        return np.zeros(shape, dtype=object)

    def __getattr__(self, name):
        return getattr(np, name)
