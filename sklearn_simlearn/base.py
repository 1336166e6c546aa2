"""Mixins of similarities, and the base class of learners."""

from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from inspect import signature
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import Tags, get_tags
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.choice import ChoiceMixin, warn_if_start_is_kept
from sklearn_simlearn._core.dask import is_partitioned
from sklearn_simlearn._core.docstrings import add_shared_attributes
from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.judgements import (
    Judgements,
    check_judgements,
    naming_documents,
)
from sklearn_simlearn._core.relevance import Relevance, check_relevance
from sklearn_simlearn._core.rows import check_rows, stack_rows
from sklearn_simlearn._core.sklearn import (
    KEPT_ATTRIBUTES,
    DocLinkMixin,
    as_configured,
    fit_context,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn._core.triplets import check_triplets, judge_triplets
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.metrics import map_scorer

__all__ = ["EncodedSimilarityMixin", "Encoder", "SimilarityLearner", "SimilarityMixin"]


class SimilarityMixin(DocLinkMixin):
    """Mixin for estimators that compare a query with the items of a database.

    An estimator must define a method `similarity`. This class provides `score`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator
    >>> from sklearn_simlearn.base import SimilarityMixin
    >>> class Intersection(SimilarityMixin, BaseEstimator):
    ...     def fit(self, X, y=None):
    ...         return self
    ...
    ...     def similarity(self, X, Y=None):
    ...         Y = X if Y is None else Y
    ...         return np.minimum(X[:, None], Y[None]).sum(axis=2)
    ...
    ...     def __sklearn_is_fitted__(self):
    ...         return True
    >>> X = np.array([[3, 0], [2, 0], [0, 4], [1, 5]])
    >>> Intersection().score(X, [0, 0, 1, 1])
    1.0
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        add_shared_attributes(cls)

    def score(
        self,
        X: MatrixLike,
        y: TargetLike,
        sample_weight: ArrayLike | None = None,
        *,
        query_mask: ArrayLike | None = None,
    ) -> float:
        """Return the mean average precision; each sample queries the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive if a sample is relevant, negative if it is junk; or a
            :class:`~sklearn_simlearn.metrics.PairwiseRelevance`.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; if None, every sample that has a relevant one.

        Returns
        -------
        score : float
            Between 0 and 1. See :class:`~sklearn_simlearn.metrics.RetrievalScorer` for
            other measures.
        """
        return map_scorer(
            self, X, y, sample_weight=sample_weight, query_mask=query_mask
        )

    def _check_rows(self, X: MatrixLike, *, reset: bool = False) -> Matrix:
        """Return checked samples."""
        return check_rows(self, X, reset=reset)

    def _check_items(self, X: MatrixLike) -> Matrix:
        """Check items, which are of another width than queries in some learners."""
        return self._check_rows(X)

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()  # type: ignore[misc]
        tags.input_tags.sparse = True
        return tags


class EncodedSimilarityMixin(
    SimilarityMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin
):
    r"""Mixin for similarities that are inner products.

    The similarity of an encoded query (the *surrogate query*) and an encoded item is

    .. math:: s(q, d) = \langle \phi(q), \psi(d) \rangle .

    The `fit` of an estimator sets `encoder_`, an
    :class:`~sklearn_simlearn.base.Encoder` with :math:`\phi` as its method `queries`
    and :math:`\psi` as its method `items`. The mixin provides the other methods.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.base import BaseEstimator
    >>> from sklearn_simlearn.base import EncodedSimilarityMixin, Encoder
    >>> class RootRows(Encoder):
    ...     def items(self, X):
    ...         X = np.sqrt(X)
    ...         return X / np.linalg.norm(X, axis=1, keepdims=True)
    >>> class RootCosine(EncodedSimilarityMixin, BaseEstimator):
    ...     def fit(self, X, y=None):
    ...         self._check_rows(X, reset=True)
    ...         self.encoder_ = RootRows()
    ...         return self
    >>> X = np.array([[9.0, 16.0], [16.0, 9.0]])
    >>> RootCosine().fit(X).similarity(X)
    array([[1.  , 0.96],
           [0.96, 1.  ]])
    """

    encoder_: Any

    # Whether items have another width than queries.
    _has_two_widths = False

    def similarity(self, X: MatrixLike, Y: MatrixLike | None = None) -> np.ndarray:
        """Return the similarity of every row of `X` to every row of `Y`.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Y : {array-like, sparse matrix} of shape (n_items, n_features), default=None
            Items; `X` itself if None.

        Returns
        -------
        S : ndarray of shape (n_queries, n_items)
            Larger is more similar.
        """
        check_is_fitted(self)
        Y = X if Y is None else Y
        is_same = Y is X and not self._has_two_widths
        rows = self._check_rows(X)
        items = rows if is_same else self._check_items(Y)
        n_threads = count_threads(getattr(self, "n_jobs", None))
        return Sides(rows, items, n_threads).similarity(self.encoder_)

    def transform(self, X: MatrixLike) -> Matrix:
        """Encode queries.

        Their inner products with the rows of `transform_database` are the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Q : ndarray or sparse CSR of shape (n_queries, n_features_out)
            The surrogate queries.
        """
        check_is_fitted(self)
        return as_configured(self.encoder_.queries(self._check_rows(X)))

    def transform_database(self, X: MatrixLike) -> Matrix:
        """Encode items, as an inner-product index stores them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        Returns
        -------
        D : ndarray or sparse CSR of shape (n_items, n_features_out)
            The items to store.
        """
        check_is_fitted(self)
        return as_configured(self.encoder_.items(self._check_items(X)))

    @property
    def _n_features_out(self) -> int:
        """Return the number of columns of the encodings."""
        shape = (1, self.n_features_in_)
        is_sparse = get_tags(self).input_tags.sparse
        zeros = sparse.csr_array(shape) if is_sparse else np.zeros(shape)
        return self.encoder_.queries(zeros).shape[1]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


class SimilarityLearner(
    ChoiceMixin, EncodedSimilarityMixin, CallbackSupportMixin, BaseEstimator
):
    """Base class of the learners, which implements `fit`.

    A learner implements `_learn`, which returns the fitted attributes, with the
    :class:`~sklearn_simlearn.base.Encoder` that it learned as `encoder_`. `fit` checks
    the parameters, `X` and `y`, calls `_learn`, and then replaces all attributes of an
    earlier fit. A fit that fails or is interrupted changes nothing. :ref:`new_learner`
    shows a learner with a hold-out.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn.base import Encoder, SimilarityLearner
    >>> class Centred(Encoder):
    ...     def __init__(self, mean):
    ...         self.mean = mean
    ...
    ...     def items(self, X):
    ...         X = X - self.mean
    ...         return X / (X**2).sum(axis=1, keepdims=True) ** 0.5
    >>> class CentredCosine(SimilarityLearner):
    ...     def _learn(self, X, relevance, advance):
    ...         return {"encoder_": Centred(X.mean(axis=0))}
    >>> X, y = load_iris(return_X_y=True)
    >>> round(CentredCosine().fit(X, y).score(X, y), 2)
    0.76
    """

    _parameter_constraints: dict[str, Any] = {}

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: TargetLike) -> Self:
        """Learn the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            whose positive values are weights and whose negative ones mark junk; or a
            :class:`~sklearn_simlearn.metrics.PairwiseRelevance`. With
            :class:`~sklearn_simlearn.metrics.Judgements`, the samples are queries, and
            the documents that they search come with `y`.

        Returns
        -------
        self : object
            The estimator itself.
        """
        self._refuse_unused()
        with replacing_state(self):
            if is_partitioned(X):
                self.__dict__.update(self._learn_partitions(X, y))
                return self
            rows, relevance = self._read_sides(X, y)
            relevance.require_triplets()
            with callback_steps(self, X, y) as advance:
                attributes = self._learn(rows, relevance, advance)
                self.__dict__.update(attributes)
            self._is_judged = isinstance(y, Judgements)
            warn_if_start_is_kept(self, attributes)
        return self

    def _unused_parameters(self) -> dict[str, str]:
        """Return names of parameters that this form does not use, with the form."""
        return {}

    def _refuse_unused(self) -> None:
        """Raise if a parameter without effect differs from its default."""
        defaults = signature(type(self)).parameters
        of_paper = getattr(self, "_paper_parameters", {})
        for name, form in self._unused_parameters().items():
            value, default = getattr(self, name), defaults[name].default
            if value not in (default, of_paper.get(name, default)):
                raise ValueError(
                    f"{name}={value!r} has no effect with {form}: leave {name} at its "
                    f"default, {default!r}."
                )

    def _read_sides(self, X: MatrixLike, y: TargetLike) -> tuple[Any, Relevance]:
        """Return checked rows and their relevance; documents follow the queries."""
        rows = self._check_rows(X, reset=True)
        if not isinstance(y, Judgements):
            return rows, check_relevance(y, n_samples=rows.shape[0])
        check_judgements(y, rows.shape[0])
        with naming_documents():
            rows = self._stack(rows, y.documents)
        return rows, JudgedRelevance.of(y.relevance)

    def _stack(self, rows: Matrix, documents: MatrixLike) -> Any:
        """Return checked queries on top of documents, which are checked as well."""
        return stack_rows(rows, self._check_rows(documents))

    def _learn(
        self, X: Matrix, relevance: Relevance, advance: Callable[..., bool]
    ) -> dict[str, Any]:
        """Return the fitted attributes, including `encoder_`.

        The rows are checked, and `relevance` holds a triplet. ``advance(name,
        describe)`` reports a step to the callbacks, with a function that returns the
        attributes so far. It returns True if a callback asks to stop.
        """
        raise NotImplementedError

    def _learn_partitions(self, X: Any, y: Any) -> dict[str, Any]:
        """Return the fitted attributes, learned from Dask collections."""
        raise TypeError(
            f"{type(self).__name__}.fit needs samples in memory, but X is a Dask "
            "collection. Call X.compute() if X fits into memory; otherwise use OASIS "
            "or a learner with `partial_fit`."
        )

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        return tags


class TripletLearner(SimilarityLearner):
    """Base class of the learners that also learn from given triplets.

    `_learn` of a subclass takes them as the argument `triplets`, an array of checked
    rows of `X`, and a relevance that agrees with them.
    """

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit_triplets(self, X: MatrixLike, triplets: ArrayLike) -> Self:
        """Learn from given triplets, with a hold-out of queries as in `fit`.

        Held-out queries search all samples except those that occur only as queries. The
        relevance of a sample to a query is the share of its comparisons that the sample
        wins. A fold learns from the triplets without a held-out query. With
        ``holdout=None``, `fit_triplets` learns from all triplets and compares nothing
        with the start.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples; for triplets of queries and documents, both in one array.

        triplets : array-like of shape (n_triplets, 3), dtype int
            Rows of `X`: a query, a sample that is relevant to it, and one that is not,
            or less so. See :func:`~sklearn_simlearn.metrics.judgements_from_triplets`
            for triplets by id.

        Returns
        -------
        self : object
            The estimator itself.
        """
        self._refuse_unused()
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            triplets = check_triplets(triplets, rows.shape[0])
            relevance = judge_triplets(triplets, rows.shape[0])
            with callback_steps(self, X, None) as advance:
                attributes = self._learn(rows, relevance, advance, triplets)
                self.__dict__.update(attributes)
            warn_if_start_is_kept(self, attributes)
        return self

    @abstractmethod
    def _learn(
        self,
        X: Matrix,
        relevance: Relevance,
        advance: Callable[..., bool],
        triplets: np.ndarray | None = None,
    ) -> dict[str, Any]:
        """Return the fitted attributes, as in :class:`SimilarityLearner`."""


@contextmanager
def replacing_state(estimator: Any, *, afresh: bool = True) -> Iterator[None]:
    """Keep the new state if the block succeeds; restore the old state if it fails.

    The state is every attribute except parameters and callbacks. With `afresh`, the
    block starts without the old state, so that no attribute of an earlier fit
    survives. `partial_fit` continues from the old state instead.
    """
    before = _state(estimator)
    if afresh:
        _forget(estimator)
    try:
        yield
    except BaseException:
        _forget(estimator)
        estimator.__dict__.update(before)
        raise


def _state(estimator: Any) -> dict[str, Any]:
    kept = KEPT_ATTRIBUTES | set(estimator.get_params(deep=False))
    return {
        name: value
        for name, value in vars(estimator).items()
        if name not in kept and (name.startswith("_") or name.endswith("_"))
    }


def _forget(estimator: Any) -> None:
    for name in _state(estimator):
        delattr(estimator, name)


@contextmanager
def callback_steps(estimator: Any, X: Any, y: Any) -> Iterator[Callable[..., bool]]:
    """Report a fit to its callbacks; yield a function that reports its steps."""
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def advance(
        name: str, describe: Callable[[], dict[str, Any]] | None = None
    ) -> bool:
        """Report a finished step; return True if a callback asks to stop."""
        step = context.subcontext(task_name=name)
        step.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        return step.call_on_fit_task_end(
            estimator=estimator, X=X, y=y, reconstruction_attributes=describe
        )

    yield advance
    context.call_on_fit_task_end(
        estimator=estimator,
        X=X,
        y=y,
        reconstruction_attributes=lambda: _state(estimator),
    )
