"""Reports of all measures by query, for an estimator and for a run."""

from collections.abc import Callable
from numbers import Integral
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.rows import starts_run
from sklearn_simlearn._core.sklearn import StrOptions, validate_params
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics._measure import (
    CUT,
    MEASURES,
    TIES,
    Empty,
    Ranks,
    SlotRanks,
    Ties,
)
from sklearn_simlearn.metrics._precision_recall import (
    check_recall_levels,
    interpolated_precision,
)
from sklearn_simlearn.metrics._queries import measure_queries, settle_empty
from sklearn_simlearn.metrics._trec import NumberedRows, order_rows, read_rows


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
    y: TargetLike,
    *,
    X_database: MatrixLike | None = None,
    y_database: TargetLike | None = None,
    query_mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    k: int | ArrayLike = (1, 10),
    ties: Ties = "average",
    interpolation: Literal["step", "trapezoid"] = "step",
    empty: Empty = "skip",
    recall_levels: ArrayLike | None = None,
    n_jobs: int | None = None,
) -> Bunch:
    """Compute every measure for each query of a fitted estimator.

    Parameters
    ----------
    estimator : object
        A fitted learner, pipeline or search. Any other transformer is measured by the
        cosine of its output.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples. Each sample queries the others, or the documents of `y`.

    y : array-like of shape (n_samples,) or (n_samples, n_columns), \
            PairwiseRelevance or Judgements
        Labels, relevance matrix or relevance by pairs. With :class:`Judgements`, the
        samples are queries, and all documents of the judgements are ranked for each.

    X_database, y_database : default=None
        Samples to search instead of `X`, with their targets. With Judgements, both must
        be None, since the documents are searched.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query. If None, every sample with a relevant item queries.

    groups : array-like of shape (n_samples,), default=None
        Set of each sample, for an estimator whose `similarity` takes `groups`. The
        samples of a set query together. Samples of group -1 or None do not query. See
        :class:`RetrievalScorer`.

    k : int or sequence of int, default=(1, 10)
        Cut-offs of the measures whose names end in ``_at_k``.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        Order of items of equal similarity, as for :func:`average_precision`.

    interpolation : {"step", "trapezoid"}, default="step"
        Integration of the precision-recall curve by average precision.

    empty : {"skip", "zero", "error"}, default="skip"
        Result for a query without a relevant item: NaN, 0 or an error.

    recall_levels : array-like of shape (n_levels,), default=None
        Recall levels of the precision-recall curves; 0, 0.01, ..., 1 if None.

    n_jobs : int, default=None
        Number of threads.

    Returns
    -------
    report : :class:`~sklearn.utils.Bunch`
        Arrays with one entry per query: ``query`` (row of `X`, id of the query or
        group), ``n_relevant``, ``average_precision``, ``r_precision``,
        ``reciprocal_rank``, ``top4_score`` (which counts the query itself unless there
        is a database), and for each `k` ``precision_at_k``, ``recall_at_k`` and
        ``ndcg_at_k`` with the number in the name. Also ``precision_recall`` of shape
        (n_queries, n_levels), and ``recall_levels``.

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
    if X_database is not None and isinstance(y, Judgements):
        raise ValueError(
            "Judgements contain the documents to search: leave out X_database "
            "and y_database."
        )
    if (X_database is None) != (y_database is None):
        raise ValueError(
            "Pass both X_database and y_database, or neither. If y holds the "
            "relevance of documents to queries, pass Judgements(y, documents) as y."
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


@validate_params(
    {
        "k": ["array-like", CUT],
        "ties": [StrOptions({"trec", "average", "optimistic", "pessimistic"})],
        "interpolation": [StrOptions({"step", "trapezoid"})],
        "missing": [StrOptions({"zero", "skip", "error"})],
        "empty": [StrOptions({"skip", "zero", "error"})],
        "recall_levels": ["array-like", None],
    },
    prefer_skip_nested_validation=True,
)
def run_report(
    run: Any,
    qrels: Any,
    *,
    k: int | ArrayLike = (1, 10),
    ties: Literal["trec", "average", "optimistic", "pessimistic"] = "trec",
    interpolation: Literal["step", "trapezoid"] = "step",
    missing: Literal["zero", "skip", "error"] = "zero",
    empty: Empty = "skip",
    recall_levels: ArrayLike | None = None,
) -> Bunch:
    """Compute every measure for each query of a run.

    The values are those of trec_eval. A document without a judgement, or with a
    relevance of 0 or less, is not relevant. A relevant document that is not in the run
    counts as not found. Queries of the run that are not in the qrels are skipped.

    Parameters
    ----------
    run : pandas or polars DataFrame, or dict of columns
        Table with the columns ``query``, ``document`` and ``score``, such as the result
        of :func:`read_run`. Each document occurs at most once for a query.

    qrels : pandas or polars DataFrame, or dict of columns
        Table with the columns ``query``, ``document`` and ``relevance``, such as the
        result of :func:`read_qrels`. Each pair occurs at most once.

    k : int or sequence of int, default=(1, 10)
        Cut-offs of the measures whose names end in ``_at_k``.

    ties : {"trec", "average", "optimistic", "pessimistic"}, default="trec"
        Order of documents of equal score. "trec" sorts them by id, descending, as
        trec_eval does. "average" is the exact expectation over all orders. "optimistic"
        ranks relevant documents first, "pessimistic" ranks them last. Scores are
        compared in double precision; trec_eval reads them in single precision.

    interpolation : {"step", "trapezoid"}, default="step"
        Integration of the precision-recall curve by average precision.

    missing : {"zero", "skip", "error"}, default="zero"
        Result for a query of the qrels without results in the run. "zero" returns 0, as
        trec_eval does with the option ``-c``. "skip" skips the query, as trec_eval does
        without this option. "error" raises an error.

    empty : {"skip", "zero", "error"}, default="skip"
        Result for a query without a relevant document: NaN; 0, as in trec_eval; or an
        error.

    recall_levels : array-like of shape (n_levels,), default=None
        Recall levels of the precision-recall curves; 0, 0.01, ..., 1 if None.

    Returns
    -------
    report : :class:`~sklearn.utils.Bunch`
        ``query``, which holds the ids in the order of the qrels, and the measures of
        :func:`retrieval_report`.

    See Also
    --------
    retrieval_report : The same for a fitted estimator.

    Examples
    --------
    >>> from sklearn_simlearn.metrics import run_report
    >>> qrels = {"query": ["q", "q"], "document": ["a", "b"], "relevance": [2, 1]}
    >>> run = {"query": ["q", "q"], "document": ["b", "c"], "score": [0.9, 0.5]}
    >>> run_report(run, qrels, k=1).average_precision
    array([0.5])
    """
    levels = check_recall_levels(recall_levels)
    order = "index" if ties == "trec" else ties
    measures, _ = bind_all_measures(k, order, interpolation, levels)
    queries: dict[str, int] = {}
    documents: dict[str, int] = {}
    judged = read_rows(qrels, "relevance", "qrels", queries, documents)
    n_queries, ids = len(queries), np.array(list(queries), dtype=str)
    found = read_rows(run, "score", "run", queries, documents)

    # From here on, the inputs are valid.
    found = found.take(found.query < n_queries)
    is_answered = np.bincount(found.query, minlength=n_queries) > 0
    if not is_answered.any():
        raise ValueError("The run has no results for the queries of the qrels.")
    if missing == "error" and not is_answered.all():
        n_missing = np.count_nonzero(~is_answered)
        raise ValueError(
            f"The run has no results for {n_missing} of {n_queries} queries of the "
            'qrels. Pass missing="zero" to count them as 0 or missing="skip" to skip '
            "them."
        )
    ranks = _rank_run(found, judged, n_queries, documents, ties)
    kept = is_answered if missing == "skip" else np.ones(n_queries, dtype=bool)
    values = {name: of_ranks(ranks)[kept] for name, of_ranks in measures.items()}
    return make_report(ids[kept], levels, values, empty)


class _Slots(NamedTuple):
    """Relevant documents with their ranks."""

    query: np.ndarray
    n_above: np.ndarray
    n_tied: np.ndarray
    document: np.ndarray
    relevance: np.ndarray
    score: np.ndarray


def _rank_run(
    run: NumberedRows,
    judged: NumberedRows,
    n_queries: int,
    documents: dict[str, int],
    ties: str,
) -> SlotRanks:
    """Return the ranks of the relevant documents; those not in the run have no rank."""
    judged = judged.take(judged.value > 0)
    n_documents = len(documents)
    _, hits, places = np.intersect1d(
        run.query * n_documents + run.document,
        judged.query * n_documents + judged.document,
        assume_unique=True,
        return_indices=True,
    )
    n_above, n_tied = _rank_rows(run, hits, documents, ties)
    is_lost = np.ones(len(judged.query), dtype=bool)
    is_lost[places] = False
    hit, lost = run.take(hits), judged.take(is_lost)
    n_listed = np.bincount(run.query, minlength=n_queries)
    found = _Slots(
        query=hit.query,
        n_above=n_above[hits],
        n_tied=n_tied[hits],
        document=hit.document,
        relevance=judged.value[places],
        score=hit.value,
    )
    not_found = _Slots(
        query=lost.query,
        n_above=n_listed[lost.query],
        n_tied=np.zeros(len(lost.query)),
        document=lost.document,
        relevance=lost.value,
        score=np.full(len(lost.query), -np.inf),
    )
    slots = _Slots(*map(np.concatenate, zip(found, not_found, strict=True)))
    order = np.lexsort((slots.n_above, slots.query))
    slots = _Slots(*(column[order] for column in slots))
    n_relevant = np.bincount(slots.query, minlength=n_queries)
    return SlotRanks(
        np.concatenate([[0], np.cumsum(n_relevant)]).astype(np.int64),
        slots.n_above.astype(np.int32),
        slots.n_tied.astype(np.int32),
        slots.document,
        slots.relevance,
        slots.score,
    )


def _rank_rows(
    run: NumberedRows, hits: np.ndarray, documents: dict[str, int], ties: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers of documents above each row of a run and tied with it."""
    if ties == "trec":
        order = order_rows(run, documents)
    else:
        is_irrelevant = np.ones(len(run.query), dtype=bool)
        is_irrelevant[hits] = False
        second = ~is_irrelevant if ties == "pessimistic" else is_irrelevant
        order = np.lexsort((second, -run.value, run.query))
    ordered = run.take(order)
    place = np.arange(len(order)) - np.searchsorted(ordered.query, ordered.query)
    size = np.ones(len(order), dtype=np.int64)
    if ties == "average":
        is_first = starts_run(ordered.query, ordered.value)
        group = np.cumsum(is_first) - 1
        place, size = place[is_first][group], np.bincount(group)[group]
    n_above, n_tied = np.empty((2, len(order)), dtype=np.int64)
    n_above[order], n_tied[order] = place, size
    return n_above, n_tied


# -- shared by both reports --


def bind_all_measures(
    k: int | ArrayLike, ties: str, interpolation: str, levels: np.ndarray
) -> tuple[dict[str, Callable[[Ranks], np.ndarray]], set[str]]:
    """Return the measures of a report, and the names of those that count the query."""
    shared = {"ties": ties, "interpolation": interpolation}
    measures: dict[str, Callable[[Ranks], np.ndarray]] = {}
    counts_self: set[str] = set()
    for measure in MEASURES.values():
        options = {o: value for o, value in shared.items() if o in measure.options}
        entries: dict[str, dict[str, int]] = {measure.name: {}}
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
    names: np.ndarray | None,
    levels: np.ndarray,
    values: dict[str, np.ndarray],
    empty: str,
) -> Bunch:
    """Return a report with the values of all measures per query."""
    for name in values.keys() - {"n_relevant"}:
        settle_empty(values[name], empty)
    return Bunch(query=names, recall_levels=levels, **values)
