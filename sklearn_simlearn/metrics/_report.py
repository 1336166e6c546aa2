"""Every measure of an estimator, query by query."""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.sklearn import StrOptions, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import (
    CUT,
    MEASURES,
    TIES,
    Empty,
    Ranks,
    Ties,
)
from sklearn_simlearn.metrics._precision_recall import (
    check_recall_levels,
    interpolated_precision,
)
from sklearn_simlearn.metrics._queries import settle_empty
from sklearn_simlearn.metrics._search import measure_queries


@validate_params(
    {
        "k": ["array-like", CUT],
        "query_mask": ["array-like", None],
        "groups": ["array-like", None],
        "ties": [StrOptions(set(TIES) - {"threshold"})],
        "interpolation": [StrOptions({"step", "trapezoid"})],
        "empty": [StrOptions({"skip", "zero", "error"})],
        "recall_levels": ["array-like", None],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def retrieval_report(
    estimator: Any,
    X: MatrixLike,
    y: Any,
    *,
    X_database: MatrixLike | None = None,
    y_database: Any = None,
    query_mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    k: int | ArrayLike = (1, 10),
    ties: Ties = "average",
    interpolation: Literal["step", "trapezoid"] = "step",
    empty: Empty = "skip",
    recall_levels: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Bunch:
    """Measure a fitted estimator by every measure, query by query.

    Parameters
    ----------
    estimator : object
        A fitted learner, pipeline or search; any other transformer is measured by the
        cosine of its output.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples, each of which queries all the others, or the documents of `y`.

    y : array-like of shape (n_samples,) or (n_samples, n_columns), \
            PairwiseRelevance or Judgements
        Labels, relevance matrix or relevance by pairs. With :class:`Judgements`, the
        samples are queries, and all its documents are ranked for each of them.

    X_database, y_database : default=None
        Samples to search in instead, with their targets. Judgements have documents of
        their own and take no database.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query; all that are relevant to something if None.

    groups : array-like of shape (n_samples,), default=None
        Set of each sample, for an estimator whose `similarity` takes `groups`: the
        samples of a set query together; those of group -1 or None do not query. See
        :class:`RetrievalScorer`.

    k : int or sequence of int, default=(1, 10)
        Cut-offs of the measures whose names end in ``_at_k``.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity, as for :func:`average_precision`.

    interpolation : {"step", "trapezoid"}, default="step"
        How average precision integrates the precision-recall curve.

    empty : {"skip", "zero", "error"}, default="skip"
        Value of a query with no relevant item; with "skip" its values are NaN.

    recall_levels : array-like of shape (n_levels,), default=None
        Recall levels of the precision-recall curves; 0, 0.01, ..., 1 if None.

    n_jobs : int, default=None
        Threads over the queries.

    Returns
    -------
    report : :class:`~sklearn.utils.Bunch`
        ``query`` (row of `X`, id of the query or group), ``n_relevant``,
        ``average_precision``, ``precision_at_1`` and so on for each `k`,
        ``recall_at_1`` ..., ``ndcg_at_1``
        ..., ``r_precision``, ``reciprocal_rank``, ``top4_score`` (the query itself
        counting unless there is a database), arrays with one entry per query; and
        ``precision_recall`` of shape (n_queries, n_levels) with ``recall_levels``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.preprocessing import StandardScaler
    >>> from sklearn_simlearn.metrics import retrieval_report
    >>> X, y = load_iris(return_X_y=True)
    >>> report = retrieval_report(StandardScaler().fit(X), X, y, k=5)
    >>> np.round([report.average_precision.mean(), report.precision_at_5.mean()], 2)
    array([0.77, 0.82])
    """
    if (X_database is None) != (y_database is None):
        raise ValueError("Give X_database and y_database together, or neither.")
    if X_database is not None and isinstance(y, Judgements):
        raise ValueError(
            "Judgements have documents of their own to search in: leave out X_database "
            "and y_database."
        )
    database = None if X_database is None else (X_database, y_database)
    levels = check_recall_levels(recall_levels)
    measures, counts_self = bind_all_measures(k, ties, interpolation, levels)
    queries, values = measure_queries(
        estimator,
        X,
        y,
        measures,
        counts_self=counts_self,
        graded=True,
        database=database,
        query_mask=query_mask,
        groups=groups,
        ties=ties,
        n_jobs=n_jobs,
    )
    return make_report(queries.names, levels, values, empty)


def bind_all_measures(
    k: int | ArrayLike, ties: str, interpolation: str, levels: np.ndarray
) -> tuple[dict[str, Callable[[Ranks], np.ndarray]], set[str]]:
    """All entries of a report as functions of ranks, and those that count the query."""
    shared = {"ties": ties, "interpolation": interpolation}
    measures: dict[str, Callable[[Ranks], np.ndarray]] = {}
    counts_self: set[str] = set()
    for measure in MEASURES.values():
        options = {o: value for o, value in shared.items() if o in measure.options}
        entries: dict[str, dict] = {measure.name: {}}
        if measure.name.endswith("_at_k"):
            cuts = [int(cut) for cut in np.atleast_1d(k)]
            entries = {f"{measure.name[:-1]}{cut}": {"k": cut} for cut in cuts}
        for entry, cut in entries.items():
            measures[entry] = measure.bind(**options, **cut)
        if measure.counts_self:
            counts_self.update(entries)
    measures["n_relevant"] = lambda ranks: ranks.n_relevant
    measures["precision_recall"] = lambda ranks: interpolated_precision(ranks, levels)
    return measures, counts_self


def make_report(
    names: np.ndarray, levels: np.ndarray, values: dict[str, np.ndarray], empty: str
) -> Bunch:
    """Report of the values of all measures per query."""
    for name in values.keys() - {"n_relevant"}:
        settle_empty(values[name], empty)
    return Bunch(query=names, recall_levels=levels, **values)
