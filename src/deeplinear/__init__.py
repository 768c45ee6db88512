"""Predict from theory how deep linear networks train, and check it against real ones."""

from deeplinear._data import Isotropic
from deeplinear._network import MLP
from deeplinear._optimizer import GradientDescent
from deeplinear._problem import Problem
from deeplinear._sampling import FullBatch, MultiPassSGD, OnlineSGD, Population

__all__ = [
    "MLP",
    "FullBatch",
    "GradientDescent",
    "Isotropic",
    "MultiPassSGD",
    "OnlineSGD",
    "Population",
    "Problem",
]
