"""Schedules: how a rate, or another number of training, changes from the first step to the last.

A schedule is a shape over the fraction of training that has passed, so it fits any number of steps. It rises to its
``peak`` during a warm-up, and then follows its shape.

Examples
--------
>>> from deeplinear.schedules import cosine
>>> cosine(0.1, warmup=0.25).values(8).round(3)
array([0.05 , 0.1  , 0.1  , 0.093, 0.075, 0.05 , 0.025, 0.007])
"""

from deeplinear._rules.schedules import SHAPES, Schedule, constant, cosine, linear, piecewise, power, wsd

__all__ = ["SHAPES", "Schedule", "constant", "cosine", "linear", "piecewise", "power", "wsd"]
