"""Scorers for `scoring=`."""

from copy import copy
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.metadata_routing import MetadataRequest

from sklearn_simlearn._core.dask import read_partitions
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.sklearn import StrOptions, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.metrics._measure import MEASURES, TIES
from sklearn_simlearn.metrics._queries import (
    check_query_weight,
    mean_over_queries,
    measure_queries,
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
        **options: Any,
    ) -> None:
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

    def __repr__(self) -> str:
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
        estimator: Any,
        X: MatrixLike,
        y: Any,
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

        y : array-like of shape (n_samples,) or (n_samples, n_columns), \
                PairwiseRelevance or Judgements
            Labels, relevance matrix or relevance by pairs. With :class:`Judgements`,
            the samples are queries, and all its documents are ranked for each of them.

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
            if isinstance(y, Judgements):
                raise ValueError(
                    'protocol="train" searches in the training samples, and Judgements '
                    'have documents to search in: use protocol="test".'
                )
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
