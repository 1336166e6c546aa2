"""Estimator that keeps its training data."""

from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn import get_config
from sklearn.base import BaseEstimator, MetaEstimatorMixin, clone
from sklearn.utils import Tags, get_tags
from sklearn.utils.metadata_routing import (
    MetadataRouter,
    MethodMapping,
    process_routing,
)

from sklearn_simlearn._core.sklearn import DocLinkMixin, HasMethods, fit_context
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.metrics import RetrievalScorer


class KeepTrainingData(DocLinkMixin, MetaEstimatorMixin, BaseEstimator):
    """Fit an estimator and keep its training samples as a database to search.

    In a cross-validation, the scorer receives the test samples only. This wrapper keeps
    the training fold, and ``RetrievalScorer(protocol="train")`` lets the test samples
    query it. Wrap the whole pipeline, so that raw samples are kept and both sides pass
    through the same steps.

    Parameters
    ----------
    estimator : object
        A learner, a pipeline that ends in one, or a search over one of them. The
        output of any other transformer is ranked by the cosine.

    Attributes
    ----------
    estimator_ : object
        The fitted clone of `estimator`.

    training_data_ : tuple (X, y)
        Training samples and targets.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.model_selection import StratifiedKFold, cross_val_score
    >>> from sklearn_simlearn.metrics import RetrievalScorer
    >>> from sklearn_simlearn.model_selection import KeepTrainingData
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digits(n_class=5, return_X_y=True)
    >>> cross_val_score(
    ...     KeepTrainingData(CosineSimilarity()),
    ...     X,
    ...     y,
    ...     scoring=RetrievalScorer(protocol="train"),
    ...     cv=StratifiedKFold(3),
    ... ).round(2)
    array([0.7 , 0.69, 0.69])
    """

    _parameter_constraints: dict[str, Any] = {"estimator": [HasMethods("fit")]}

    def __init__(self, estimator: Any) -> None:
        self.estimator = estimator

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X: MatrixLike, y: TargetLike, **params: Any) -> Self:
        """Fit a clone of the estimator and keep the samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        **params : dict
            Parameters of the `fit` of the estimator.

        Returns
        -------
        self : object
            The estimator itself.
        """
        if get_config()["enable_metadata_routing"]:
            params = process_routing(self, "fit", **params).estimator.fit
        self.estimator_ = clone(self.estimator).fit(X, y, **params)
        self.training_data_ = (X, y)
        return self

    def score(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: ArrayLike | None = None,
        *,
        query_mask: ArrayLike | None = None,
        groups: ArrayLike | None = None,
    ) -> float:
        """Return the mean average precision; samples query the training samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Queries.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Their labels or relevance matrix.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the queries.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; if None, every sample that has a relevant one.

        groups : array-like of shape (n_samples,), default=None
            Set of each sample, for an estimator whose `similarity` takes `groups`.

        Returns
        -------
        score : float
            Between 0 and 1.
        """
        return RetrievalScorer(protocol="train")(
            self,
            X,
            y,
            sample_weight=sample_weight,
            query_mask=query_mask,
            groups=groups,
        )

    @property
    def n_features_in_(self) -> int:
        """Number of features seen in `fit`."""
        return self.estimator_.n_features_in_

    def get_metadata_routing(self) -> MetadataRouter:
        """Return the metadata routing of the estimator.

        Returns
        -------
        router : MetadataRouter
            Routing of the metadata.
        """
        mapping = MethodMapping().add(caller="fit", callee="fit")
        return (
            MetadataRouter(owner=self)
            .add_self_request(self)
            .add(estimator=self.estimator, method_mapping=mapping)
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        inner = get_tags(self.estimator)
        tags.input_tags = inner.input_tags
        tags.target_tags = inner.target_tags
        return tags
