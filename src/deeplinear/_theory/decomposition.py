"""The test loss in parts: those of the paper, and those of an analysis of variance."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deeplinear._core import checks
from deeplinear._core.arrays import ComparedByValue

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Decomposition(ComparedByValue):
    """The paper's parts of the test loss, each of shape (T,); they sum to it.

    Attributes
    ----------
    bias
        What is left of the target when all randomness is averaged out.
    width
        Variance due to the random initial weights as they pass through the first layer.
    data
        Variance due to the finite data set or batch, label noise in it included.
    label_noise
        The noise of the test labels themselves.
    """

    bias: Array
    width: Array
    data: Array
    label_noise: Array


@dataclass(frozen=True, eq=False)
class VarianceDecomposition(ComparedByValue):
    """The exact analysis of variance of the test loss, each part of shape (T,); they sum to it.

    Attributes
    ----------
    bias
        Loss of the prediction averaged over initialisations and data sets.
    initialization
        Variance over initialisations of the prediction averaged over data sets.
    data
        Variance over data sets (and batches) of the prediction averaged over initialisations.
    interaction
        What is left: variance that averaging over either removes.
    label_noise
        The noise of the test labels themselves.
    """

    bias: Array
    initialization: Array
    data: Array
    interaction: Array
    label_noise: Array

    def ensemble_loss(self, members: int) -> Array:
        """Test loss of the mean prediction of ``members`` networks trained on one data set, shape (T,)."""
        averaged = (self.initialization + self.interaction) / checks.whole("members", members)
        loss: Array = self.bias + self.data + averaged + self.label_noise
        return loss
