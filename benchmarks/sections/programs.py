"""Update rules, averages and phases against plain descent."""

from typing import Any
from unittest import mock

import numpy as np

import deeplinear as dl
from deeplinear._equations import orthogonal
from measure import least, race
from pictures import COLORS, picture
from sections import rounded, seconds, table

TITLE = "Training programs: update rules against plain descent"

STEPS = (200, 400)
PLAIN = dl.GradientDescent(0.02)

RULES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain descent": (PLAIN, {}),
    "rates by layer, and a schedule": (
        dl.GradientDescent(dl.schedules.cosine(0.02, warmup=0.1), layer_lr=[1.0, 0.5, 2.0, 0.3]),
        {},
    ),
    "clipping": (dl.GradientDescent(0.02, clip=1.0), {}),
    "an average beside": (PLAIN, {"averages": [dl.EMA(0.9)]}),
    "three averages": (PLAIN, {"averages": [dl.EMA(0.9), dl.EMA(0.99), dl.TailMean(0.5)]}),
    "schedule-free": (dl.ScheduleFree(0.02), {}),
    "SAM, which has twice the rows": (dl.SAM(0.02, 0.1), {}),
    "Muon, smooth": (dl.Muon(0.002, other=PLAIN), {}),
    "Muon, 2.5 times as fast": (dl.Muon(0.005, other=PLAIN), {}),
    "Muon, oscillating": (dl.Muon(0.02, other=PLAIN), {}),
}


MUON = [name for name in RULES if name.startswith("Muon")]


def _problem(rule: Any, steps: int) -> dl.Problem:
    return dl.Problem(dl.MLP(3, 1.0), dl.Isotropic(0.3), dl.FullBatch(2.0), rule, steps)


def measure() -> dict[str, Any]:
    found = {}
    for steps in STEPS:
        works = {
            name: lambda rule=rule, options=options, steps=steps: dl.solve(
                _problem(rule, steps), method="dense", **options
            )
            for name, (rule, options) in RULES.items()
        }
        found[str(steps)] = race(works, repeats=9)
    for name in ("Muon, smooth", "Muon, oscillating"):
        found[name] = _directions(RULES[name][0])
    ends = (dl.solve(_problem(RULES[name][0], STEPS[0]), method="dense").stats.get("rounding_at") for name in MUON)
    found["rounding"] = dict(zip(MUON, ends, strict=True))
    return found


def _directions(rule: Any) -> dict[str, float]:
    """Directions of gradients at the last step, and seconds of what orthogonal steps cannot do without because of them.

    With n rows and r directions that is a decomposition of r x r numbers, and products of n x n and n x r.
    """
    shapes: list[tuple[int, int]] = []

    def noted(C: Any, missed: float, find: Any = orthogonal._directions) -> Any:
        K = find(C, missed)
        if K is not None:
            shapes.append(K.shape)
        return K

    with mock.patch.object(orthogonal, "_directions", noted):
        dl.solve(_problem(rule, STEPS[0]), method="dense")
    rng = np.random.default_rng(0)
    H, K = rng.standard_normal((STEPS[0],) * 2), rng.standard_normal((STEPS[0],) * 2)

    def decompose() -> None:
        for _, r in shapes:
            np.linalg.eigh(H[:r, :r])

    def multiply() -> None:
        for n, r in shapes:
            HK = H[:n, :n] @ K[:n, :r]
            _ = K[:n, :r].T @ HK, (HK @ H[:r, :r]) @ (K[:n, :r] @ H[:r, :r]).T

    return {"directions": shapes[-1][1], "decomposed": least(decompose), "multiplied": least(multiply)}


def headlines(data: dict[str, Any]) -> list[tuple[str, str]]:
    times = data[str(STEPS[0])]
    first = times["plain descent"]
    chosen = list(RULES)[1], "an average beside", *MUON
    ratios = "; ".join(rounded(times[name] / first) for name in chosen)
    what = "; ".join(["layers and a schedule", "one average", *MUON])
    return [(f"T = {STEPS[0]}, time over plain descent: {what}", ratios)]


def show(data: dict[str, Any]) -> list[str]:
    with picture("programs") as (ax,):
        for index, steps in enumerate(STEPS):
            times = data[str(steps)]
            ratios = [times[name] / times["plain descent"] for name in RULES]
            places = [place + 0.36 * (index - 0.5) for place in range(len(RULES))]
            ax.barh(places, ratios, height=0.34, color=COLORS[index], label=f"T = {steps}")
        ax.set_yticks(range(len(RULES)), list(RULES))
        ax.invert_yaxis()
        ax.set(xlabel="time over that of plain descent")
        ax.legend(loc="best")
    rows = ([name, *(_cell(data[str(steps)], name) for steps in STEPS)] for name in RULES)
    return [
        "L = 3, full batch, every step solved; in brackets ratios to plain descent of the same length. Rates, decay "
        "and scales by layer cost a matrix for each group of layers that train alike. A row that is only looked at, as "
        "averages have, needs the backward fields and the error, and waits until many are evaluated at once. "
        + _rows(data)
        + " SAM has two rows in each "
        "step, so up to eight times the products. Muon factors a matrix over all pairs of steps in every step: "
        "O(r T^3) in all with r directions of gradients, which are few if training is smooth. " + _floor(data),
        "",
        "![Time of update rules](images/programs.png)",
        "",
        *table(["", *(f"T = {steps}" for steps in STEPS)], rows),
    ]


def _rows(data: dict[str, Any]) -> str:
    times = data[str(STEPS[0])]
    plain, one, three = (times[name] for name in ("plain descent", "an average beside", "three averages"))
    return (
        f"The first average adds {rounded(one / plain - 1.0)} of plain descent to a run of {STEPS[0]} steps, as "
        f"weights are then kept row by row, and each further one {rounded((three - one) / plain / 2.0)}."
    )


def _floor(data: dict[str, Any]) -> str:
    plain = data[str(STEPS[0])]["plain descent"]
    smooth, rough = (data[name] for name in ("Muon, smooth", "Muon, oscillating"))
    parts = [each[name] / plain for each in (rough, smooth) for name in ("decomposed", "multiplied")]
    ratios, least_time = [rounded(part) for part in parts], 1.0 + parts[0] + parts[1]
    reach = ", and three times are out of reach where training oscillates" if least_time > 3.0 else ""
    return (
        f"At step {STEPS[0]} there are {smooth['directions']} of them in the smooth run and {rough['directions']} in "
        f"the oscillating one. There, the decompositions of r x r numbers alone take {ratios[0]} times plain descent, "
        f"and the products with r directions {ratios[1]} times ({ratios[2]} and {ratios[3]} in the smooth run): with "
        f"the rows of plain descent, which Muon has too, that makes {rounded(least_time)} times{reach}. There rounding "
        f"errors have grown into the losses from step {data['rounding']['Muon, oscillating']} on, as the status of the "
        f"solution says; {_held(data)}."
    )


def _held(data: dict[str, Any]) -> str:
    held = [name for name in MUON if data["rounding"][name] is None]
    times = data[str(STEPS[0])]
    ratios = ", ".join(rounded(times[name] / times["plain descent"]) for name in held)
    return f"runs that rounding does not reach ({', '.join(held)}) take {ratios} times plain descent"


def _cell(times: dict[str, float], name: str) -> str:
    return f"{seconds(times[name])} ({rounded(times[name] / times['plain descent'])})"
