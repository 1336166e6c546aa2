"""Intervals and tests, against SciPy and by hand."""

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import stats

from sklearn_simlearn._core.statistics import (
    allow_for_several,
    mean_interval,
    paired_test,
)


def test_interval_is_that_of_student(rng):
    values = rng.random(40)
    mean = mean_interval(np.r_[values, np.nan])
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert_allclose((mean.value, mean.low, mean.high), (values.mean(), *expected))
    assert mean_interval([0.5]) == (0.5, -np.inf, np.inf)
    assert mean_interval([0.5, 0.5, 0.5]) == (0.5, 0.5, 0.5)
    assert np.isnan(mean_interval([np.nan])).all()


def test_interval_covers_the_truth(rng):
    """Check intervals for average precision, which is skewed in practice."""
    draws = rng.beta(5, 1, size=(2000, 60))
    hits = [mean.low <= 5 / 6 <= mean.high for mean in map(mean_interval, draws)]
    assert 0.92 <= np.mean(hits) <= 0.97


def test_paired_test(rng):
    differences = rng.standard_normal(50) + 0.2
    expected = stats.wilcoxon(differences).pvalue
    assert paired_test(np.r_[differences, np.nan]) == expected
    assert paired_test(np.zeros(5)) == 1
    assert paired_test([0.3]) == stats.wilcoxon([0.3]).pvalue == 1


@pytest.mark.parametrize("n", range(2, 9))
@pytest.mark.parametrize("n_values", [2, 5, 100])
def test_paired_test_of_few_differences(n, n_values, rng):
    """Few values make zeros and equal differences."""
    for _ in range(5):
        differences = rng.integers(0, n_values, n) / 10 - n_values // 4 / 10
        if differences.any():
            expected = stats.wilcoxon(differences, method=stats.PermutationMethod())
            assert_allclose(paired_test(differences), expected.pvalue)
        else:
            assert paired_test(differences) == 1


def test_allowance_for_several():
    # Holm's procedure by hand.
    p = [0.01, 0.04, 0.03, 0.005]
    assert_allclose(allow_for_several(p), [0.03, 0.06, 0.06, 0.02])
    assert_allclose(allow_for_several([0.6, 0.7]), [1, 1])
    assert allow_for_several([]).tolist() == []
    assert allow_for_several([0.02]).tolist() == [0.02]


def test_false_positives_are_at_most_the_level(rng):
    """Six similarities that differ from the baseline by chance alone."""
    n_wrong, n_plain = 0, 0
    for _ in range(100):
        p = [paired_test(rng.standard_normal(60)) for _ in range(6)]
        n_wrong += allow_for_several(p).min() < 0.05
        n_plain += min(p) < 0.05
    assert n_wrong <= stats.binom.ppf(0.999, 100, 0.05) < n_plain


@pytest.mark.parametrize("n", [1, 7])
def test_order_does_not_matter(n, rng):
    p = rng.random(n)
    order = rng.permutation(n)
    assert_allclose(allow_for_several(p)[order], allow_for_several(p[order]))
