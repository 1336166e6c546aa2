"""Search for patterns of HistogramRankSVM: pairs of counts that share a weight."""

import warnings
from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.histogram._table import make_pattern
from sklearn_simlearn.model_selection import ObjectKFold


def merge_bins(
    estimator: Any, X: MatrixLike, y: TargetLike, n_bins: int, cv: Any
) -> list[tuple[float, np.ndarray]]:
    """Merge bins of pairs of counts; see `HistogramRankSVM.search_weight_pattern`."""
    if not isinstance(estimator.truncation, Integral):
        raise ValueError(
            "The search for a pattern needs an integer truncation; got "
            f"truncation={estimator.truncation!r}. Set an integer."
        )
    if isinstance(cv, Integral):
        cv = ObjectKFold(cv)

    def judge(pattern: np.ndarray) -> float:
        learner = clone(estimator).set_params(weight_pattern=pattern, holdout=None)
        with warnings.catch_warnings():
            # A pattern with which nothing can be learned has a low score.
            warnings.filterwarnings("ignore", "No weights are better than 0")
            if cv is None:
                return learner.fit(X, y).score(X, y)
            values = cross_val_score(learner, X, y, cv=cv, error_score="raise")
        return float(np.mean(values))

    pattern = make_pattern(estimator.weight_pattern, int(estimator.truncation))
    history = [(judge(pattern), pattern)]
    while history[-1][1].max() >= n_bins:
        candidates = list(find_mergers(history[-1][1]))
        values = [judge(candidate) for candidate in candidates]
        best = int(np.argmax(values))
        history.append((values[best], candidates[best]))
    return history


def find_mergers(pattern: np.ndarray) -> Iterator[np.ndarray]:
    """Yield every pattern that merges two adjacent bins of this one."""
    pairs = np.concatenate(
        [
            np.column_stack([pattern[:-1].ravel(), pattern[1:].ravel()]),
            np.column_stack([pattern[:, :-1].ravel(), pattern[:, 1:].ravel()]),
        ]
    )
    for low, high in np.unique(np.sort(pairs, axis=1), axis=0):
        if low < high:
            merged = np.where(pattern == high, low, pattern)
            yield merged - (merged > high)
