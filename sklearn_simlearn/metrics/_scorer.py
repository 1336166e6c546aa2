"""Scorers for `scoring=`, and the report per query they are built on."""

from collections.abc import Callable
from copy import copy
from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from numpy.typing import ArrayLike
from sklearn.utils import Bunch
from sklearn.utils.metadata_routing import MetadataRequest

from sklearn_simlearn._core.dask import in_memory, read_partitions
from sklearn_simlearn._core.groups import (
    Sets,
    read_query_groups,
    refuse_mixed_sets,
    set_relevance,
)
from sklearn_simlearn._core.relevance import (
    check_query_mask,
    check_relevance,
    stack_targets,
)
from sklearn_simlearn._core.sklearn import StrOptions, num_samples, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.metrics._curve import (
    check_recall_levels,
    interpolated_precision,
)
from sklearn_simlearn.metrics._measure import (
    CUT,
    MEASURES,
    TIES,
    Ranks,
    rank_relevant_items,
)
from sklearn_simlearn.metrics._queries import (
    check_query_weight,
    mean_over_queries,
    rows_per_block,
    settle_empty,
)


class RetrievalScorer:
    """Scorer that ranks, for `scoring=` in cross-validation and searches.

    It scores a learner, a pipeline that ends in one (also nested), a search over
    either, and, as the baseline, any other transformer by the cosine of its output.

    Parameters
    ----------
    measure : {"map", "precision", "recall", "r_precision", "reciprocal_rank", \
            "ndcg", "top4"}, default="map"
        What is averaged over the queries; see :mod:`sklearn_simlearn.metrics`.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        What becomes of items of equal similarity; "threshold" goes with "map" only.

    empty : {"skip", "zero", "error"}, default="skip"
        What a query with no relevant item is worth.

    protocol : {"test", "train"}, default="test"
        What the samples to score are searched in: each of them queries all the
        others, or each queries the samples the estimator was fitted on. For the
        latter, wrap the estimator in
        :class:`~sklearn_simlearn.model_selection.KeepTrainingData`.

    n_jobs : int, default=None
        Threads over the queries.

    **options : dict
        Options of the measure, such as `k`, `interpolation` or `gain`; those that are
        left out have the defaults of its function.

    Notes
    -----
    A fold in which some query has no irrelevant item is refused: any similarity would
    be perfect on it, as with an unshuffled `KFold` on sorted labels.

    Junk and distractors are taken from `y`. With metadata routing, the scorer takes
    `query_mask`, `sample_weight` and `groups`; request them with `set_score_request`.

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
            "measure": [str],
            "ties": [StrOptions(set(TIES))],
            "empty": [StrOptions({"skip", "zero", "error"})],
            "protocol": [StrOptions({"test", "train"})],
            "n_jobs": [Integral, None],
        },
        prefer_skip_nested_validation=True,
    )
    def __init__(
        self,
        measure: str = "map",
        *,
        ties: str = "average",
        empty: str = "skip",
        protocol: str = "test",
        n_jobs: int | None = None,
        **options,
    ):
        if measure not in MEASURES:
            raise ValueError(
                f"There is no measure {measure!r}: choose from {', '.join(MEASURES)}."
            )
        MEASURES[measure].bind(ties=ties, **options)
        self.measure = measure
        self.ties = ties
        self.empty = empty
        self.protocol = protocol
        self.n_jobs = n_jobs
        self.options = options
        self._metadata_request = MetadataRequest(owner=self)

    def __repr__(self):
        shown = dict(self.options)
        for name, default in [
            ("ties", "average"),
            ("empty", "skip"),
            ("protocol", "test"),
            ("n_jobs", None),
        ]:
            if getattr(self, name) != default:
                shown[name] = getattr(self, name)
        arguments = "".join(f", {name}={value!r}" for name, value in shown.items())
        return f"RetrievalScorer({self.measure!r}{arguments})"

    def set_score_request(
        self,
        *,
        query_mask: bool | str | None = None,
        sample_weight: bool | str | None = None,
        groups: bool | str | None = None,
    ) -> "RetrievalScorer":
        """Say which metadata the scorer asks of a search or a cross-validation.

        Parameters
        ----------
        query_mask, sample_weight, groups : bool, str or None, default=None
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
            ("groups", groups),
        ]:
            scorer._metadata_request.score.add_request(param=name, alias=alias)
        return scorer

    def get_metadata_routing(self) -> MetadataRequest:
        """What the scorer asks for, in scikit-learn's terms.

        Returns
        -------
        request : MetadataRequest
            The metadata that it takes.
        """
        return self._metadata_request

    def __call__(
        self,
        estimator,
        X: MatrixLike,
        y,
        *,
        query_mask: ArrayLike | None = None,
        sample_weight: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> float:
        """Score a fitted estimator.

        Parameters
        ----------
        estimator : object
            A fitted learner, transformer, pipeline or search.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples to score. Those of a Dask collection stay on its cluster, where they
            are encoded and compared; blocks of similarities come from it.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; all that are relevant to something if None.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries. That of a set is their mean.

        groups : array-like of shape (n_samples,), default=None
            Set of each sample, for an estimator whose `similarity` takes `groups`: the
            samples of a set query together. An item is relevant to a set if it is
            relevant to all its members, and these are taken off its list. Samples of
            group -1 or None do not query.
            :func:`~sklearn_simlearn.model_selection.make_query_sets` draws groups.

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
        X = read_partitions(X)
        if sample_weight is not None:
            sample_weight = check_query_weight(sample_weight, X)
        measure = MEASURES[self.measure]
        sets, values = measure_queries(
            estimator,
            X,
            y,
            {self.measure: measure.bind(ties=self.ties, **self.options)},
            counts_self={self.measure} if measure.counts_self else frozenset(),
            graded=measure.is_graded,
            database=database,
            query_mask=query_mask,
            groups=groups,
            ties=self.ties,
            n_jobs=self.n_jobs,
        )
        weight = None
        if sample_weight is not None:
            weight = np.bincount(sets.of_row, sample_weight[sets.rows]) / sets.sizes
        return mean_over_queries(settle_empty(values[self.measure], self.empty), weight)


map_scorer = RetrievalScorer("map")


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
    estimator,
    X,
    y,
    *,
    X_database=None,
    y_database=None,
    query_mask=None,
    groups=None,
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

    y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
            PairwiseRelevance
        Labels, relevance matrix or relevance by pairs.

    X_database, y_database : default=None
        Samples to search in instead, with their targets.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query; all that are relevant to something if None.

    groups : array-like of shape (n_samples,), default=None
        Set of each sample, for an estimator whose `similarity` takes `groups`: the
        samples of a set query together; those of group -1 or None do not query. See
        :class:`RetrievalScorer`.

    k : int or sequence of int, default=(1, 10)
        Cut-offs of the measures whose names end in ``_at_k``.

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
        ``query`` (row of `X`, or group), ``n_relevant``, ``average_precision``,
        ``precision_at_1`` and so on for each `k`, ``recall_at_1`` ..., ``ndcg_at_1``
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
    database = None if X_database is None else (X_database, y_database)
    levels = check_recall_levels(recall_levels)
    shared = {"ties": ties, "interpolation": interpolation}
    measures, counts_self = {}, set()
    for measure in MEASURES.values():
        name = measure.name
        options = {o: value for o, value in shared.items() if o in measure.options}
        if name.endswith("_at_k"):
            bound = {f"{name[:-1]}{cut}": {"k": int(cut)} for cut in np.atleast_1d(k)}
        else:
            bound = {name: {}}
        for entry, cut in bound.items():
            measures[entry] = measure.bind(**options, **cut)
        if measure.counts_self:
            counts_self.update(bound)
    queries, values = measure_queries(
        estimator,
        X,
        y,
        measures
        | {
            "n_relevant": lambda ranks: ranks.n_relevant,
            "precision_recall": lambda ranks: interpolated_precision(ranks, levels),
        },
        counts_self=counts_self,
        graded=True,
        database=database,
        query_mask=query_mask,
        groups=groups,
        ties=ties,
        n_jobs=n_jobs,
    )
    for name in values.keys() - {"n_relevant"}:
        settle_empty(values[name], empty)
    return Bunch(query=queries.names, recall_levels=levels, **values)


def measure_queries(
    estimator,
    X: MatrixLike,
    y,
    measures: dict[str, Callable[[Ranks], np.ndarray]],
    *,
    counts_self=frozenset(),
    graded: bool = False,
    database: tuple | None = None,
    query_mask: ArrayLike | None = None,
    groups: ArrayLike | None = None,
    ties: str = "average",
    n_jobs: int | None = None,
) -> tuple[Sets, dict[str, np.ndarray]]:
    """Measure the rankings of an estimator, a block of queries at a time.

    Parameters
    ----------
    measures : dict of callable
        From :class:`Ranks` of some queries to one value, or row, for each.

    counts_self : set of str
        Measures for which a query is an item too, relevant to itself. For the others
        it is taken off its own list.

    graded : bool
        Whether some measure uses the weights in a relevance matrix.

    database : tuple (X, y) or None
        Items to search in; the other samples of `X` if None.

    groups : array-like of shape (n_samples,) or None
        Samples that query together; each on its own if None.

    Returns
    -------
    sets : Sets
        What queries: sets of samples, of one sample each without groups.

    values : dict of ndarray
        What each measure returned, one entry per set.
    """
    model = find_model(estimator)
    X, y = read_partitions(X), in_memory(y)
    n_samples = num_samples(X)
    relevance = check_relevance(y, n_samples=n_samples)
    sets = _find_sets(model, relevance, query_mask, groups)
    X = model.prepare(X)
    items, item_rows = X, slice(0, n_samples)
    if database is not None:
        items = model.prepare(read_partitions(database[0]))
        y_items = in_memory(database[1])
        relevance = check_relevance(
            stack_targets(y, y_items), n_samples=n_samples + num_samples(items)
        )
        item_rows = slice(n_samples, len(relevance))
    compare = model.compare_with(
        items, in_groups=groups is not None, n_threads=effective_n_jobs(n_jobs)
    )

    blocks = []
    n_items = num_samples(items)
    for _, block in sets.blocks(sets.sizes, rows_per_block(n_items, len(sets.rows))):
        relevant = set_relevance(relevance, block, item_rows, graded=graded)
        if database is None:
            relevant[block.of_row, block.rows] = -1
        refuse_perfect(relevant)
        similarity = compare(X, block.rows, block.of_row)
        if np.isnan(similarity).any():
            raise ValueError(
                f"The similarity of {estimator!r} is NaN for some pairs, so there is "
                "no ranking to score."
            )
        options = {"ties": ties, "n_jobs": n_jobs}
        ranks = ranks_with_self = rank_relevant_items(relevant, similarity, **options)
        if database is None and not counts_self.isdisjoint(measures):
            relevant = relevant.copy()
            relevant[block.of_row, block.rows] = 1
            ranks_with_self = rank_relevant_items(relevant, similarity, **options)
        blocks.append(
            [
                of_ranks(ranks_with_self if name in counts_self else ranks)
                for name, of_ranks in measures.items()
            ]
        )
    values = (np.concatenate(parts) for parts in zip(*blocks, strict=True))
    return sets, dict(zip(measures, values, strict=True))


def _find_sets(model, relevance, query_mask, groups):
    can_query = relevance.can_query
    if query_mask is not None:
        can_query = can_query & check_query_mask(query_mask, len(relevance))
    if groups is not None and not model.takes_groups:
        raise TypeError(
            "groups needs an estimator whose `similarity` takes groups, such as "
            f"MemoryVectorQuery; got {model.learner!r}."
        )
    sets = read_query_groups(groups, can_query)
    if len(sets.rows) == 0:
        raise ValueError(
            "There is no query: every sample is a distractor, or left out by "
            "query_mask or groups."
        )
    refuse_mixed_sets(relevance, sets)
    return sets


def refuse_perfect(relevant: np.ndarray) -> None:
    """Refuse queries without an irrelevant item, on which nothing is measured."""
    perfect = (relevant > 0).any(axis=1) & (relevant != 0).all(axis=1)
    if perfect.any():
        raise ValueError(
            f"{np.count_nonzero(perfect)} queries have no irrelevant item among those "
            "to rank, so any similarity would score 1 on them. If this is a fold of a "
            "cross-validation, split with StratifiedKFold, KFold(shuffle=True) or "
            "sklearn_simlearn.model_selection.ObjectKFold."
        )
