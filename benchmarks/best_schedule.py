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
from pathlib import Path
from typing import Any

import numpy as np

import deeplinear as dl
from deeplinear._core.files import write_atomically
from deeplinear._problem.edit import replace

HERE = Path(__file__).parent
STORE = HERE.parent / "out" / "best_schedule"
SEEDS, DIM = 4, 10**5
LENGTHS, TIMES = (50, 100, 200), "## How long a schedule takes"


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--problems", type=int, default=20)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--times", action="store_true")
    options = parser.parse_args()
    table = HERE / "best_schedule.md"
    if options.times:
        before = table.read_text().partition(TIMES)[0]
        text = f"{before.rstrip()}\n\n{times()}"
        write_atomically(table, lambda path: path.write_text(text))
        return
    STORE.mkdir(parents=True, exist_ok=True)
    records = []
    for seed in range(options.problems):
        file = STORE / f"{seed}-{options.steps}.json"
        if not file.exists():
            file.write_text(json.dumps(measure(seed, options.steps)))
        records.append(json.loads(file.read_text()))
        print(seed, records[-1], flush=True)
    text = f"{page(records, options.steps)}\n{times()}"
    write_atomically(table, lambda path: path.write_text(text))


if __name__ == "__main__":
    main()
