"""Confidence intervals, and paired tests over queries."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

# For at most this number of differences, SciPy's test is exact, too, even if some are
# equal. But it tries the signs one after another, which takes up to a second.
N_EXACT = 13


class Mean(NamedTuple):
    """A mean with its confidence interval."""

    value: float
    low: float
    high: float


def mean_interval(values: ArrayLike, *, level: float = 0.95) -> Mean:
    """Return the mean of the values that are not NaN, with Student's interval.

    The interval of a single value is from -inf to inf.
    """
    known = _known(values)
    n_values = len(known)
    if n_values == 0:
        return Mean(np.nan, np.nan, np.nan)
    mean = float(known.mean())
    if n_values == 1:
        return Mean(mean, -np.inf, np.inf)
    error = known.std(ddof=1) / np.sqrt(n_values)
    half = float(stats.t.ppf((1 + level) / 2, n_values - 1) * error)
    return Mean(mean, mean - half, mean + half)


def paired_test(differences: ArrayLike) -> float:
    """Return the p-value of paired differences by Wilcoxon's signed-rank test.

    NaN is skipped. If all differences are 0, the p-value is 1.
    """
    known = _known(differences)
    if not known.any():
        return 1.0
    if len(known) > N_EXACT:
        return float(stats.wilcoxon(known).pvalue)
    known = known[known != 0]
    ranks = stats.rankdata(np.abs(known))
    sums = np.zeros(1)  # of the ranks of positive differences, for all choices of signs
    for rank in ranks:
        sums = np.concatenate([sums, sums + rank])
    observed = ranks[known > 0].sum()
    tail = min(np.mean(sums <= observed), np.mean(sums >= observed))
    return min(1.0, 2 * float(tail))


def pool(values: ArrayLike, units: np.ndarray | None) -> np.ndarray:
    """Return the values that are not NaN, or their means over each unit."""
    if units is None:
        return _known(values)
    values = np.asarray(values, dtype=float)
    known = ~np.isnan(values)
    sums = np.bincount(units[known], values[known])
    counts = np.bincount(units[known])
    return sums[counts > 0] / counts[counts > 0]


def allow_for_several(p_values: ArrayLike) -> np.ndarray:
    """Correct the p-values of several tests by the method of Holm.

    The smallest is multiplied by the number of tests, the next by one less, and so on.
    The corrected values have the same order.
    """
    p_values = np.asarray(p_values, dtype=float)
    order = np.argsort(p_values)
    factors = np.arange(len(order), 0, -1)
    corrected = np.empty_like(p_values)
    corrected[order] = np.maximum.accumulate(factors * p_values[order])
    return np.minimum(corrected, 1.0)


def say_p(p: float) -> str:
    """Return a p-value as text, after the letter p."""
    return "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def _known(values: ArrayLike) -> np.ndarray:
    values = np.asarray(values, dtype=float)
    return values[~np.isnan(values)]
