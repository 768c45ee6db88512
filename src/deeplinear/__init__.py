"""Predict from theory how deep linear networks train, and check it against real ones."""

from typing import TYPE_CHECKING, Any

from deeplinear._compare import Comparison, ObservableComparison, Verdict, compare
from deeplinear._data import Isotropic
from deeplinear._early import first_rise_lr, first_step_growth
from deeplinear._ensemble import Ensemble
from deeplinear._estimate import Estimate, estimate
from deeplinear._learning_rate import LrMinimum, MaxStableLr, OptimalLr, max_stable_lr, optimal_lr
from deeplinear._measured import MeasuredOptima
from deeplinear._network import MLP, ResNet
from deeplinear._optimizer import GradientDescent
from deeplinear._problem import Problem
from deeplinear._sampling import FullBatch, MultiPassSGD, OnlineSGD, Population
from deeplinear._scaling import PowerLawFit, fit_exponent, lazy_exponent, local_exponents, rich_exponent
from deeplinear._sensitivity import Sensitivity, sensitivity
from deeplinear._simulate import simulate
from deeplinear._solution import Decomposition, Solution, Status, VarianceDecomposition
from deeplinear._solve import solve
from deeplinear._spectrum import Spectrum
from deeplinear._sweep import open_sweep, sweep
from deeplinear._transfer import Transfer, transfer

if TYPE_CHECKING:
    from deeplinear._reproduce.run import Reproduction, reproduce

__all__ = [
    "MLP",
    "Comparison",
    "Decomposition",
    "Ensemble",
    "Estimate",
    "FullBatch",
    "GradientDescent",
    "Isotropic",
    "LrMinimum",
    "MaxStableLr",
    "MeasuredOptima",
    "MultiPassSGD",
    "ObservableComparison",
    "OnlineSGD",
    "OptimalLr",
    "Population",
    "PowerLawFit",
    "Problem",
    "Reproduction",
    "ResNet",
    "Sensitivity",
    "Solution",
    "Spectrum",
    "Status",
    "Transfer",
    "VarianceDecomposition",
    "Verdict",
    "compare",
    "estimate",
    "first_rise_lr",
    "first_step_growth",
    "fit_exponent",
    "lazy_exponent",
    "local_exponents",
    "max_stable_lr",
    "open_sweep",
    "optimal_lr",
    "reproduce",
    "rich_exponent",
    "sensitivity",
    "simulate",
    "solve",
    "sweep",
    "transfer",
]


def __getattr__(name: str) -> Any:
    """Import what draws when it is first asked for: matplotlib takes longer than all the rest."""
    if name in ("Reproduction", "reproduce"):
        import deeplinear._reproduce.run as package

        return getattr(package, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
