"""Scorers for `scoring=`, and the per-query report they are built on."""

from copy import copy
from dataclasses import dataclass
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import normalize
from sklearn.utils import Bunch, _safe_indexing, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions, validate_params
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.metadata_routing import MetadataRequest
from sklearn.utils.validation import (
    _check_sample_weight,
    _num_samples,
    check_is_fitted,
)

from sklearn_simlearn._relevance import check_relevance, stack_targets
from sklearn_simlearn.metrics import _ranking
from sklearn_simlearn.metrics._ranking import (
    TIES,
    check_recall_levels,
    mean_over_queries,
    rank_relevant_items,
    rows_per_block,
    settle_empty,
)

# Each measure with the options of the scorer that it takes.
MEASURES = {
    "map": (_ranking._average_precision, ("k", "ties", "interpolation")),
    "precision": (_ranking._precision_at_k, ("k",)),
    "recall": (_ranking._recall_at_k, ("k",)),
    "r_precision": (_ranking._r_precision, ()),
    "reciprocal_rank": (_ranking._reciprocal_rank, ("k",)),
    "ndcg": (_ranking._ndcg_at_k, ("k", "ties")),
    "top4": (_ranking._top4_score, ()),
}


class RetrievalScorer:
    """Scorer that ranks, for `scoring=` in cross-validation and searches.

    It scores a learner, a pipeline that ends in one (also nested), a search over
    either, and, as the baseline, any other transformer by the cosine of its output.

    Parameters
    ----------
    measure : {"map", "precision", "recall", "r_precision", "reciprocal_rank", \
            "ndcg", "top4"}, default="map"
        What is averaged over the queries; see :mod:`sklearn_simlearn.metrics`.

    k : int, default=None
        Cut-off of the measure. "precision" and "recall" need one.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        What becomes of items of equal similarity; "threshold" goes with "map" only.

    interpolation : {"step", "trapezoid"}, default="step"
        How "map" integrates the precision-recall curve.

    empty : {"skip", "zero", "error"}, default="skip"
        What a query with no relevant item is worth.

    protocol : {"test", "train"}, default="test"
        What the samples to score are searched in: each of them queries all the
        others, or each queries the samples the estimator was fitted on. For the
        latter, wrap the estimator in
        :class:`~sklearn_simlearn.model_selection.KeepTrainingData`.

    n_jobs : int, default=None
        Threads over the queries.

    Notes
    -----
    A fold in which some query has no irrelevant item is refused: any similarity would
    be perfect on it, as with an unshuffled `KFold` on sorted labels.

    Junk and distractors are taken from `y`. With metadata routing, the scorer takes
    `query_mask` and `sample_weight`; request them with `set_score_request`.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.decomposition import PCA
    >>> from sklearn.model_selection import GridSearchCV, StratifiedKFold
    >>> from sklearn_simlearn.metrics import RetrievalScorer
    >>> X, y = load_digits(n_class=4, return_X_y=True)
    >>> search = GridSearchCV(
    ...     PCA(random_state=0),
    ...     {"n_components": [2, 8]},
    ...     scoring=RetrievalScorer("precision", k=10),
    ...     cv=StratifiedKFold(3),
    ... ).fit(X, y)
    >>> search.best_params_
    {'n_components': 8}
    """

    @validate_params(
        {
            "measure": [StrOptions(set(MEASURES))],
            "k": [Interval(Integral, 1, None, closed="left"), None],
            "ties": [StrOptions(set(TIES))],
            "interpolation": [StrOptions({"step", "trapezoid"})],
            "empty": [StrOptions({"skip", "zero", "error"})],
            "protocol": [StrOptions({"test", "train"})],
            "n_jobs": [Integral, None],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        measure="map",
        *,
        k=None,
        ties="average",
        interpolation="step",
        empty="skip",
        protocol="test",
        n_jobs=None,
    ):
        if measure in ("precision", "recall") and k is None:
            raise ValueError(f'measure="{measure}" needs a cut-off k.')
        if measure in ("r_precision", "top4") and k is not None:
            raise ValueError(f'measure="{measure}" has its own cut-off: leave out k.')
        if ties == "threshold" and (measure != "map" or k is not None):
            raise ValueError(
                'ties="threshold" has no ranks, so it goes with measure="map" and '
                'k=None only. Use ties="average".'
            )
        self.measure = measure
        self.k = k
        self.ties = ties
        self.interpolation = interpolation
        self.empty = empty
        self.protocol = protocol
        self.n_jobs = n_jobs
        self._metadata_request = MetadataRequest(owner=self)

    def __repr__(self):
        options = "".join(
            f", {name}={value!r}"
            for name, value, default in [
                ("k", self.k, None),
                ("ties", self.ties, "average"),
                ("interpolation", self.interpolation, "step"),
                ("empty", self.empty, "skip"),
                ("protocol", self.protocol, "test"),
                ("n_jobs", self.n_jobs, None),
            ]
            if value != default
        )
        return f"RetrievalScorer({self.measure!r}{options})"

    def set_score_request(self, *, query_mask=None, sample_weight=None):
        """Say which metadata the scorer asks of a search or a cross-validation.

        Parameters
        ----------
        query_mask, sample_weight : bool, str or None, default=None
            True to ask for it, a string to ask for it under that name.

        Returns
        -------
        self : RetrievalScorer
            A scorer with these requests; the one it is called on is left as it was.
        """
        scorer = copy(self)
        scorer._metadata_request = MetadataRequest(owner=self)
        for name, alias in [
            ("query_mask", query_mask),
            ("sample_weight", sample_weight),
        ]:
            scorer._metadata_request.score.add_request(param=name, alias=alias)
        return scorer

    def get_metadata_routing(self):
        """What the scorer asks for, in scikit-learn's terms."""
        return self._metadata_request

    def __call__(self, estimator, X, y, *, query_mask=None, sample_weight=None):
        """Score a fitted estimator.

        Parameters
        ----------
        estimator : object
            A fitted learner, transformer, pipeline or search.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples to score.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels or relevance matrix.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; all that are relevant to something if None.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries.

        Returns
        -------
        score : float
            Larger is better.
        """
        database = None
        if self.protocol == "train":
            database = find_model(estimator).database
            if database is None:
                raise ValueError(
                    'protocol="train" needs the training samples to search in. Wrap '
                    "the estimator: KeepTrainingData(estimator), from "
                    "sklearn_simlearn.model_selection."
                )
        if sample_weight is not None:
            sample_weight = _check_sample_weight(sample_weight, X)
        measure, options = MEASURES[self.measure]
        options = {name: getattr(self, name) for name in options}
        queries, values = measure_queries(
            estimator,
            X,
            y,
            {self.measure: partial(measure, **options)},
            self_counts={"top4"},
            graded=self.measure == "ndcg",
            database=database,
            query_mask=query_mask,
            ties=self.ties,
            n_jobs=self.n_jobs,
        )
        weight = None if sample_weight is None else sample_weight[queries]
        return mean_over_queries(settle_empty(values[self.measure], self.empty), weight)


map_scorer = RetrievalScorer("map")
precision_at_1_scorer = RetrievalScorer("precision", k=1)
precision_at_10_scorer = RetrievalScorer("precision", k=10)
recall_at_10_scorer = RetrievalScorer("recall", k=10)
r_precision_scorer = RetrievalScorer("r_precision")
reciprocal_rank_scorer = RetrievalScorer("reciprocal_rank")
ndcg_scorer = RetrievalScorer("ndcg")
top4_scorer = RetrievalScorer("top4")


@validate_params(
    {
        "k": ["array-like", Interval(Integral, 1, None, closed="left")],
        "query_mask": ["array-like", None],
        "ties": [StrOptions(set(TIES) - {"threshold"})],
        "interpolation": [StrOptions({"step", "trapezoid"})],
        "empty": [StrOptions({"skip", "zero", "error"})],
        "recall_levels": ["array-like", None],
        "n_jobs": [Integral, None],
    },
    prefer_skip_nested_validation=True,
)
def retrieval_report(
    estimator,
    X,
    y,
    *,
    X_database=None,
    y_database=None,
    query_mask=None,
    k=(1, 10),
    ties="average",
    interpolation="step",
    empty="skip",
    recall_levels=None,
    n_jobs=None,
):
    """Every measure of a fitted estimator, query by query.

    Parameters
    ----------
    estimator : object
        A fitted learner, pipeline or search; any other transformer is measured by the
        cosine of its output.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples, each of which queries all the others.

    y : array-like of shape (n_samples,) or (n_samples, n_columns)
        Labels or relevance matrix.

    X_database, y_database : default=None
        Samples to search in instead, with their targets.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query; all that are relevant to something if None.

    k : int or sequence of int, default=(1, 10)
        Cut-offs for precision, recall and nDCG.

    ties : {"average", "optimistic", "pessimistic", "index"}, default="average"
        What becomes of items of equal similarity.

    interpolation : {"step", "trapezoid"}, default="step"
        How average precision integrates the precision-recall curve.

    empty : {"skip", "zero", "error"}, default="skip"
        What a query with no relevant item is worth; with "skip" its values are NaN.

    recall_levels : array-like of shape (n_levels,), default=None
        Recall levels of the precision-recall curves; 0, 0.01, ..., 1 if None.

    n_jobs : int, default=None
        Threads over the queries.

    Returns
    -------
    report : :class:`~sklearn.utils.Bunch`
        ``query`` (row of `X`), ``n_relevant``, ``average_precision``,
        ``precision_at_1`` and so on for each `k`, ``recall_at_1`` ..., ``ndcg_at_1``
        ..., ``r_precision``, ``reciprocal_rank``, ``top4_score`` (the query itself
        counting unless there is a database), arrays with one entry a query; and
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
    database = None if X_database is None else (X_database, y_database)
    levels = check_recall_levels(recall_levels)
    cuts = [int(cut) for cut in np.atleast_1d(k)]
    measures = {
        "n_relevant": lambda ranks: ranks.n_relevant,
        "average_precision": partial(
            _ranking._average_precision, ties=ties, interpolation=interpolation, k=None
        ),
        "r_precision": _ranking._r_precision,
        "reciprocal_rank": partial(_ranking._reciprocal_rank, k=None),
        "top4_score": _ranking._top4_score,
        "precision_recall": partial(_ranking._interpolated_precision, levels=levels),
    }
    for cut in cuts:
        measures |= {
            f"precision_at_{cut}": partial(_ranking._precision_at_k, k=cut),
            f"recall_at_{cut}": partial(_ranking._recall_at_k, k=cut),
            f"ndcg_at_{cut}": partial(_ranking._ndcg_at_k, k=cut, ties=ties),
        }
    queries, values = measure_queries(
        estimator,
        X,
        y,
        measures,
        self_counts={"top4_score"},
        graded=True,
        database=database,
        query_mask=query_mask,
        ties=ties,
        n_jobs=n_jobs,
    )
    for name in measures.keys() - {"n_relevant"}:
        settle_empty(values[name], empty)
    return Bunch(query=queries, recall_levels=levels, **values)


def measure_queries(
    estimator,
    X,
    y,
    measures,
    *,
    self_counts=frozenset(),
    graded=False,
    database=None,
    query_mask=None,
    ties="average",
    n_jobs=None,
):
    """Measure the rankings of an estimator, a block of queries at a time.

    Parameters
    ----------
    measures : dict of callable
        From :class:`Ranks` of some queries to one value, or row, for each.

    self_counts : set of str
        Measures for which a query is an item too, relevant to itself. For the others
        it is taken off its own list.

    graded : bool
        Whether some measure uses the weights in a relevance matrix.

    database : tuple (X, y) or None
        Items to search in; the other samples of `X` if None.

    Returns
    -------
    queries : ndarray of shape (n_queries,)
        Samples that query.

    values : dict of ndarray
        What each measure returned, for all queries.
    """
    model = find_model(estimator)
    n_samples = _num_samples(X)
    relevance = check_relevance(y, n_samples=n_samples)
    can_query = relevance.can_query
    if query_mask is not None:
        can_query = can_query & check_query_mask(query_mask, n_samples)
    queries = np.flatnonzero(can_query)
    if len(queries) == 0:
        raise ValueError(
            "There is no query: every sample is a distractor or left out by query_mask."
        )
    X = model.encode(X)
    items, item_rows = X, slice(0, n_samples)
    if database is not None:
        items, y_items = model.encode(database[0]), database[1]
        relevance = check_relevance(
            stack_targets(y, y_items), n_samples=n_samples + _num_samples(items)
        )
        item_rows = slice(n_samples, len(relevance))

    blocks = []
    n_items = _num_samples(items)
    for batch in gen_batches(len(queries), rows_per_block(n_items, len(queries))):
        rows = queries[batch]
        similarity = np.asarray(model.similarity(_safe_indexing(X, rows), items))
        if np.isnan(similarity).any():
            raise ValueError(
                f"The similarity of {estimator!r} is NaN for some pairs, so there is "
                "no ranking to score."
            )
        find_relevance = relevance.graded_block if graded else relevance.block
        relevant = find_relevance(rows, item_rows)
        if database is None:
            relevant[np.arange(len(rows)), rows] = -1
        refuse_perfect(relevant)
        rank = partial(rank_relevant_items, ties=ties, n_jobs=n_jobs)
        ranks = ranks_with_self = rank(relevant, similarity)
        if database is None and not self_counts.isdisjoint(measures):
            relevant = relevant.copy()
            relevant[np.arange(len(rows)), rows] = 1
            ranks_with_self = rank(relevant, similarity)
        blocks.append(
            [
                measure(ranks_with_self if name in self_counts else ranks)
                for name, measure in measures.items()
            ]
        )
    values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return queries, dict(zip(measures, values, strict=True))


def check_query_mask(query_mask, n_samples):
    query_mask = np.asarray(query_mask)
    if query_mask.shape != (n_samples,) or query_mask.dtype != bool:
        raise ValueError(
            f"query_mask must hold one boolean for each of the {n_samples} samples; "
            f"got shape {query_mask.shape} and dtype {query_mask.dtype}."
        )
    return query_mask


def refuse_perfect(relevant):
    perfect = (relevant > 0).any(axis=1) & (relevant != 0).all(axis=1)
    if perfect.any():
        raise ValueError(
            f"{np.count_nonzero(perfect)} queries have no irrelevant item among those "
            "to rank, so any similarity would score 1 on them. If this is a fold of a "
            "cross-validation, split with StratifiedKFold, KFold(shuffle=True) or "
            "sklearn_simlearn.model_selection.ObjectKFold."
        )


@dataclass
class Model:
    """What an estimator comes down to: encode the samples, then compare them.

    Attributes
    ----------
    steps : list of transformers
        Applied in turn to queries and items alike.

    learner : object or None
        Compares what comes out; None stands for the cosine.

    database : tuple (X, y) or None
        Training samples, if the estimator kept them.
    """

    steps: list
    learner: object
    database: tuple | None

    def encode(self, X):
        for step in self.steps:
            X = step.transform(X)
        return normalize(X) if self.learner is None else X

    def similarity(self, X, Y):
        if self.learner is None:
            return safe_sparse_dot(X, Y.T, dense_output=True)
        return self.learner.similarity(X, Y)


def find_model(estimator):
    """Look through searches and pipelines for the learner at their end."""
    check_is_fitted(estimator)
    inner, steps, database = estimator, [], None
    while not hasattr(inner, "similarity"):
        if isinstance(inner, Pipeline):
            *head, (_, inner) = inner.steps
            steps += [step for _, step in head if step not in (None, "passthrough")]
        elif isinstance(inner, FrozenEstimator):
            inner = inner.estimator
        elif hasattr(inner, "best_estimator_"):
            inner = inner.best_estimator_
        elif hasattr(inner, "training_data_"):
            if not steps:
                database = inner.training_data_
            inner = inner.estimator_
        elif inner in (None, "passthrough"):
            return Model(steps, None, database)
        elif hasattr(inner, "transform"):
            return Model(steps + [inner], None, database)
        else:
            raise TypeError(
                f"A retrieval score needs an estimator with `similarity` or "
                f"`transform`; got {inner!r}."
            )
    return Model(steps, inner, database)
