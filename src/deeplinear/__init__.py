"""Predict from theory how deep linear networks train, and check it against real ones."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from deeplinear import rules, schedules
from deeplinear._problem.data import Isotropic
from deeplinear._problem.network import MLP, ResNet
from deeplinear._problem.phase import Phase
from deeplinear._problem.problem import Problem
from deeplinear._problem.sampling import FullBatch, MultiPassSGD, OnlineSGD, Population
from deeplinear._problem.spectrum import Spectrum
from deeplinear._rules.averages import EMA, TailMean
from deeplinear._rules.descent import GradientDescent
from deeplinear._rules.muon import Muon
from deeplinear._rules.normalized import NormalizedDescent
from deeplinear._rules.rule import Look, Rule
from deeplinear._rules.sam import SAM
from deeplinear._rules.schedule_free import ScheduleFree
from deeplinear._theory.decomposition import Decomposition, VarianceDecomposition
from deeplinear._theory.solution import Solution
from deeplinear._theory.solve import solve
from deeplinear._theory.status import Status

if TYPE_CHECKING:
    from deeplinear._citations import citations
    from deeplinear._comparison.compare import Comparison, compare
    from deeplinear._comparison.coordinate_check import coordinate_check
    from deeplinear._comparison.coordinates import CoordinateCheck
    from deeplinear._comparison.finite_size import FiniteSize, SizeEffect, finite_size
    from deeplinear._comparison.observables import ObservableComparison
    from deeplinear._comparison.verdict import Verdict
    from deeplinear._cost.estimate import Estimate, estimate
    from deeplinear._experiment.curvature import Curvature
    from deeplinear._experiment.ensemble import Ensemble
    from deeplinear._experiment.measured import Measured, measured
    from deeplinear._experiment.simulate import simulate
    from deeplinear._fit.fit import fit
    from deeplinear._fit.result import Fit
    from deeplinear._geometry.landscape import Landscape, landscape
    from deeplinear._geometry.sharpness import Sharpness, sharpness
    from deeplinear._geometry.weight_spectra import WeightSpectra, weight_spectra
    from deeplinear._learning_rate import LrMinimum, MaxStableLr, OptimalLr, max_stable_lr, optimal_lr
    from deeplinear._learning_rate.first_step import first_rise_lr, first_step_growth
    from deeplinear._learning_rate.measured import MeasuredOptima
    from deeplinear._load import load
    from deeplinear._planning.batch import CriticalBatch, critical_batch
    from deeplinear._planning.budget import training_cost
    from deeplinear._planning.families import TunedSchedule
    from deeplinear._planning.frontier import Frontier
    from deeplinear._planning.one_field import OptimalValue
    from deeplinear._planning.optimum import JointMinimum, Optimum, optimal
    from deeplinear._planning.plan import Plan, plan
    from deeplinear._planning.schedule import OptimalSchedule, optimal_schedule
    from deeplinear._planning.transfer import transfer
    from deeplinear._planning.transferred import Transfer
    from deeplinear._plots.plot import plot
    from deeplinear._reproduce.figure import figure
    from deeplinear._reproduce.run import Reproduction, reproduce
    from deeplinear._runs.fit import fit_runs
    from deeplinear._runs.result import RunsFit
    from deeplinear._runs.run import Run
    from deeplinear._scaling import PowerLawFit, fit_exponent, lazy_exponent, local_exponents, rich_exponent
    from deeplinear._sweep.sweep import open_sweep, sweep
    from deeplinear._theory.sensitivity import Sensitivity, sensitivity

__version__ = "0.1.0"

__all__ = [
    "EMA",
    "MLP",
    "SAM",
    "Comparison",
    "CoordinateCheck",
    "CriticalBatch",
    "Curvature",
    "Decomposition",
    "Ensemble",
    "Estimate",
    "FiniteSize",
    "Fit",
    "Frontier",
    "FullBatch",
    "GradientDescent",
    "Isotropic",
    "JointMinimum",
    "Landscape",
    "Look",
    "LrMinimum",
    "MaxStableLr",
    "Measured",
    "MeasuredOptima",
    "MultiPassSGD",
    "Muon",
    "NormalizedDescent",
    "ObservableComparison",
    "OnlineSGD",
    "OptimalLr",
    "OptimalSchedule",
    "OptimalValue",
    "Optimum",
    "Phase",
    "Plan",
    "Population",
    "PowerLawFit",
    "Problem",
    "Reproduction",
    "ResNet",
    "Rule",
    "Run",
    "RunsFit",
    "ScheduleFree",
    "Sensitivity",
    "Sharpness",
    "SizeEffect",
    "Solution",
    "Spectrum",
    "Status",
    "TailMean",
    "Transfer",
    "TunedSchedule",
    "VarianceDecomposition",
    "Verdict",
    "WeightSpectra",
    "citations",
    "compare",
    "coordinate_check",
    "critical_batch",
    "estimate",
    "figure",
    "finite_size",
    "first_rise_lr",
    "first_step_growth",
    "fit",
    "fit_exponent",
    "fit_runs",
    "landscape",
    "lazy_exponent",
    "load",
    "local_exponents",
    "max_stable_lr",
    "measured",
    "open_sweep",
    "optimal",
    "optimal_lr",
    "optimal_schedule",
    "plan",
    "plot",
    "reproduce",
    "rich_exponent",
    "rules",
    "schedules",
    "sensitivity",
    "sharpness",
    "simulate",
    "solve",
    "sweep",
    "training_cost",
    "transfer",
    "weight_spectra",
]

_WHEN_ASKED_FOR = {
    "_citations": ("citations",),
    "_comparison.compare": ("Comparison", "compare"),
    "_comparison.coordinate_check": ("coordinate_check",),
    "_comparison.coordinates": ("CoordinateCheck",),
    "_comparison.finite_size": ("FiniteSize", "SizeEffect", "finite_size"),
    "_comparison.observables": ("ObservableComparison",),
    "_comparison.verdict": ("Verdict",),
    "_cost.estimate": ("Estimate", "estimate"),
    "_experiment.curvature": ("Curvature",),
    "_experiment.ensemble": ("Ensemble",),
    "_experiment.measured": ("Measured", "measured"),
    "_experiment.simulate": ("simulate",),
    "_fit.fit": ("fit",),
    "_fit.result": ("Fit",),
    "_geometry.landscape": ("Landscape", "landscape"),
    "_geometry.sharpness": ("Sharpness", "sharpness"),
    "_geometry.weight_spectra": ("WeightSpectra", "weight_spectra"),
    "_learning_rate": ("LrMinimum", "MaxStableLr", "OptimalLr", "max_stable_lr", "optimal_lr"),
    "_learning_rate.first_step": ("first_rise_lr", "first_step_growth"),
    "_learning_rate.measured": ("MeasuredOptima",),
    "_load": ("load",),
    "_planning.batch": ("CriticalBatch", "critical_batch"),
    "_planning.budget": ("training_cost",),
    "_planning.families": ("TunedSchedule",),
    "_planning.frontier": ("Frontier",),
    "_planning.one_field": ("OptimalValue",),
    "_planning.optimum": ("JointMinimum", "Optimum", "optimal"),
    "_planning.plan": ("Plan", "plan"),
    "_planning.schedule": ("OptimalSchedule", "optimal_schedule"),
    "_planning.transfer": ("transfer",),
    "_planning.transferred": ("Transfer",),
    "_plots.plot": ("plot",),
    "_reproduce.figure": ("figure",),
    "_reproduce.run": ("Reproduction", "reproduce"),
    "_runs.fit": ("fit_runs",),
    "_runs.result": ("RunsFit",),
    "_runs.run": ("Run",),
    "_scaling": ("PowerLawFit", "fit_exponent", "lazy_exponent", "local_exponents", "rich_exponent"),
    "_sweep.sweep": ("open_sweep", "sweep"),
    "_theory.sensitivity": ("Sensitivity", "sensitivity"),
}
"""Names by module that are imported when they are first asked for: a solve does without, and takes milliseconds."""


def __getattr__(name: str) -> Any:
    for module, names in _WHEN_ASKED_FOR.items():
        if name in names:
            globals()[name] = value = getattr(import_module(f"deeplinear.{module}"), name)
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
