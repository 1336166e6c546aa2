"""Map from the vectors of one embedding model to those of another."""

from numbers import Real
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.sklearn import (
    DocLinkMixin,
    Interval,
    StrOptions,
    fit_context,
    get_chunk_n_rows,
)
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import RandomState
from sklearn_simlearn.query_map._rotation import ShrunkenMaps

# Values of alpha to choose from, the strongest first.
ALPHAS = (np.inf, 100.0, 10.0, 1.0, 0.1, 0.01)

# Number of nearest items of the old model that a mapped query should find.
N_NEIGHBORS = 10

# Smallest number of items for a hold-out.
MIN_ITEMS = 5

# Largest number of items that are held out, and of items that they search.
MAX_HELD_OUT, MAX_ITEMS = 1000, 20_000

# Bytes per pair of a query and an item in a search: two similarities and the order.
N_BYTES = 32


class EmbeddingModelMap(
    DocLinkMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    r"""Map from the vectors of a new embedding model to those of an old one.

    If an embedding model is replaced, all items of an index have to be encoded again.
    With this map, queries of the new model can search the old index until then: they
    are mapped to the space of the old model. The map is learned from some items that
    both models have encoded. A part of these items is held out to measure which share
    of its nearest items a mapped query still finds.

    With the unit vectors of the new model as rows of :math:`X` and those of the old
    model as rows of :math:`Y`, the map is

    .. math::

        B = A + (X^\top X + \alpha I)^{-1} X^\top (Y - X A) ,

    where :math:`A` is the rotation that maps :math:`X` closest to :math:`Y` (orthogonal
    Procrustes). The larger :math:`\alpha`, the more the least-squares map is shrunk
    towards the rotation. The vectors of the two models may have different lengths. See
    the :ref:`User Guide <embedding_model_map>`.

    Parameters
    ----------
    alpha : "auto" or float, default="auto"
        Strength of the shrinkage. ``numpy.inf`` gives the rotation. "auto" tries six
        values, from infinity to 0.01, on held-out items, and takes the largest whose
        recall is within one standard error of the best.

    random_state : int, RandomState instance or None, default=None
        Decides which items are held out.

    Attributes
    ----------
    coef_ : ndarray of shape (`n_features_in_`, n_features_out)
        The matrix :math:`B`.

    alpha_ : float
        The strength of the shrinkage that was used.

    recall_kept_, recall_kept_error_ : float
        Share of the 10 nearest items by the old model that are also among the 10
        nearest items of a mapped query, averaged over held-out items, and its standard
        error.

    recall_by_alpha_ : dict
        The same share for each value of alpha that was tried.

    n_features_in_ : int
        Number of features of the new model.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the columns, if all are strings.

    See Also
    --------
    QueryDocumentMap : Learns maps from judgements.

    Notes
    -----
    A few thousand items are enough. `recall_kept_` is measured on rows like those of
    the fit. If queries differ from items, for example because they are shorter, also
    pass some queries that both models have encoded.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn import EmbeddingModelMap
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> rng = np.random.default_rng(0)
    >>> meaning = rng.standard_normal((500, 16))
    >>> old = meaning @ rng.standard_normal((16, 24))
    >>> new = meaning @ rng.standard_normal((16, 32))
    >>> index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(old)
    >>> model_map = EmbeddingModelMap(random_state=0).fit(new[:300], old[:300])
    >>> model_map.recall_kept_ > 0.9
    True
    >>> scores, ids = index.search(model_map.transform(new[300:303]), k=1)
    >>> ids.ravel()
    array([300, 301, 302])
    """

    _parameter_constraints: dict = {
        "alpha": [StrOptions({"auto"}), Interval(Real, 0, np.inf, closed="right")],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        alpha: float | Literal["auto"] = "auto",
        *,
        random_state: RandomState = None,
    ):
        self.alpha = alpha
        self.random_state = random_state

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Learn the map, and measure the share of nearest items that it keeps.

        Parameters
        ----------
        X : array-like of shape (n_items, n_features)
            Vectors of the new model.

        y : array-like of shape (n_items, n_features_out)
            Vectors of the old model for the same items, in the same order.

        Returns
        -------
        self : object
            The estimator itself.
        """
        new, old = self._check_both(X, y, reset=True)
        n_items = len(new)
        order = make_generator(self.random_state).permutation(n_items)
        n_held_out = min(MAX_HELD_OUT, n_items // MIN_ITEMS)
        held_out, rest = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        items = np.concatenate([held_out, rest[: MAX_ITEMS - n_held_out]])
        alphas = ALPHAS if self.alpha == "auto" else (float(self.alpha),)
        with one_blas_thread():
            maps = ShrunkenMaps(new[rest], old[rest])
            mapped = (new[held_out] @ maps.find(alpha) for alpha in alphas)
            kept = np.array([_measure_kept(Z, old[items]) for Z in mapped])
            chosen = _choose_strongest(kept)
            coef = ShrunkenMaps(new, old).find(alphas[chosen])
        self.coef_ = coef
        self.alpha_ = alphas[chosen]
        self.recall_kept_ = float(kept[chosen].mean())
        self.recall_kept_error_ = _standard_error(kept[chosen])
        self.recall_by_alpha_ = dict(
            zip(alphas, kept.mean(axis=1).tolist(), strict=True)
        )
        return self

    def transform(self, X: ArrayLike) -> np.ndarray:
        """Map vectors of the new model to the space of the old model.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            Vectors of the new model.

        Returns
        -------
        X_mapped : ndarray of shape (n_queries, n_features_out)
            Vectors of unit length, to be compared with those of the old model.
        """
        check_is_fitted(self)
        rows = validate_data(self, X, dtype=[np.float64, np.float32], reset=False)
        return unit_rows(unit_rows(rows) @ self.coef_.astype(rows.dtype, copy=False))

    def score(self, X: ArrayLike, y: ArrayLike) -> float:
        """Return the share of the 10 nearest items that mapped queries still find.

        Parameters
        ----------
        X : array-like of shape (n_items, n_features)
            Vectors of the new model.

        y : array-like of shape (n_items, n_features_out)
            Vectors of the old model for the same items. Each item queries the others.

        Returns
        -------
        score : float
            Between 0 and 1.
        """
        check_is_fitted(self)
        X, Y = self._check_both(X, y, reset=False)
        if Y.shape[1] != self._n_features_out:
            raise ValueError(
                f"y has {Y.shape[1]} features, but the old model has "
                f"{self._n_features_out}."
            )
        with one_blas_thread():
            return float(_measure_kept(X @ self.coef_, Y).mean())

    def _check_both(self, X, y, *, reset):
        """Return unit rows of both models in double precision."""
        X, Y = validate_data(
            self,
            X,
            y,
            reset=reset,
            dtype=np.float64,
            multi_output=True,
            y_numeric=True,
            ensure_min_samples=MIN_ITEMS,
        )
        if Y.ndim == 1:
            raise ValueError(
                "y must be an array of shape (n_items, n_features_out): one vector of "
                "the old model per row of X. Got a one-dimensional array."
            )
        return unit_rows(X), unit_rows(Y.astype(np.float64))

    @property
    def _n_features_out(self):
        return self.coef_.shape[1]

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.target_tags.single_output = False
        tags.target_tags.multi_output = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


def _measure_kept(mapped, Y):
    """Return, per query, the share of its nearest items that its mapped vector finds.

    The queries are the first rows of Y; a query is not among its own nearest items.
    """
    k = min(N_NEIGHBORS, len(Y) - 1)
    kept = np.empty(len(mapped))
    n_rows = get_chunk_n_rows(N_BYTES * len(Y), max_n_rows=len(mapped))
    for part in gen_batches(len(mapped), n_rows):
        rows = np.arange(part.start, part.stop)
        expected, found = (_find_nearest(Z[part] @ Y.T, rows, k) for Z in (Y, mapped))
        both = np.concatenate([expected, found], axis=1)
        both.sort(axis=1)
        kept[part] = (both[:, 1:] == both[:, :-1]).sum(axis=1) / k
    return kept


def _find_nearest(S, rows, k):
    """Return the k columns of the largest similarities, without the query itself."""
    S[np.arange(len(S)), rows] = -np.inf
    return np.argpartition(-S, k - 1, axis=1)[:, :k]


def _choose_strongest(kept):
    """Return the first row whose mean is within one standard error of the best."""
    losses = kept[np.argmax(kept.mean(axis=1))] - kept
    is_close = [loss.mean() <= _standard_error(loss) for loss in losses]
    return is_close.index(True)


def _standard_error(values):
    if len(values) < 2:
        return 0.0
    return float(values.std(ddof=1) / np.sqrt(len(values)))
