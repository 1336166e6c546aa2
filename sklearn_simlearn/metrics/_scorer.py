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
from sklearn_simlearn._core.targets import TargetLike
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
    """Scorer of rankings, for `scoring=` in cross-validation and searches.

    It scores a learner, a (nested) pipeline that ends in a learner, or a search over
    one of these. Any other transformer is scored by the cosine of its output, as a
    baseline.

    Parameters
    ----------
    measure : {"map", "precision", "recall", "r_precision", "reciprocal_rank", \
            "ndcg", "top4"}, default="map"
        Measure that is averaged over the queries; see
        :mod:`sklearn_simlearn.metrics`.

    ties : {"average", "threshold", "optimistic", "pessimistic", "index"}, \
            default="average"
        Order of items of equal similarity, as for :func:`average_precision`.
        "threshold" requires the measure "map".

    empty : {"skip", "zero", "error"}, default="skip"
        Result for queries without a relevant item, as for :func:`average_precision`.

    protocol : {"test", "train"}, default="test"
        Items that the samples query: the other samples ("test"), or the training
        samples of the estimator ("train"). For "train", wrap the estimator in a
        :class:`~sklearn_simlearn.model_selection.KeepTrainingData`.

    n_jobs : int, default=None
        Number of threads.

    **options : dict
        Options of the measure, such as `k`, `interpolation` or `gain`. The function of
        the measure lists them with their defaults.

    Notes
    -----
    The scorer raises an error if a query has no irrelevant item, since any similarity
    would then rank perfectly. This happens with an unshuffled `KFold` on sorted labels.

    Junk and distractors are read from `y`. With metadata routing, the scorer accepts
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
                f"Unknown measure {measure!r}. Choose from {', '.join(MEASURES)}."
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
        """Request metadata from a search or a cross-validation.

        Parameters
        ----------
        query_mask, sample_weight, groups : bool, str or None, default=None
            True requests the metadata, a string requests them under this name.

        Returns
        -------
        scorer : RetrievalScorer
            A copy of the scorer with these requests.
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
        """Return the requested metadata.

        Returns
        -------
        request : MetadataRequest
            Request of the scorer.
        """
        return self._metadata_request

    def __call__(
        self,
        estimator: Any,
        X: MatrixLike,
        y: TargetLike,
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
            Samples to score. Samples of a Dask collection are encoded and compared on
            its cluster, which returns blocks of similarities.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), \
                PairwiseRelevance or Judgements
            Labels, relevance matrix or relevance by pairs. With :class:`Judgements`,
            the samples are queries, and all documents of the judgements are ranked for
            each.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query. If None, every sample with a relevant item queries.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries. The weight of a set is their mean.

        groups : array-like of shape (n_samples,), default=None
            Set of each sample, for an estimator whose `similarity` takes `groups`. The
            samples of a set query together. An item is relevant to a set if it is
            relevant to all its members. The members are not ranked. Samples of group -1
            or None do not query.
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
                    'protocol="train" searches the training samples, but Judgements '
                    'contain the documents to search. Use protocol="test".'
                )
            database = find_model(estimator).database
            if database is None:
                raise ValueError(
                    'protocol="train" searches the training samples, but the estimator '
                    "does not keep them. Wrap it: KeepTrainingData(estimator), from "
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
