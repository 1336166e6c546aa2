"""What the learners share."""

from functools import wraps

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn.metrics import map_scorer


class SimilarityMixin(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    r"""Mixin for estimators that compare a query with the items of a database.

    The similarity of a learner is an inner product between a *surrogate query* and a
    stored item,

    .. math:: s(q, d) = \langle \phi(q), \psi(d) \rangle ,

    so a learner implements two methods on checked input, `_encode_queries` for
    :math:`\phi` and `_encode_items` for :math:`\psi`, sets `_n_features_out` in
    `fit`, and gets the rest from here.
    """

    def similarity(self, X, Y=None):
        """Similarity of every row of `X` to every row of `Y`.

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
        X = self._validate_rows(X)
        Y = X if Y is None else self._validate_rows(Y)
        return self._compare(X, Y)

    def transform(self, X):
        """Surrogate queries.

        Their inner products with the rows of `transform_database` are the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        Q : {ndarray, sparse matrix} of shape (n_queries, n_features_out)
            Sparse if `X` is.
        """
        check_is_fitted(self)
        return self._encode_queries(self._validate_rows(X))

    def transform_database(self, X):
        """Items as an inner-product index stores them.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        Returns
        -------
        D : {ndarray, sparse matrix} of shape (n_items, n_features_out)
            Sparse if `X` is.
        """
        check_is_fitted(self)
        return self._encode_items(self._validate_rows(X))

    def score(self, X, y, sample_weight=None, *, query_mask=None):
        """Mean average precision, each sample querying the others.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive where a sample is relevant, negative where it is junk.

        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the samples as queries.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query; all that are relevant to something if None.

        Returns
        -------
        score : float
            Between 0 and 1. See :class:`~sklearn_simlearn.metrics.RetrievalScorer` for
            other measures.
        """
        return map_scorer(
            self, X, y, sample_weight=sample_weight, query_mask=query_mask
        )

    def _compare(self, X, Y):
        """Similarity of checked input. Learners may have a faster way of their own."""
        return safe_sparse_dot(
            self._encode_queries(X), self._encode_items(Y).T, dense_output=True
        )

    def _validate_rows(self, X):
        return validate_data(
            self,
            X,
            reset=False,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
        )

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.required = True
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def all_or_nothing(fit):
    """Decorator: a `fit` that fails or is interrupted leaves the estimator as it was.

    Checking the input sets `n_features_in_`, by which an estimator counts as fitted;
    whatever happens afterwards, it goes with the rest.
    """

    @wraps(fit)
    def guarded(self, *args, **kwargs):
        before = _fitted_attributes(self)
        try:
            return fit(self, *args, **kwargs)
        except BaseException:
            for name in _fitted_attributes(self):
                delattr(self, name)
            vars(self).update(before)
            raise

    return guarded


def _fitted_attributes(estimator):
    return {name: v for name, v in vars(estimator).items() if name.endswith("_")}


def open_context(estimator, X, y):
    """The context of callbacks of a fit, and a function to make steps in it."""
    context = estimator._init_callback_context(max_subtasks=None)
    context.call_on_fit_task_begin(estimator=estimator, X=X, y=y)

    def advance(name, step=None, describe=None):
        """One step as a task of its own; whether a callback asks to stop."""
        task = context.subcontext(task_name=name)
        task.call_on_fit_task_begin(estimator=estimator, X=X, y=y)
        if step is not None:
            step()
        return task.call_on_fit_task_end(
            estimator=estimator, X=X, y=y, reconstruction_attributes=describe
        )

    return context, advance


def append_columns(X, extra, scale=None):
    """[X, extra] with the rows multiplied by `scale`, of the dtype of X."""
    if sparse.issparse(X):
        out = sparse.hstack([X, sparse.csr_array(extra)], format="csr", dtype=X.dtype)
    else:
        out = np.hstack([X, extra]).astype(X.dtype, copy=False)
    return out if scale is None else scale_rows(out, scale)


def scale_rows(X, scale):
    """A copy of X with each row multiplied, of the dtype of X."""
    scale = scale.astype(X.dtype, copy=False)
    if not sparse.issparse(X):
        return X * scale[:, None]
    X = X.copy()
    X.data *= np.repeat(scale, np.diff(X.indptr))
    return X


def row_dots(A, B):
    """Products of the rows of A with those of B, one by one."""
    if sparse.issparse(B):
        return np.asarray(B.multiply(A).sum(axis=1)).ravel()
    return np.einsum("ij,ij->i", A, B)
