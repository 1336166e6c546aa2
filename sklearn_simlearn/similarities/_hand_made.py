"""Base classes of the hand-made similarities."""

from typing import Any, Self

from sklearn.base import BaseEstimator

from sklearn_simlearn._core.judgements import (
    Judgements,
    check_judgements,
    naming_documents,
)
from sklearn_simlearn._core.sklearn import fit_context
from sklearn_simlearn._core.typing import Matrix, MatrixLike
from sklearn_simlearn.base import EncodedSimilarityMixin, replacing_state


class HandMadeSimilarity(EncodedSimilarityMixin, BaseEstimator):
    """Base of similarities that use statistics of the data, but no labels.

    Subclasses implement `_gather`, which returns the fitted attributes: the statistics,
    and the encoder that uses them as `encoder_`.
    """

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: MatrixLike, y: object = None) -> Self:
        """Compute the statistics of the words.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : Judgements or any other target, default=None
            With :class:`~sklearn_simlearn.metrics.Judgements`, the statistics are
            computed from its documents. Any other target is ignored.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self):
            rows = self._check_rows(X, reset=True)
            if isinstance(y, Judgements):
                check_judgements(y, rows.shape[0])
                with naming_documents():
                    rows = self._check_rows(y.documents)
            self.__dict__.update(self._gather(rows))
            self._is_judged = isinstance(y, Judgements)
        return self

    def _gather(self, X: Matrix) -> dict[str, Any]:
        raise NotImplementedError
