"""Questions about the learning rate: which is best, and which train at all."""

from deeplinear._learning_rate.minima import LrMinimum
from deeplinear._learning_rate.optimal import OBJECTIVES, OptimalLr, optimal_lr
from deeplinear._learning_rate.stable import MaxStableLr, max_stable_lr

__all__ = ["OBJECTIVES", "LrMinimum", "MaxStableLr", "OptimalLr", "max_stable_lr", "optimal_lr"]
