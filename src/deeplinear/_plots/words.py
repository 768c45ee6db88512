"""A problem in a few words, for titles and tables."""

from collections.abc import Iterator
from typing import Any

from deeplinear._core.about import described
from deeplinear._problem.problem import Problem


def in_words(problem: Problem) -> list[str]:
    """Describe network, data with sampling, and optimizer, each in a few words.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=0.5), dl.GradientDescent(lr=0.05, momentum=0.9)
    >>> for words in in_words(dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), optimizer, steps=10)):
    ...     print(words)
    MLP, depth 3, width 0.5, richness 1, muP
    full batch, samples 2, noise 0.3
    lr 0.05, momentum 0.9, 10 steps
    """
    sampling, data = problem.sampling, problem.data
    outputs = [f"{data.outputs} outputs"] if data.outputs > 1 else []
    usual = [data.kind.title] if data.kind.title else []
    return [
        ", ".join([problem.network.kind.title, *_fields_in_words(problem.network)]),
        ", ".join([sampling.kind.title, *_fields_in_words(sampling), *usual, *_fields_in_words(data), *outputs]),
        ", ".join([*_fields_in_words(problem.optimizer), f"{problem.steps} steps"]),
    ]


def _fields_in_words(part: Any) -> Iterator[str]:
    """Fields of a part; options that are off or absent, and matrices, are left out."""
    for each in described(part):
        value, name = getattr(part, each.name), each.name.replace("_", " ")
        if value is None or value is False or (value == 0 and each.default == 0):
            continue
        if value is True:
            yield name
        elif isinstance(value, str):
            yield each.about.choices.get(value, f"{value} {name}")
        elif isinstance(value, tuple):
            if not isinstance(value[0], tuple):
                yield f"{name} {_short(value)}"
        elif isinstance(value, float | int | complex):
            yield f"{name} {value:g}"
        else:
            yield (
                f"{name} {getattr(value, 'shape', 'schedule')}" if callable(value) or hasattr(value, "shape") else name
            )


def _short(values: tuple[float, ...]) -> str:
    if len(values) > 5:
        return f"{values[0]:g} .. {values[-1]:g}"
    return "/".join(f"{value:g}" for value in values)
