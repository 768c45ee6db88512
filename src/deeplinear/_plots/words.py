"""A problem in a few words, for titles and tables."""

from collections.abc import Iterator, Sequence, Set
from typing import Any

from deeplinear._core.about import Described, described
from deeplinear._problem.layers import Layers
from deeplinear._problem.phase import ABOUT_OPTIMIZER, Phase
from deeplinear._problem.problem import Problem
from deeplinear._problem.schedules import Schedule


def in_words(problem: Problem) -> list[str]:
    """Describe network, data with sampling, optimizer, and phases if there are any, each in a few words.

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
    data = problem.data
    outputs = [f"{data.outputs} outputs"] if data.outputs > 1 else []
    usual = [data.kind.title] if data.kind.title else []
    phases = [f"{len(problem.phases)} phases: {'; '.join(map(_phase, problem.phases))}"] if problem.phases else []
    return [
        ", ".join([problem.network.kind.title, *_fields(problem.network)]),
        ", ".join([_sampling(problem.sampling), *usual, *_fields(data), *outputs]),
        ", ".join([_rule(problem.optimizer), f"{problem.steps} steps"]),
        *phases,
    ]


def told_apart(problems: Sequence[Problem]) -> tuple[list[str], list[str]]:
    """Return what several problems share, as ``in_words`` has it, and what each of them alone is called by.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=0.5), dl.GradientDescent(lr=0.05)
    >>> problem = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), optimizer, steps=10)
    >>> told_apart([problem, problem.replace(momentum=0.9)])[1]
    ['without momentum 0.9', 'momentum 0.9']
    """
    every = [[line.split(", ") for line in in_words(problem)] for problem in problems]
    words = [[word for line in lines for word in line] for lines in every]
    common = set(words[0]).intersection(*words)
    own = [[word for word in each if word not in common] for each in words]
    shared = [", ".join(word for word in line if word in common) for line in every[0]]
    return [line for line in shared if line], [_called(index, own) for index in range(len(own))]


def _called(index: int, own: Sequence[Sequence[str]]) -> str:
    """Name one of several by its own words, or by those of another that it lacks, or else by its number."""
    others = [words for number, words in enumerate(own) if number != index]
    if own[index]:
        return ", ".join(own[index])
    return f"without {', '.join(others[0])}" if len(others) == 1 and others[0] else f"theory {index + 1}"


def _sampling(sampling: Any) -> str:
    return ", ".join([sampling.kind.title, *_fields(sampling)])


def _rule(optimizer: Any) -> str:
    """An update rule, which has its name unless it is the usual one, without words that are its defaults."""
    name = [] if optimizer.kind == ABOUT_OPTIMIZER.start.kind else [optimizer.kind.title]
    words = [each for each in described(optimizer) if each.about.form == "choice"]
    plain = {each.name for each in words if getattr(optimizer, each.name) == each.default}
    rest = [] if optimizer.other is None else [f"other weights {_rule(optimizer.other)}"]
    return ", ".join([*name, *_fields(optimizer, plain | {"other"}), *rest])


def _phase(phase: Phase) -> str:
    words = [f"{phase.steps} steps"]
    words += [f"target overlap {phase.target_overlap:g}"] if phase.target_overlap != 1.0 else []
    words += [] if phase.new_samples else ["samples kept"]
    words += [_sampling(phase.sampling)] if phase.sampling else []
    words += [f"noise {phase.noise:g}"] if phase.noise is not None else []
    return ", ".join(words + ([_rule(phase.optimizer)] if phase.optimizer else []))


def _fields(part: Any, left_out: Set[str] = frozenset()) -> Iterator[str]:
    """Fields of a part; options that are off or absent, and matrices, are left out."""
    for each in described(part):
        value = getattr(part, each.name)
        off = value is None or value is False or (value == 0 and each.default == 0)
        if not off and each.name not in left_out:
            yield from _field(each, value)


def _field(each: Described, value: Any) -> Iterator[str]:
    name = each.name.replace("_", " ")
    if value is True:
        yield name
    elif isinstance(value, str):
        yield f"{name} {value}" if name in ("per", "clip by") else each.about.choices.get(value, f"{value} {name}")
    elif isinstance(value, Layers):
        changed = [f"{layer} {factor:g}" for layer, factor in value.to_dict().items() if factor != 1.0]
        yield f"{name} {' '.join(changed) or 1}"
    elif isinstance(value, Schedule):
        yield f"{name} {value.peak:g} {value.shape}" + (" after warm-up" if value.warmup else "")
    elif isinstance(value, tuple):
        if not isinstance(value[0], tuple):
            yield f"{name} {_short(value)}"
    elif isinstance(value, float | int | complex):
        yield f"{name} {value:g}"
    else:
        yield f"{name} schedule"


def _short(values: tuple[float, ...]) -> str:
    if len(values) > 5:
        return f"{values[0]:g} .. {values[-1]:g}"
    return "/".join(f"{value:g}" for value in values)
