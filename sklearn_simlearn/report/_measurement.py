"""Measurements of a fitted estimator."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.metrics._queries import mean_over_queries

# Number of queries that are timed.
TIMED_QUERIES = 100


@dataclass
class Measured:
    """Fitted estimator with its ranking of held-out samples.

    Attributes
    ----------
    report : Bunch
        Result of :func:`~sklearn_simlearn.metrics.retrieval_report`.

    fit_seconds : float or None
        Time of the fit; None if unknown.

    query_seconds : float or None
        Time per query for the best ten items; None if the estimator cannot be indexed.
    """

    estimator: Any
    report: Any
    fit_seconds: float | None
    query_seconds: float | None

    @property
    def mean_average_precision(self) -> float:
        return mean_over_queries(self.report.average_precision)

    def gains_over(self, other: "Measured") -> np.ndarray:
        """Return the difference in average precision of each query."""
        return self.report.average_precision - other.report.average_precision


def measure_estimator(
    estimator, X, y, *, query_mask=None, groups=None, fit_seconds: float | None = None
) -> Measured:
    """Measure a fitted estimator on samples that query each other or documents."""
    report = retrieval_report(estimator, X, y, query_mask=query_mask, groups=groups)
    items = y.documents if isinstance(y, Judgements) else X
    query_seconds = _time_query(estimator, X, items, groups)
    return Measured(estimator, report, fit_seconds, query_seconds)


def _time_query(estimator, X, items, groups):
    """Return the seconds per query for the best ten items; the fastest of five runs."""
    try:
        index = SimilarityIndex(estimator).fit(items)
    except TypeError:  # the similarity is not an inner product
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
