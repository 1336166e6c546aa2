"""A fitted estimator with what was measured of it."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import retrieval_report

# Queries that are timed.
TIMED_QUERIES = 100


@dataclass
class Measured:
    """A fitted estimator, and how it ranks held-out samples.

    Attributes
    ----------
    report : Bunch
        Of :func:`~sklearn_simlearn.metrics.retrieval_report`.

    fit_seconds : float or None
        How long the fit took; None if that is not known.

    query_seconds : float or None
        Time per query for the best ten items; None if no index can hold them.
    """

    estimator: Any
    report: Any
    fit_seconds: float | None
    query_seconds: float | None

    @property
    def mean_average_precision(self) -> float:
        return float(np.nanmean(self.report.average_precision))

    def gains_over(self, other: "Measured") -> np.ndarray:
        """Differences in average precision, query by query."""
        return self.report.average_precision - other.report.average_precision


def measure_estimator(
    estimator, X, y, *, query_mask=None, groups=None, fit_seconds: float | None = None
) -> Measured:
    """Let samples query each other, with a fitted estimator."""
    report = retrieval_report(estimator, X, y, query_mask=query_mask, groups=groups)
    query_seconds = _time_query(estimator, X, groups)
    return Measured(estimator, report, fit_seconds, query_seconds)


def _time_query(estimator, X, groups):
    """Seconds per query to find the best ten items with an index; best of five."""
    try:
        index = SimilarityIndex(estimator).fit(X)
    except TypeError:  # the similarity is no inner product
        return None
    rows, params = np.arange(min(TIMED_QUERIES, num_samples(X))), {}
    n_queries = len(rows)
    if groups is not None:
        rows = np.flatnonzero((groups >= 0) & (groups < TIMED_QUERIES))
        params["groups"] = groups[rows]
        n_queries = len(np.unique(groups[rows]))
    X_queries = safe_indexing(X, rows)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        index.search(X_queries, k=10, **params)
        seconds.append(time.perf_counter() - start)
    return min(seconds) / n_queries
