"""Problems and their parts that many tests start from."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import pytest

import deeplinear as dl

SAMPLINGS = [
    dl.Population(),
    dl.FullBatch(samples=1.5),
    dl.OnlineSGD(batch=0.4),
    dl.MultiPassSGD(samples=1.5, batch=0.5),
]
"""One of each sampling rule."""


def checkerboard(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
    """All pairs of two lists, for ``parametrize``; every other pair is left to ``make check-slow``.

    Each value of either list is in some quick pair, if both have two or more.
    """
    second = list(second)
    return [
        pytest.param(one, other, marks=[pytest.mark.slow] * ((row + column) % 2))
        for row, one in enumerate(first)
        for column, other in enumerate(second)
    ]


def some_slow(values: Iterable[Any], *slow: Any) -> list[Any]:
    """Values for ``parametrize``, of which some are left to ``make check-slow``."""
    values = list(values)
    assert all(each in values for each in slow)
    return [pytest.param(each, marks=[pytest.mark.slow] * (each in slow)) for each in values]


def maker(*names: str, **defaults: Any) -> Callable[..., dl.Problem]:
    """Return a function that makes problems: of what it is given, by position or by name, and of these defaults.

    Parameters
    ----------
    *names
        What its positional arguments are, in order.
    **defaults
        Whole parts (``network``, ``data``, ``sampling``, ``optimizer``), fields of parts (``depth``, ``noise``, ``lr``,
        ``gram`` for the target's Gram matrix), ``steps`` and ``phases``. ``network`` may be a class, made from the
        fields. Fields of a part that is given whole are not looked at, and None stands for the default.
    """

    def make(*values: Any, **changes: Any) -> dl.Problem:
        given = dict(zip(names[: len(values)], values, strict=True)) | changes
        return _problem(**(defaults | {name: value for name, value in given.items() if value is not None}))

    return make


def _problem(
    *,
    sampling: Any,
    steps: int,
    network: Any = dl.MLP,
    data: Any = None,
    optimizer: Any = None,
    phases: Any = (),
    **values: Any,
) -> dl.Problem:
    of_network = {name: values.pop(name) for name in list(values) if name in _NETWORK}
    of_data = {name: values.pop(name) for name in list(values) if name in _DATA}
    return dl.Problem(
        network(**of_network) if isinstance(network, type) else network,
        dl.Isotropic(of_data.get("noise", 0.0), of_data.get("gram")) if data is None else data,
        sampling,
        dl.GradientDescent(**values) if optimizer is None else optimizer,
        steps,
        phases,
    )


_NETWORK = {field.name for kind in (dl.MLP, dl.ResNet) for field in fields(kind)}
_DATA = {"noise", "gram"}


smooth_problem = maker(
    "sampling", "steps", "lr", depth=2, width=0.8, noise=0.3, sampling=dl.FullBatch(1.5), lr=0.01, steps=300
)
"""Training that panels follow with few nodes."""
