"""Problems turned into numbers: what many of them share is worked out once."""

import warnings
from dataclasses import replace

import numpy as np
import pytest

import deeplinear as dl
from deeplinear._equations.coefficients import coefficients
from deeplinear._problem.edit import replace_unchecked
from factories import maker

make = maker("network", "sampling", network=dl.MLP(2, 1.0), sampling=dl.FullBatch(2.0), lr=0.1, steps=3)


def test_a_real_number_and_a_complex_one_that_equals_it_are_of_their_own_kinds():
    real = make()
    other = replace_unchecked(real, {"network.richness": 1.0 + 0.0j, "network.width": 1.0 + 0.0j})
    assert real.network == other.network
    assert hash(real.network) == hash(other.network)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kinds = [coefficients([each]).gamma0.dtype.kind for each in (other, real, other)]
    assert kinds == ["c", "f", "c"]


def test_what_problems_share_cannot_be_written_to():
    rates = make().layer_rates(dl.GradientDescent(0.1))
    with pytest.raises(ValueError, match="read-only"):
        rates[0] = 2.0


def test_equal_networks_of_two_problems_are_worked_out_once_and_stay_as_they_are():
    one, two = make(), make().replace(lr=0.2)
    first = coefficients([one, two])
    first.gamma0[...] = 7.0
    second = coefficients([one, replace(two, network=dl.MLP(2, 3.0))])
    np.testing.assert_array_equal(second.gamma0.ravel(), [1.0, 1.0])
    np.testing.assert_array_equal(second.initial_variance.ravel(), [1.0, 1 / 3])
