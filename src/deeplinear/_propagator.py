"""What an optimiser does to a weight: any rule linear in past gradients is two response functions.

    W(t) = d(t) W(0) + sum_{s<t} a(t, s) G(s)

with G(s) the gradient outer product at step s. Plain gradient descent has d = 1, a(t, s) = lr_s.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def propagator(
    rates: NDArray[Any], momentum: Any = 0.0, weight_decay: Any = 0.0, nesterov: bool = False
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Responses of the weight to its initial value and to a unit gradient at each step.

    Parameters
    ----------
    rates
        Learning rate at each step, shape (T,); complex values pass through.
    momentum, weight_decay, nesterov
        As in ``GradientDescent``.

    Returns
    -------
    d
        Shape (T,).
    a
        Shape (T, T), strictly lower triangular.

    Examples
    --------
    >>> d, a = propagator(np.array([0.1, 0.2, 0.3]))
    >>> d
    array([1., 1., 1.])
    >>> a
    array([[0. , 0. , 0. ],
           [0.1, 0. , 0. ],
           [0.1, 0.2, 0. ]])
    """
    steps = len(rates)
    # Column 0 is the response to W(0) = 1, column 1 + s the response to a unit gradient at step s.
    kind = np.result_type(rates, momentum, weight_decay, float)
    weight, velocity = np.zeros(1 + steps, kind), np.zeros(1 + steps, kind)
    weight[0] = 1.0
    history = np.empty((steps, 1 + steps), kind)
    for t in range(steps):
        history[t] = weight
        force = -weight_decay * weight
        force[1 + t] += 1.0
        velocity = momentum * velocity + force
        weight = weight + rates[t] * (momentum * velocity + force if nesterov else velocity)
    return history[:, 0], history[:, 1:]
