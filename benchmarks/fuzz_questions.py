"""Every question of ``make fuzz``, with extreme arguments: an answer in words and numbers, or a sentence."""

import hashlib
import math
import re
import signal
import time
import traceback
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.refusal import Refusal
from fuzz_problems import Draw
from measure import Peak

Arguments = dict[str, Any]

_NUMBERS = [0, -1, 1, 2, 0.5, 1e-300, 1e300, 1e30, -1e200, 1e-7, 10**400, 10**9, math.nan, math.inf, -math.inf, 2**63]
_FOREIGN = [True, "a", "", None, [], {}, b"lr", 1 + 1j, Fraction(1, 3), np.float32(2.0), np.zeros((2, 2)), object()]
_LISTS = [range(10**8), np.linspace(0.1, 1.0, 10**6), [1.0] * 10**5, [math.nan], [[1.0, 2.0]], [1, 1], [2, 1], "ab"]
_MORE_SECONDS, _MORE_BYTES = 2.0, 300e6
"""What an extreme argument may cost beyond ten times the same question without it."""
_MOST_SECONDS = 60.0
_SPOILT = re.compile(r"\b(nan|None)\b")
_EXPLAINED = re.compile(r"not known|diverge|blows? up|cannot|unknown|no |rounding|beyond", re.IGNORECASE)


class Spoilt(AssertionError):
    """A question was not answered in time."""


def _anything(draw: Draw) -> Any:
    pool = draw.among(_NUMBERS, _NUMBERS, _FOREIGN, _LISTS)
    return pool[int(draw.rng.integers(len(pool)))]


def _numbers(draw: Draw, *usual: Any) -> list[Any]:
    """Return a list of usual values, one of which may be extreme."""
    values = list(usual)
    if draw.one_in(2):
        values[int(draw.rng.integers(len(values)))] = _NUMBERS[int(draw.rng.integers(len(_NUMBERS)))]
    return values


def _curves(draw: Draw, problem: dl.Problem) -> Any:
    flat = np.full(problem.steps, 0.5)
    curves = [flat, 0.0 * flat, 1e300 * flat, -flat, np.full(problem.steps, np.nan), flat[:1], np.zeros((0, 3)), 0.5]
    given = curves[int(draw.rng.integers(len(curves)))]
    return draw.among(given, {"test_loss": given}, {"step": np.arange(problem.steps), "loss": flat}, "missing.csv")


def _experiment(draw: Draw) -> Any:
    return draw.among(None, {"dim": 6, "seeds": 2, "workers": 1}, {"dim": 6}, {"dims": 6}, {"seeds": -1}, "a")


QUESTIONS: dict[str, tuple[Callable[..., Any], Arguments, Callable[[Draw, dl.Problem], Arguments]]] = {
    "optimal_lr": (
        dl.optimal_lr,
        {},
        lambda draw, problem: {"horizon": problem.steps - 1, "objective": draw.among("test", "train", "both")},
    ),
    "max_stable_lr": (dl.max_stable_lr, {}, lambda draw, problem: {"tolerance": draw.among(1e-3, 0.5, 1e-9)}),
    "optimal": (
        dl.optimal,
        {"over": ["lr"], "starts": 1},
        lambda draw, problem: {
            "over": draw.among(["lr"], ["momentum"], ["lr", "width"], ["depth"], "lr", [], ["lr", "lr"]),
            "bounds": draw.among(None, {"lr": _numbers(draw, 1e-3, 1.0)}, {"width": (1, 2)}, {"lr": 3}),
            "margin": draw.among(0.05, 0.0, 0.5),
            "starts": 1,
        },
    ),
    "optimal_schedule": (
        dl.optimal_schedule,
        {"knots": 2},
        lambda draw, problem: {"of": draw.among("lr", "batch", "noise"), "knots": draw.among(2, 3, None)},
    ),
    "plan": (
        dl.plan,
        {"compute": 20.0, "values": {"width": [0.5, 1.0]}},
        lambda draw, problem: {
            "compute": draw.among(20.0, 1e-3, 1e4),
            "over": draw.among(("width", "steps"), ("batch", "steps"), ("width",), "width"),
            "values": draw.among(None, {"width": _numbers(draw, 0.5, 1.0, 2.0)}, {"lr": [0.1]}, [0.5, 1.0]),
            "cost": draw.among(
                dl.training_cost, lambda p: math.nan, lambda p: -1, lambda p: "a", lambda p: 1e308, None
            ),
        },
    ),
    "critical_batch": (
        dl.critical_batch,
        {"loss": 0.9, "batches": [0.5, 1.0]},
        lambda draw, problem: {"loss": draw.among(0.5, 0.99), "batches": _numbers(draw, 0.25, 0.5, 1.0)},
    ),
    "transfer": (
        dl.transfer,
        {"over": "width", "values": [1.0, 2.0]},
        lambda draw, problem: {
            "over": draw.among("width", "steps", "depth", "noise", "batch", "nothing"),
            "values": _numbers(draw, 1.0, 2.0, 3.0),
            "lrs": draw.among(None, None, _numbers(draw, 0.1, 0.2)),
            "experiment": _experiment(draw),
        },
    ),
    "finite_size": (
        dl.finite_size,
        {"dim": 6, "pairs": 2, "workers": 1},
        lambda draw, problem: {"dim": 6, "pairs": 2, "record": draw.among("losses", "all", "none"), "workers": 1},
    ),
    "sharpness": (
        dl.sharpness,
        {},
        lambda draw, problem: {
            "at": draw.among(0, [0], [problem.steps - 1], problem.steps, -1),
            "vectors": draw.among(2, 16, 40),
            "operator": draw.among("hessian", "kernel", "all"),
            "start": draw.among("first", "now", "last"),
        },
    ),
    "landscape": (
        dl.landscape,
        {},
        lambda draw, problem: {
            "along": draw.among("line", "ema", "twins", "gradient", "sharpest", (0, 1), (1, 0, 2), dl.EMA(0.9)),
            "positions": draw.among(None, _numbers(draw, 0.0, 0.5, 1.0), _numbers(draw, -4.0, 4.0)),
        },
    ),
    "weight_spectra": (dl.weight_spectra, {}, lambda draw, problem: {"at": draw.among(0, [0], None, [-1])}),
    "coordinate_check": (
        dl.coordinate_check,
        {"widths": [0.5, 1.0, 2.0]},
        lambda draw, problem: {"widths": _numbers(draw, 0.5, 1.0, 2.0), "experiment": _experiment(draw)},
    ),
    "fit": (
        lambda problem, **arguments: dl.fit(arguments.pop("curves"), problem, **arguments),
        {"curves": np.linspace(1.0, 0.5, 6), "free": "lr"},
        lambda draw, problem: {
            "curves": _curves(draw, problem),
            "free": draw.among("lr", ["lr", "noise"], "width", "nothing", [], None),
            "dim": draw.among(None, 6, -1),
        },
    ),
    "measured": (
        lambda problem, **arguments: dl.measured(**arguments),
        {"test_loss": [1.0, 0.5]},
        lambda draw, problem: {"test_loss": _curves(draw, problem), "steps": draw.among(None, _numbers(draw, 0, 1))},
    ),
    "compare": (
        lambda problem, **arguments: dl.compare(dl.solve(problem), **arguments),
        {"experiment": np.linspace(1.0, 0.5, 6)},
        lambda draw, problem: {"experiment": _curves(draw, problem), "tolerance": draw.among(0.05, 1e-9, 10.0)},
    ),
    "fit_runs": (
        lambda problem, **arguments: dl.fit_runs([dl.Run(**arguments)]),
        {"steps": np.arange(0, 400, 10), "loss": 2.0 + 1.0 / np.sqrt(10.0 + np.arange(40)), "lr": 0.1},
        lambda draw, problem: {
            "steps": draw.among(np.arange(0, 400, 10), np.zeros(40), np.arange(3)),
            "loss": draw.among(np.linspace(3.0, 2.0, 40), np.full(40, 2.0), np.full(40, np.nan), -np.ones(40)),
            "lr": draw.among(0.1, dl.schedules.cosine(0.1), np.full(40, 0.1), 0.0),
            "warmup": draw.among(0, 10, -1),
        },
    ),
    "sensitivity": (dl.sensitivity, {}, lambda draw, problem: {"wrt": draw.among("lr", ["lr", "width"], "depth", [])}),
    "estimate": (
        dl.estimate,
        {},
        lambda draw, problem: {"dim": draw.among(None, 6, 10**4), "seeds": draw.among(2, 10**6, [1, 2])},
    ),
}
"""Each question, arguments that are in order, and how others are drawn: one of these is then replaced by anything."""


def ask(problem: dl.Problem) -> list[str]:
    """Put every question to a problem, once with arguments in order and once with extreme ones; return what failed."""
    draw, broken = Draw(int(hashlib.sha256(problem.to_toml().encode()).hexdigest()[:8], 16)), []
    for name, (question, usual, drawn) in QUESTIONS.items():
        arguments = drawn(draw, problem)
        if draw.one_in(2):
            arguments[list(arguments)[int(draw.rng.integers(len(arguments)))]] = _anything(draw)
        seconds, taken, outcome = _asked(question, problem, usual, _MOST_SECONDS)
        if outcome:
            broken.append(f"{name}({_shown(usual)}): {outcome}")
        _, more_taken, outcome = _asked(question, problem, arguments, 10 * seconds + _MORE_SECONDS)
        if not outcome and more_taken > 10 * taken + _MORE_BYTES:
            outcome = f"took {more_taken / 1e6:.0f} MB, usually {taken / 1e6:.0f} MB"
        if outcome:
            broken.append(f"{name}({_shown(arguments)}): {outcome}")
    return broken


def _asked(
    question: Callable[..., Any], problem: dl.Problem, arguments: Arguments, limit: float
) -> tuple[float, float, str]:
    """Seconds and bytes that a question took, and what is wrong with its answer."""

    def end(*_: Any) -> None:
        raise Spoilt(f"took more than {limit:.1f} s")

    start, peak, outcome = time.process_time(), Peak(), ""
    before = signal.signal(signal.SIGVTALRM, end)
    signal.setitimer(signal.ITIMER_VIRTUAL, limit)
    try:
        text = str(question(problem, **arguments))
        if not text or (_SPOILT.search(text) and not _EXPLAINED.search(text)):
            outcome = f"said {text!r:.200}"
    except Spoilt as error:
        outcome = f"{error}, at {_place(error)}"
    except Exception as error:
        if not is_sentence(error):
            outcome = f"{type(error).__name__}: {str(error)[:200]} ({_place(error)})"
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
    return time.process_time() - start, peak.bytes() or 0.0, outcome


def is_sentence(error: Exception) -> bool:
    """Return True for an error that says on purpose what is wrong: an argument, memory, or training that diverges."""
    if type(error) in (ValueError, TypeError):
        return bool(str(error)) and _is_own(error)
    return (
        isinstance(error, Refusal | MemoryError)
        or type(error).__module__.startswith("deeplinear")
        or (type(error) is ArithmeticError and bool(str(error)))
    )


def _is_own(error: Exception) -> bool:
    """Return True if an error was raised by this package, in a line that says raise."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return "deeplinear" in last.filename and "raise" in (last.line or "")


def _place(error: Exception) -> str:
    own = [each for each in traceback.extract_tb(error.__traceback__) if "deeplinear/_" in each.filename]
    return " < ".join(f"{each.filename.rpartition('deeplinear/')[2]}:{each.lineno}" for each in own[:-4:-1])


def _shown(arguments: Arguments) -> str:
    return ", ".join(f"{name}={value!r:.60}" for name, value in arguments.items())
