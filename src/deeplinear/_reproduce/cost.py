"""How long jobs will take on this machine, before they are run."""

from dataclasses import dataclass
from functools import cache

import deeplinear as dl
from deeplinear._cost.model import numbers_of_solving, numbers_of_training
from deeplinear._reproduce.jobs import Job

_DIM, _SEEDS = 200, 4


@dataclass(frozen=True)
class Speed:
    """Seconds per unit of work, of solving and of training."""

    theory: float
    experiment: float

    def seconds(self, job: Job) -> float:
        """Seconds that a job takes."""
        return sum(self.parts(job))

    def parts(self, job: Job) -> tuple[float, float]:
        """Seconds of theory and of experiment."""
        return job.work.theory * self.theory, job.work.experiment * self.experiment


@cache
def speed() -> Speed:
    """Measure both on one ordinary problem."""
    problem = dl.Problem(dl.MLP(4, 1.0), dl.Isotropic(), dl.FullBatch(2.0), dl.GradientDescent(0.01), steps=200)
    found = dl.estimate(problem, _DIM, _SEEDS, record="losses")
    assert found.experiment is not None
    theory = found.theory.seconds / numbers_of_solving(problem)
    return Speed(theory, found.experiment.seconds / numbers_of_training(problem, _DIM, _SEEDS))
