"""What the text of an update rule is made of, beside ``deeplinear.Rule`` and ``deeplinear.Look``.

A rule is a frozen dataclass with one method. It yields a look where it wants a gradient, receives it, and returns the
new weights. Its numbers differ from layer to layer and from problem to problem, so that no ``if`` can decide on them:
``minimum``, ``maximum`` and ``where`` stand in its place.

Examples
--------
>>> import deeplinear as dl
>>> from deeplinear.rules import minimum
>>> minimum(1.0, 0.5)
0.5
"""

from deeplinear._rules.numbers import maximum, minimum, sqrt, where
from deeplinear._rules.vectors import Memory, Vector

__all__ = ["Memory", "Vector", "maximum", "minimum", "sqrt", "where"]
