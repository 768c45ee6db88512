"""A problem in a few words, for titles and tables."""

from collections.abc import Iterable, Iterator, Sequence, Set
from typing import Any, NamedTuple

from deeplinear._core.about import Described, described
from deeplinear._problem.edit import find_field
from deeplinear._problem.phase import ABOUT_OPTIMIZER, Phase
from deeplinear._problem.problem import Problem
from deeplinear._rules.layers import Layers
from deeplinear._rules.schedules import Schedule


class Word(NamedTuple):
    """A few words on one field, which is named with its path; that of a whole part, for the name of its kind."""

    field: str
    text: str


def in_words(problem: Problem, without: Iterable[str] = ()) -> list[str]:
    """Describe network, data with sampling, optimizer, and phases if there are any, each in a few words.

    Parameters
    ----------
    problem
        What is described.
    without
        Names of fields that are left out, such as those that a picture shows.

    Examples
    --------
    >>> import deeplinear as dl
    >>> network, optimizer = dl.MLP(depth=3, width=0.5), dl.GradientDescent(lr=0.05, momentum=0.9)
    >>> problem = dl.Problem(network, dl.Isotropic(0.3), dl.FullBatch(2.0), optimizer, steps=10)
    >>> for words in in_words(problem):
    ...     print(words)
    MLP, depth 3, width 0.5, richness 1, muP
    full batch, samples 2, noise 0.3
    lr 0.05, momentum 0.9, 10 steps
    >>> in_words(problem, without=["width", "lr"])[::2]
    ['MLP, depth 3, richness 1, muP', 'momentum 0.9, 10 steps']
    """
    left_out = {str(find_field(problem, name)) for name in without}
    return _joined([[word for word in line if word.field not in left_out] for line in _words(problem)])


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
    every = [_words(problem) for problem in problems]
    words = [[word for line in lines for word in line] for lines in every]
    common = set(words[0]).intersection(*words)
    own = [[word.text for word in each if word not in common] for each in words]
    shared = [[word for word in line if word in common] for line in every[0]]
    return _joined(shared), [_called(index, own) for index in range(len(own))]


def _joined(lines: Iterable[Sequence[Word]]) -> list[str]:
    return [", ".join(word.text for word in line) for line in lines if line]


def _words(problem: Problem) -> list[list[Word]]:
    """Words on network, data with sampling, optimizer, and phases if there are any."""
    data = problem.data
    outputs = [Word("data.outputs", f"{data.outputs} outputs")] if data.outputs > 1 else []
    usual = [Word("data", data.kind.title)] if data.kind.title else []
    return [
        [Word("network", problem.network.kind.title), *_fields(problem.network, "network")],
        [*_sampling(problem.sampling, "sampling"), *usual, *_fields(data, "data"), *outputs],
        [*_rule(problem.optimizer, "optimizer"), Word("steps", f"{problem.steps} steps")],
        _phases(problem.phases),
    ]


def _called(index: int, own: Sequence[Sequence[str]]) -> str:
    """Name one of several by its own words, or by those of another that it lacks, or else by its number."""
    others = [words for number, words in enumerate(own) if number != index]
    if own[index]:
        return ", ".join(own[index])
    return f"without {', '.join(others[0])}" if len(others) == 1 and others[0] else f"theory {index + 1}"


def _sampling(sampling: Any, path: str) -> list[Word]:
    return [Word(path, sampling.kind.title), *_fields(sampling, path)]


def _rule(optimizer: Any, path: str) -> list[Word]:
    """An update rule, which has its name unless it is the usual one, without words that are its defaults."""
    name = [] if optimizer.kind == ABOUT_OPTIMIZER.start.kind else [Word(path, optimizer.kind.title)]
    words = [each for each in described(optimizer) if each.about.form == "choice"]
    plain = {each.name for each in words if getattr(optimizer, each.name) == each.default}
    return [*name, *_fields(optimizer, path, plain | {"other"}), *_other(optimizer.other, f"{path}.other")]


def _other(optimizer: Any, path: str) -> list[Word]:
    if optimizer is None:
        return []
    first, *rest = _rule(optimizer, path)
    return [Word(first.field, f"other weights {first.text}"), *rest]


def _phases(phases: Sequence[Phase]) -> list[Word]:
    """All phases in turn; the first word of each, its steps, is one with what stands before it."""
    words: list[Word] = []
    for number, phase in enumerate(phases):
        before = f"{words.pop().text}; " if words else f"{len(phases)} phases: "
        first, *rest = _phase(phase, f"phases.{number}")
        words += [Word("phases", before + first.text), *rest]
    return words


def _phase(phase: Phase, path: str) -> list[Word]:
    words = [Word(f"{path}.steps", f"{phase.steps} steps")]
    if phase.target_overlap != 1.0:
        words.append(Word(f"{path}.target_overlap", f"target overlap {phase.target_overlap:g}"))
    if not phase.new_samples:
        words.append(Word(f"{path}.new_samples", "samples kept"))
    if phase.sampling:
        words += _sampling(phase.sampling, f"{path}.sampling")
    if phase.noise is not None:
        words.append(Word(f"{path}.noise", f"noise {phase.noise:g}"))
    return words + (_rule(phase.optimizer, f"{path}.optimizer") if phase.optimizer else [])


def _fields(part: Any, path: str, left_out: Set[str] = frozenset()) -> Iterator[Word]:
    """Fields of a part; options that are off or absent, and matrices, are left out."""
    for each in described(part):
        value = getattr(part, each.name)
        off = value is None or value is False or (value == 0 and each.default == 0)
        if not off and each.name not in left_out:
            yield from (Word(f"{path}.{each.name}", text) for text in _field(each, value))


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
