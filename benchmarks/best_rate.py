"""Is the best learning rate really the best? ``optimal_lr`` against brute force, on randomly drawn problems.

python benchmarks/best_rate.py [--programs] [--problems 300] [--workers 2] [--seeds 3 17 ...] [--device cuda]

Problem number s is drawn by a generator seeded with s (see ``best_rate_problems.py``): gradient descent at a constant
rate, or, with ``--programs``, schedules, other update rules, infinite depth and phases. Brute force solves it at 1119
rates, five decades down from one beyond which training ends worse than it began: every 0.6 % over the upper two
decades, where losses are rough, and every 2 % below.

Past the edge of stability losses can be so rough that a finer grid always finds a lower one, in a narrower dip. A rate
that is to be of use must be good together with its neighbours, so what counts as the least loss is the least, over all
triples of neighbouring rates, of the largest loss of the three. The promise: the loss at the rate that ``optimal_lr``
returns is at most 0.2 % above that, on every problem. So that a dip which the search happened to meet does not pass for
a good answer, the same is asked of the largest loss all over 0.2 % of the rate: of eleven rates with the one returned
among them, the best eleven. The table also has the least loss at a single rate.

Brute force takes hours on one core, or minutes on a graphics card (``--device``), where one process does it before
the others search. It does not depend on the search. Its answers are kept in ``out/best_rate`` for as
long as the problem is the same, so an interrupted run continues, and a search that was changed is checked again in
minutes. When all problems are there, ``benchmarks/best_rate.md`` is written, or ``best_rate_programs.md``. Violations
are listed, and the exit code is then 1. The search was developed on these very problems, so a changed one should also
see others: ``--seeds`` from 1000 on, say, or, for programs, from 400 to 999.
"""

import argparse
import datetime
import itertools
import json
import sys
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from best_rate_problems import PLAIN, PROGRAMS, draw, kind
from deeplinear._core.device import searching_on
from deeplinear._core.files import write_atomically
from deeplinear._learning_rate.ladder import solve_rates

HERE = Path(__file__).parent
STORE = HERE.parent / "out" / "best_rate"
MORE = 70
"""Problems of the table with schedules, other rules, infinite depth or phases."""
ALLOWED = 1.002
"""Most that the loss may be at the rate that is returned, in units of the least one of brute force."""
WIDE = 0.02
"""Length, in log(lr), of a stretch of rates that is worth listing."""
HEADING = "The best learning rate against brute force"
HEADING_PROGRAMS = "The best rate of schedules, other rules, infinite depth and phases against brute force"
DRAWN = (
    "MLP and residual; isotropic data, spectra and power laws; one to three outputs; all sampling rules; half with "
    "momentum, up to 0.97; 12 to 160 steps; weight decay"
)
DRAWN_PROGRAMS = (
    "networks, data and sampling as above; 10 to 60 steps, 5 to 15 of infinite depth; schedules of every shape, by "
    "chance also in the other rows; phases with other targets, noise, samples and rules"
)
NOTES = [
    "Not listed are stretches of more than 2 % of the rate within 5 % of the least loss: the search looks for the "
    "least, and lists what it comes across. With a margin, what counts is the largest loss at the rates up to 20 % "
    "lower or higher than `safe_lr`, against that of the best such rate; past the edge of stability narrow spikes "
    "between the rates that were solved are not seen.",
]
Record = dict[str, Any]


def objective(seed: int) -> str:
    """Which loss is minimised: the train loss of every fifth problem, or of ten in forty where all kinds take turns."""
    is_train = seed // 10 % 4 == 3 if seed in PROGRAMS else seed % 5 == 4
    return "train" if is_train else "test"


def brute_force(problem: dl.Problem, which: str) -> tuple[list[float], list[float]]:
    """Losses at the last step on a fine grid of rates; inf where training diverges."""
    top = _blow_up(problem)
    rates = np.concatenate([top * 1.006 ** -np.arange(770), top * 1.006**-770 * 1.02 ** -np.arange(1, 350)])
    solved = solve_rates(problem, rates.tolist())
    return rates.tolist(), [float(max(curve.loss(which)[-1], 0.0)) for curve in solved]


def _blow_up(problem: dl.Problem) -> float:
    """A rate, to a factor of two, beyond which the loss at the last step is worse than at the start, or untrained."""
    rates = np.geomspace(1e-7, 1e7, 94).tolist()
    losses = np.array([curve.test_loss[[0, -1]] for curve in solve_rates(problem, rates)])
    good = losses[:, 1] <= 2 * max(losses[0])
    return 2.0 * max(itertools.compress(rates, good))


def truth(seed: int) -> Record:
    """What brute force finds for a problem, from the store if it has been asked before."""
    path, problem = STORE / f"{seed}.json", draw(seed)
    if path.exists():
        record: Record = json.loads(path.read_text())
        # Compared as problems are read now, so that a field added since does not matter.
        if dl.Problem.from_toml(record["problem"]).to_toml() == problem.to_toml():
            return record
    rates, losses = brute_force(problem, objective(seed))
    record = {"seed": seed, "problem": problem.to_toml(), "lrs": rates, "losses": losses}
    STORE.mkdir(parents=True, exist_ok=True)
    write_atomically(path, lambda temporary: temporary.write_text(json.dumps(record)))
    return record


def check(seed: int) -> Record:
    """Search the best rate of a problem, and compare it with brute force."""
    problem, known = draw(seed), truth(seed)
    losses = np.array(known["losses"])
    least = float(np.maximum(np.maximum(losses[:-2], losses[1:-1]), losses[2:]).min())
    try:
        found = dl.optimal_lr(problem, objective=objective(seed))
    except ArithmeticError:  # no rate is better than a vanishing one, so the lowest must be the best of brute force
        excess = losses[-1] / least - 1
        nothing = {"rates": 0, "dip": 0.0, "margin": 0.0, "unlisted": False}
        return {"seed": seed, "problem": problem, "found": None, "excess": excess, "around": excess} | nothing
    return {
        "seed": seed,
        "problem": problem,
        "found": found,
        "rates": len(found.lrs) + len(found.dips),
        "excess": found.loss / least - 1 if found.is_resolved else 0.0,
        "around": around(problem, objective(seed), found) / least - 1 if found.is_resolved else 0.0,
        "dip": 1 - float(losses.min()) / found.loss if found.is_resolved else 0.0,
        "margin": margin(np.log(known["lrs"]), losses, found.safe_lr) if found.is_resolved else 0.0,
        "unlisted": unlisted(np.log(known["lrs"]), losses, found) if found.is_resolved else False,
    }


def around(problem: dl.Problem, which: str, found: dl.OptimalLr) -> float:
    """Largest loss on the best interval of 0.2 % of the rate that contains the one returned, at eleven rates of it.

    It is none where rounding errors have grown into the losses.
    """
    if found.rounding_at is not None:
        return 0.0
    rates = found.lr * np.exp(np.linspace(-0.002, 0.002, 21))
    losses = [float(curve.loss(which)[-1]) for curve in solve_rates(problem, rates.tolist())]
    return min(max(losses[start : start + 11]) for start in range(11))


def is_violation(record: Record) -> bool:
    """Whether the promise is broken."""
    return max(record["excess"], record["around"]) > ALLOWED - 1


def margin(places: Any, losses: Any, safe_lr: float) -> float:
    """How much higher, as a fraction, the largest loss within 20 % of a rate is than around the best such rate."""
    reach = np.log(1.2) + 1e-9
    inside = places[(places < places.max() - reach) & (places > places.min() + reach)]
    worst = [losses[np.abs(places - x) <= reach].max() for x in [np.log(safe_lr), *inside]]
    return float(worst[0] / min(worst[1:]) - 1)


def unlisted(places: Any, losses: Any, found: dl.OptimalLr) -> bool:
    """Whether rates over more than 2 %, none of them among the minima, all have a loss nearly as good as the best."""
    is_good = losses <= 1.05 * found.loss
    listed = np.log([each.lr for each in found.minima])
    for is_stretch, run in itertools.groupby(range(len(places)), key=lambda index: bool(is_good[index])):
        at = places[list(run)]
        is_listed = ((listed > at.min() - WIDE) & (listed < at.max() + WIDE)).any()
        if is_stretch and np.ptp(at) > WIDE and not is_listed:
            return True
    return False


def summary(records: list[Record]) -> str:
    """The page: how far above the least loss the search ends, what else it says, and how many rates it solves."""
    is_program = records[0]["seed"] in PROGRAMS
    groups = _programs(records) if is_program else _plain(records)
    lines = [
        f"## {HEADING_PROGRAMS if is_program else HEADING}",
        "",
        f"{datetime.date.today()}: {len(records)} problems drawn at random "
        f"({DRAWN_PROGRAMS if is_program else DRAWN}), each solved at 1119 rates over five decades. "
        "Promise: the loss at the rate returned is at "
        f"most {100 * (ALLOWED - 1):.1f} % above the least that brute force finds at three neighbouring rates "
        "(0.6 % apart) together, and so is the largest loss all over 0.2 % of the rate. "
        f"`python benchmarks/best_rate.py{' --programs' if is_program else ''}` repeats it.",
        "",
        "| problems | | loss above the least: median | 99 % below | largest | all over 0.2 %: largest | violations | "
        "dips deeper than 0.2 % at a single rate | several minima nearly as good | others not listed | at the edge | "
        "with a margin, loss above the least: median | 95 % below | largest | rates solved: median | largest |",
        "|" + "---|" * 16,
        *(f"| {' | '.join(_cells(name, some))} |" for name, some in (groups | {"all": records}).items()),
    ]
    if not is_program:
        lines += ["", *NOTES]
    bad = [str(record["seed"]) for record in records if is_violation(record)]
    lines += ["", f"Violations: problems {', '.join(bad)}." if bad else "No violation.", ""]
    return "\n".join(lines)


def _plain(records: list[Record]) -> dict[str, list[Record]]:
    """Problems without and with momentum."""
    momentum = [record["problem"].optimizer.momentum > 0 for record in records]
    without = [not each for each in momentum]
    return {
        "without momentum": list(itertools.compress(records, without)),
        "with momentum": list(itertools.compress(records, momentum)),
    }


def _programs(records: list[Record]) -> dict[str, list[Record]]:
    """Problems by what is special to them."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(kind(record["seed"]), []).append(record)
    return groups


def _cells(name: str, some: list[Record]) -> list[str]:
    """A row of the table."""
    excess, everywhere, margins = (np.array([record[key] for record in some]) for key in ("excess", "around", "margin"))
    found = [record["found"] for record in some if record["found"] is not None]
    rates = [record["rates"] for record in some]
    return [
        name,
        str(len(some)),
        *(f"{100 * np.quantile(excess, q):.2g} %" for q in (0.5, 0.99, 1.0)),
        f"{100 * everywhere.max():.2g} %",
        str(sum(map(is_violation, some))),
        str(sum(record["dip"] > ALLOWED - 1 for record in some)),
        str(sum(len(each.minima) > 1 for each in found)),
        str(sum(record["unlisted"] for record in some)),
        str(sum(each.at_edge for each in found)),
        *(f"{100 * np.quantile(margins, q):.2g} %" for q in (0.5, 0.95, 1.0)),
        f"{np.median(rates):.0f}",
        str(max(rates)),
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--programs", action="store_true", help="draw schedules, other rules, infinite depth, phases")
    parser.add_argument("--problems", type=int, help=f"how many problems to draw, {PLAIN} or {MORE} by default")
    parser.add_argument("--workers", type=int, default=2, help="processes")
    parser.add_argument("--seeds", type=int, nargs="+", help="these problems only; nothing is written")
    parser.add_argument("--device", default="cpu", help="where brute force runs")
    chosen = parser.parse_args()
    first, usual, page = (PLAIN, MORE, "best_rate_programs.md") if chosen.programs else (0, PLAIN, "best_rate.md")
    seeds = range(first, first + (chosen.problems or usual)) if chosen.seeds is None else chosen.seeds
    if chosen.device != "cpu":
        with searching_on(chosen.device):
            for seed in seeds:
                truth(seed)
    records = []
    with ProcessPoolExecutor(chosen.workers) as pool:
        for record in pool.map(check, seeds):
            records.append(record)
            said = f"{record['found'] or 'no rate is good'}{'  VIOLATION' if is_violation(record) else ''}"
            print(f"problem {record['seed']}: {100 * record['excess']:+.2g} %, {said}", flush=True)
    text = summary(records)
    print("\n" + text)
    if chosen.seeds is None:
        write_atomically(HERE / page, lambda temporary: temporary.write_text(text))
    return int("Violations:" in text)


if __name__ == "__main__":
    sys.exit(main())
