"""Train the small networks whose curves the tutorial on real runs uses, and write one CSV file for each.

The task is a little language: 512 words with frequencies as 1/rank, where the next word depends on the last two. Every
word has its own followers, drawn once. The network sees the last two words through an embedding, has one hidden layer
of 128 ReLU units, and learns the next word by cross-entropy, from fresh batches of 64. The loss is the exact expected
one on 2048 contexts. Some minutes on one core.

    python docs/train_runs.py adamw sgd
"""

import csv
import sys
from pathlib import Path

import numpy as np
import torch

from deeplinear import schedules

HERE = Path(__file__).parent / "runs"
WORDS, EMBEDDING, HIDDEN, BATCH, EVERY = 512, 32, 128, 64, 60
WARMUP = 300
PEAKS = {"adamw": 3e-3, "sgd": 1.5}
WEIGHT_DECAY = 0.1
SPREAD = 0.1

SCHEDULES = {
    "constant_6000": (6000, schedules.constant(1.0, warmup=WARMUP / 6000)),
    "cosine_6000": (6000, schedules.cosine(1.0, warmup=WARMUP / 6000, end=0.1)),
    "drop_4000": (4000, schedules.piecewise(1.0, [0.625], [0.2], warmup=WARMUP / 4000)),
    "wsd_6000": (6000, schedules.wsd(1.0, warmup=WARMUP / 6000, decay=0.2, end=0.05)),
    "linear_6000": (6000, schedules.linear(1.0, warmup=WARMUP / 6000, end=0.05)),
    "cosine_12000": (12000, schedules.cosine(1.0, warmup=WARMUP / 12000, end=0.1)),
    "wsd_12000": (12000, schedules.wsd(1.0, warmup=WARMUP / 12000, decay=0.2, end=0.05)),
    "constant_12000": (12000, schedules.constant(1.0, warmup=WARMUP / 12000)),
}


class Language:
    """Chances of the next word after two others."""

    def __init__(self, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.frequency = 1.0 / np.arange(2, WORDS + 2)
        self.frequency /= self.frequency.sum()
        tables = []
        for _ in range(2):
            rank = np.argsort(rng.random((WORDS, WORDS)) ** (1.0 / self.frequency), axis=1)[:, ::-1]
            chances = np.empty((WORDS, WORDS))
            np.put_along_axis(chances, rank, (1.0 / np.arange(1, WORDS + 1) ** 1.5)[None].repeat(WORDS, 0), axis=1)
            tables.append(chances / chances.sum(axis=1, keepdims=True))
        self.tables = tables
        self.cumulated = [torch.tensor(np.cumsum(table, axis=1), dtype=torch.float32) for table in tables]
        self.words = torch.tensor(np.cumsum(self.frequency), dtype=torch.float32)

    def contexts(self, count: int, generator: torch.Generator) -> torch.Tensor:
        """Draw pairs of words."""
        return torch.searchsorted(self.words, torch.rand(count, 2, generator=generator)).clamp(max=WORDS - 1)

    def following(self, contexts: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
        """Draw the word that follows each pair."""
        which = torch.rand(len(contexts), generator=generator) < 0.5
        drawn = torch.rand(len(contexts), 1, generator=generator)
        rows = torch.where(which[:, None], self.cumulated[0][contexts[:, 0]], self.cumulated[1][contexts[:, 1]])
        return torch.searchsorted(rows, drawn).clamp(max=WORDS - 1)[:, 0]

    def chances(self, contexts: torch.Tensor) -> torch.Tensor:
        """Return the chances of all words after each pair."""
        first, second = (self.tables[k][contexts[:, k].numpy()] for k in (0, 1))
        return torch.tensor(0.5 * (first + second), dtype=torch.float32)


def train(kind: str, name: str, seed: int = 1) -> list[tuple[int, float, float, float]]:
    """Return step, rate, loss and squared norm of the weights, every so many steps."""
    steps, schedule = SCHEDULES[name]
    rates = PEAKS[kind] * schedule.values(steps)
    language, generator = Language(), torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    network = torch.nn.Sequential(
        torch.nn.Embedding(WORDS, EMBEDDING),
        torch.nn.Flatten(),
        torch.nn.Linear(2 * EMBEDDING, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, WORDS),
    )
    torch.nn.init.normal_(network[0].weight, std=SPREAD)
    weights = list(network.parameters())
    if kind == "adamw":
        optimizer = torch.optim.AdamW(weights, lr=1.0, betas=(0.9, 0.95), weight_decay=WEIGHT_DECAY)
    else:
        optimizer = torch.optim.SGD(weights, lr=1.0)
    check = language.contexts(2048, torch.Generator().manual_seed(99))
    chances, rows = language.chances(check), []
    for step in range(steps + 1):
        if step % EVERY == 0:
            with torch.no_grad():
                loss = -(chances * torch.log_softmax(network(check), 1)).sum(1).mean()
                norm = sum(float((each**2).sum()) for each in weights)
            rows.append((step, float(rates[min(step, steps - 1)]), float(loss), norm))
        if step == steps:
            break
        contexts = language.contexts(BATCH, generator)
        loss = torch.nn.functional.cross_entropy(network(contexts), language.following(contexts, generator))
        optimizer.zero_grad()
        loss.backward()
        for group in optimizer.param_groups:
            group["lr"] = float(rates[step])
        optimizer.step()
    return rows


def main(kinds: list[str]) -> None:
    """Train all schedules with some optimizers."""
    torch.set_num_threads(1)
    for kind in kinds:
        for name in SCHEDULES:
            path = HERE / f"{kind}-{name}.csv"
            if path.exists():
                continue
            path.parent.mkdir(exist_ok=True)
            rows = train(kind, name)
            with path.open("w", newline="") as file:
                writer = csv.writer(file, lineterminator="\n")
                writer.writerow(["step", "lr", "loss", "squared_norm"])
                for step, rate, loss, norm in rows:
                    writer.writerow([step, f"{rate:.6g}", f"{loss:.5f}", f"{norm:.6g}"])
            print(path.name, f"{rows[-1][2]:.4f}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or list(PEAKS))
