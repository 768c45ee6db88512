"""Predict from theory how deep linear networks train, and check it against real ones."""

from deeplinear._data import Isotropic
from deeplinear._ensemble import Ensemble
from deeplinear._network import MLP, ResNet
from deeplinear._optimizer import GradientDescent
from deeplinear._problem import Problem
from deeplinear._sampling import FullBatch, MultiPassSGD, OnlineSGD, Population
from deeplinear._simulate import simulate
from deeplinear._solution import Decomposition, Solution, Status, VarianceDecomposition
from deeplinear._solve import solve

__all__ = [
    "MLP",
    "Decomposition",
    "Ensemble",
    "FullBatch",
    "GradientDescent",
    "Isotropic",
    "MultiPassSGD",
    "OnlineSGD",
    "Population",
    "Problem",
    "ResNet",
    "Solution",
    "Status",
    "VarianceDecomposition",
    "simulate",
    "solve",
]
