"""Is the best schedule ever worse than a named one, and do networks confirm what it gains? On randomly drawn problems.

python benchmarks/best_schedule.py [--problems 20] [--steps 50]
python benchmarks/best_schedule.py --times        (a minute: only how long it takes)

Problem number s is drawn by a generator seeded with s. For each the best schedule is found, and four networks of
D = 100 000 are trained with it and with the best named schedule, from the same seeds. Answers are kept in
``out/best_schedule``, so that an interrupted run continues. When all are there ``benchmarks/best_schedule.md`` is
written.
"""

import argparse
import datetime
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.files import write_atomically
from deeplinear._learning_rate.search import Excess
from deeplinear._planning.rates import Rates
from deeplinear._planning.schedule import _descend, _hats
from deeplinear._problem.edit import replace

HERE = Path(__file__).parent
STORE = HERE.parent / "out" / "best_schedule"
SEEDS, DIM = 4, 10**5
LENGTHS, TIMES = (50, 100, 200), "## How long a schedule takes"
SHORT, DESCENTS, AGAINST = 40, 20, "## Against descents from random starts"


def draw(seed: int, steps: int) -> dl.Problem:
    """Draw a problem: an isotropic target with any sampling rule and network; half have momentum."""
    rng = np.random.default_rng([seed, 20])
    depth, width, richness = int(rng.integers(1, 4)), rng.uniform(0.5, 3.0), np.exp(rng.uniform(-1.5, 1.0))
    sampling = [dl.OnlineSGD(rng.uniform(0.2, 1.5)), dl.FullBatch(rng.uniform(0.8, 4)), dl.MultiPassSGD(2.0, 0.5)]
    rule = dl.GradientDescent(0.05, momentum=0.9 * rng.integers(2), weight_decay=0.01 * rng.integers(2))
    network = dl.MLP(depth, round(width, 2), richness=round(float(richness), 2))
    return dl.Problem(network, dl.Isotropic(round(rng.uniform(0, 0.5), 2)), sampling[seed % 3], rule, steps)


def measure(seed: int, steps: int) -> dict[str, Any]:
    """Find the best schedule of a problem, and train networks with it and with the best named one."""
    problem, start = draw(seed, steps), time.process_time()
    found = dl.optimal_schedule(problem)
    seconds = time.process_time() - start
    name = min(found.families, key=lambda each: found.families[each].loss)
    named = replace(problem, {"lr": found.families[name].schedule})
    ends = [
        dl.simulate(each, DIM, SEEDS, method="reduced", record="losses").test_loss[:, -1]
        for each in (found.problem, named)
    ]
    gains = 1.0 - ends[0] / ends[1]
    return {
        "sampling": problem.sampling.kind.title,
        "best named": name,
        "loss": found.loss,
        "gain": found.gain,
        "networks": [float(gains.mean()), float(gains.std(ddof=1) / np.sqrt(SEEDS))],
        "at edge": found.at_edge,
        "warm-up": found.families[name].schedule.warmup,
        "converged": found.has_converged,
        "seconds": seconds,
    }


def page(records: list[dict[str, Any]], steps: int) -> str:
    """Return the table."""
    worst = min(min(each["gain"].values()) for each in records)
    lines = [
        "## The best schedule against named ones",
        "",
        f"{datetime.date.today()}: {len(records)} problems drawn at random (isotropic targets; depth 1 to 3; all "
        f"sampling rules; some with momentum 0.9, some with weight decay; {steps} steps). Promise: the best "
        "schedule is never worse than the best constant, linear, cosine or WSD schedule, each with its best peak and "
        "warm-up. Gains are parts of the loss of the best named one; those of networks are of "
        f"{SEEDS} of D = {DIM}, ± a standard error. `python benchmarks/best_schedule.py` repeats it.",
        "",
        "| problem | sampling | best named | its warm-up | gain | of networks | at the edge | converged "
        "| processor seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for index, each in enumerate(records):
        mean, error = each["networks"]
        gain = min(each["gain"].values())
        lines.append(
            f"| {index} | {each['sampling']} | {each['best named']} | {each['warm-up']:.1%} | {gain:.2%} "
            f"| {mean:.2%} ± {error:.2%} | {'yes' if each['at edge'] else 'no'} "
            f"| {'yes' if each['converged'] else 'no'} | {each['seconds']:.1f} |"
        )
    edge = "At an edge of stability networks of finite size can gain much less than theory says, as problem 4 shows."
    return "\n".join([*lines, "", f"Least gain: {worst:.2%}. {edge}", ""])


def times() -> str:
    """Measure how long the search takes for runs of several lengths, and return the table."""
    lines = [TIMES, "", f"{datetime.date.today()}: depth 2, width 1, noise 0.3, fresh batches of D / 2, 13 knots."]
    lines += ["", "| steps | processor seconds | gain on the best named schedule | converged |", "|---|---|---|---|"]
    for steps in LENGTHS:
        network, rule = dl.MLP(2, 1.0), dl.GradientDescent(0.05)
        start = time.process_time()
        found = dl.optimal_schedule(dl.Problem(network, dl.Isotropic(0.3), dl.OnlineSGD(0.5), rule, steps))
        seconds, gain = time.process_time() - start, min(found.gain.values())
        lines.append(f"| {steps} | {seconds:.1f} | {gain:.2%} | {'yes' if found.has_converged else 'no'} |")
        print(lines[-1], flush=True)
    return "\n".join([*lines, ""])


def draw_short(seed: int) -> dl.Problem:
    """Draw a short problem with any sampling, a third of them without noise."""
    rng = np.random.default_rng([seed, 37])
    steps, depth = int(rng.integers(6, 17)), int(rng.integers(1, 4))
    network = dl.MLP(depth, rng.uniform(0.5, 3), richness=float(np.exp(rng.uniform(-1, 1))))
    sampling = [
        dl.OnlineSGD(rng.uniform(0.3, 2)),
        dl.FullBatch(rng.uniform(0.8, 4)),
        dl.MultiPassSGD(rng.uniform(1, 3), 0.5),
        dl.Population(),
    ][seed % 4]
    noise = [0.0, 0.1, 0.3][int(rng.integers(3))]
    rule = dl.GradientDescent(0.05, momentum=0.9 * rng.integers(2) * rng.uniform(), weight_decay=0.01 * rng.integers(2))
    return dl.Problem(network, dl.Isotropic(noise), sampling, rule, steps)


def against_descents(seed: int) -> dict[str, Any]:
    """Find the best schedule with every rate free, and descend from random rates about the best constant one."""
    problem, start = draw_short(seed), time.process_time()
    steps = problem.steps
    found = dl.optimal_schedule(problem, knots=steps - 1)
    seconds = time.process_time() - start
    rates = Rates(problem, Excess.of(problem, "test"), lambda _: None)
    rng, best, starts = np.random.default_rng(seed), np.log(dl.optimal_lr(problem).lr), []
    while len(starts) < DESCENTS:
        tried = np.exp(best + 0.7 * rng.standard_normal((2 * DESCENTS, steps)) + 0.7 * rng.standard_normal())
        starts += [each for each, height in zip(tried, rates.heights(list(tried)), strict=True) if np.isfinite(height)]
    ends = _descend(rates, starts[:DESCENTS], _hats(steps, steps - 1))
    losses = sorted(float(np.exp(end.value)) + rates.excess.label_noise for _, end in ends)
    return {
        "sampling": problem.sampling.kind.title,
        "depth": problem.network.depth,
        "noise": problem.data.noise,
        "steps": steps,
        "loss": found.loss,
        "named": min(family.loss for family in found.families.values()),
        "descents": losses,
        "slope": found.slope,
        "converged": found.has_converged,
        "seconds": seconds,
    }


def against() -> str:
    """Compare with descents on short problems, and return the table."""
    records = kept("short", SHORT, against_descents)
    ratios = np.array([each["loss"] / each["descents"][0] for each in records])
    lines = [
        AGAINST,
        "",
        f"{datetime.date.today()}: {SHORT} problems of 6 to 16 steps drawn at random (isotropic targets; depth 1 to 3; "
        "all sampling rules; a third without noise, some with momentum and weight decay), with every rate free, "
        f"against the best of {DESCENTS} descents along exact derivatives from random rates about the best constant. "
        "Losses are over that of the best descent. `python benchmarks/best_schedule.py --descents` repeats it.",
        "",
        "| problem | sampling | depth | noise | steps | best descent | best schedule | best named "
        "| descents within 1 % | converged | processor seconds |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for index, (each, ratio) in enumerate(zip(records, ratios, strict=True)):
        least = each["descents"][0]
        near = sum(loss < 1.01 * least for loss in each["descents"])
        lines.append(
            f"| {index} | {each['sampling']} | {each['depth']} | {each['noise']:g} | {each['steps']} | {least:.4g} "
            f"| {ratio:.4f} | {each['named'] / least:.4f} | {near} of {DESCENTS} "
            f"| {'yes' if each['converged'] else 'no'} | {each['seconds']:.1f} |"
        )
    worse, better = (int((sign * np.log(ratios) > 0.01).sum()) for sign in (1, -1))
    lines += [
        "",
        f"More than 1 % above the best descent: {worse} of {SHORT}, at most {ratios.max() - 1:.1%}. More than",
    ]
    lines[-1] += f" 1 % below it: {better}."
    return "\n".join([*lines, ""])


def kept(name: str, count: int, measure: Callable[[int], dict[str, Any]]) -> list[dict[str, Any]]:
    """Measure problems that were not measured before, and return all."""
    STORE.mkdir(parents=True, exist_ok=True)
    records = []
    for seed in range(count):
        file = STORE / f"{seed}-{name}.json"
        if not file.exists():
            file.write_text(json.dumps(measure(seed)))
        records.append(json.loads(file.read_text()))
        print(seed, records[-1], flush=True)
    return records


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--times", action="store_true")
    parser.add_argument("--descents", action="store_true")
    options = parser.parse_args()
    only = options.times or options.descents
    table = HERE / "best_schedule.md"
    named, descents, seconds = parts(table.read_text())
    if not only:
        records = kept(str(options.steps), options.problems, lambda seed: measure(seed, options.steps))
        named = page(records, options.steps)
    if options.descents or not only:
        descents = against()
    if options.times or not only:
        seconds = times()
    text = "\n".join(f"{each.strip()}\n" for each in (named, descents, seconds))
    write_atomically(table, lambda path: path.write_text(text))


def parts(text: str) -> tuple[str, str, str]:
    """Return the three sections of the page."""
    before, _, seconds = text.partition(TIMES)
    named, _, descents = before.partition(AGAINST)
    return named, f"{AGAINST}{descents}", f"{TIMES}{seconds}"


if __name__ == "__main__":
    main()
