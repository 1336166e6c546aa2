"""Top k for any estimator: the index."""

from copy import copy
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.storage import damaged
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import BaseIndex, check_k
from sklearn_simlearn.index._encoded_items import (
    agree,
    as_kind,
    encode_items,
    have_unit_length,
)
from sklearn_simlearn.index._filters import cut_lists, read_exclude, read_filter
from sklearn_simlearn.index._folder import FolderMixin
from sklearn_simlearn.index._ids import Ids, check_ids, read_ids
from sklearn_simlearn.index._neighbors import NeighborsMixin, no_distance
from sklearn_simlearn.index._rerank import RerankMixin
from sklearn_simlearn.index.backends._registry import (
    BACKENDS,
    SEARCH_OPTIONS,
    find_backend,
)

# Items whose encodings are compared when an estimator is replaced and the raw items
# are not there: enough that a changed weight of a word shows, few enough to keep.
SAMPLE = 256


class SimilarityIndex(
    NeighborsMixin,
    RerankMixin,
    FolderMixin,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
    BaseIndex,
):
    r"""The best items for a query, by any similarity of this package.

    Every similarity here is an inner product between a surrogate query and a stored
    item, so an index stores the items once, encodes a query, and looks for the largest
    inner products. Read more in the :ref:`User Guide <serving>`.

    Parameters
    ----------
    estimator : estimator
        A learner, a hand-made similarity, a transformer (compared by the cosine of its
        output), a pipeline that ends in one of them, or a search over such. Queries and
        items run through its own steps. A fitted one is used as it is; one that is not
        fitted is cloned and fitted by `fit`.

    backend : {"auto", "inverted", "dense", "faiss", "usearch"}, default="auto"
        How items are stored and searched. "inverted" (sparse) and "dense" are exact;
        "auto" takes the one that fits the encodings. "faiss" and "usearch" are packages
        for approximate search of dense encodings. A backend named here gets encodings
        of its kind, converted where they are of the other.

    backend_options : dict, default=None
        Keyword arguments of the backend; see the :ref:`User Guide <serving>`.

    rerank : list of re-ranking steps, default=None
        Applied in turn to what `search` finds (:ref:`reranking`). A fitted step is used
        as it is; of one that is not fitted, a copy is fitted on the index.

    n_candidates : int, default=100
        How many of the best items the steps get. The others follow behind them.

    n_neighbors : int, default=5
        Neighbours that `kneighbors`, `kneighbors_graph` and `transform` look for.

    store_items : bool, default=False
        Keep the items as they were given too. `set_estimator` can then encode them
        anew, and `kneighbors` can search for the items themselves.

    n_jobs : int, default=None
        Threads that search. The results do not depend on it.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    backend_ : str
        The backend in use.

    ids_ : ndarray of shape (n_items,)
        Ids of the items, in the order in which they were added.

    metadata_ : list, frame, structured array or None
        What was given about the items, in the same order.

    n_items_ : int
        Number of items, without those that were removed.

    n_features_in_ : int
        Width of the items, where they have one.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the items, if they had any.

    See Also
    --------
    sklearn.neighbors.NearestNeighbors : Search by a distance that is not learned.

    Notes
    -----
    Of items with the same score, the one that was added first comes first.

    Re-ranking concerns `search` alone, not the methods that return distances.

    Neighbours are told by the cosine distance, one minus the similarity. That is a
    distance only if queries and items are encoded with unit length: other encodings
    are refused by the methods that return distances, never by `search`. A row
    of zeros, which has no direction, is at distance 1 from everything.

    Examples
    --------
    >>> from sklearn_simlearn.index import SimilarityIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X = [[2, 0, 1], [1, 1, 0], [0, 3, 1]]
    >>> index = SimilarityIndex(CosineSimilarity(use_idf=False))
    >>> index = index.fit(X, ids=["red", "green", "blue"])
    >>> scores, ids = index.search([[1, 0, 0]], k=2)
    >>> ids
    array([['red', 'green']], dtype='<U5')
    >>> scores.round(3)
    array([[0.894, 0.707]])
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit"])],
        "backend": [StrOptions({"auto", *BACKENDS})],
        "backend_options": [dict, None],
        "rerank": [list, tuple, None],
        "n_candidates": [Interval(Integral, 1, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "store_items": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator,
        *,
        backend="auto",
        backend_options=None,
        rerank=None,
        n_candidates=100,
        n_neighbors=5,
        store_items=False,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.backend = backend
        self.backend_options = backend_options
        self.rerank = rerank
        self.n_candidates = n_candidates
        self.n_neighbors = n_neighbors
        self.store_items = store_items
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, ids=None, metadata=None):
        """Store items, and fit the estimator on them unless it is fitted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items; whatever the first step of the estimator takes.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, for an estimator that is not fitted.

        ids : array-like of shape (n_items,), default=None
            What `search` calls the items: integers or strings, each once. Their numbers
            0, 1, ... if None.

        metadata : list of dict, frame or structured array, default=None
            More about the items, one row per item, for `search` to filter by.

        Returns
        -------
        self : object
            The index itself.
        """
        n_items = num_samples(X)
        if ids is None:
            ids = Ids(np.arange(n_items), is_numbered=True)
        else:
            ids = Ids(check_ids(ids, n_items))
        metadata = _metadata.check_metadata(metadata, n_items)
        estimator, model = self._take_estimator(X, y)
        encoded = encode_items(model, X)
        items = self._build(encoded)
        validate_data(self, X, skip_check_array=True)
        self.estimator_, self._model, self._items = estimator, model, items
        self._ids, self._metadata = ids, metadata
        self._keep(X, encoded)
        self._saved_steps = ()
        self._fit_steps()
        return self

    def search(self, X, k=10, *, groups=None, exclude=None, filter=None, features=None):
        """The best items for each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        k : int, default=10
            Number of items per query.

        groups : array-like of shape (n_queries,), default=None
            Set of each query, for :class:`~sklearn_simlearn.MemoryVectorQuery`: the
            queries of a set search as one. Results are in the sorted order of the sets.

        exclude : array-like of length n_queries (or n_sets), default=None
            Ids that are left out of the results, one per query or a list per query.
            Ids that the index does not hold are ignored.

        filter : array-like or callable, default=None
            Restricts the results to some items: a boolean mask in the order of `ids_`,
            a list of ids, or a function that gets the metadata and returns the mask.
            Metadata that is a list of dicts is handed over dict by dict.

        features : LocalFeatures, default=None
            Local features of the queries, for re-ranking steps that compare these; `X`
            itself if None.

        Returns
        -------
        scores : ndarray of shape (n_queries, k)
            Similarities, or what the last re-ranking step gave instead, the largest
            first; -inf where there are no more items.

        ids : ndarray of shape (n_queries, k)
            Ids of the items; -1 or "" where the score is -inf.
        """
        self._check_estimator()
        check_k(k)
        allowed = None
        if filter is not None:
            allowed = read_filter(filter, self._ids, self.metadata_)
        restriction = {"groups": groups, "exclude": exclude, "allowed": allowed}
        if self.rerank or self._saved_steps:
            scores, rows = self._rerank(X, k, features=features, **restriction)
        else:
            scores, rows = self._search(X, k, **restriction)
        return scores, self._ids.take(rows)

    def add(self, X, ids=None, metadata=None):
        """Add items.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            New items.

        ids : array-like of shape (n_items,), default=None
            Their ids, none of them in the index. May be None if `fit` got none: they
            are then numbered on.

        metadata : list of dict, frame or structured array, default=None
            Of the kind that `fit` got.

        Returns
        -------
        self : object
            The index itself.
        """
        self._check_estimator()
        n_items = num_samples(X)
        ids = self._ids.number(n_items) if ids is None else check_ids(ids, n_items)
        ids = self._ids.append(ids)
        known = self._table("_metadata")
        metadata = _metadata.check_metadata(metadata, n_items, like=known)
        if metadata is not None and known is None:
            raise ValueError(
                "The index has no metadata: give that of all items to `fit`."
            )
        encoded = self._convert(encode_items(self._model, X), X)
        raw = self._table("_raw")
        if raw is not None:
            raw = _metadata.join(raw, _metadata.as_table(X))
        if metadata is not None:
            metadata = _metadata.join(known, metadata)
        self._items.add(encoded, n_threads=self._n_threads)
        self._ids, self._metadata, self._raw = ids, metadata, raw
        self._is_unit = self._is_unit and have_unit_length(encoded)
        self._steps = None
        return self

    def remove(self, ids):
        """Remove items; `search` finds them no more.

        Parameters
        ----------
        ids : array-like
            Ids of items in the index.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        rows = self._ids.find(ids)
        if (rows < 0).any():
            unknown = read_ids(ids)[rows < 0][:3].tolist()
            raise ValueError(f"The index has no items with the ids {unknown}.")
        remaining = self._ids.without(rows)
        self._items.remove(np.unique(rows))
        self._ids = remaining
        self._steps = None
        return self

    def compact(self):
        """Free the memory of removed items.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        if self._ids.has_removed:
            kept = self._items.compact(n_threads=self._n_threads)
            if not np.array_equal(kept, np.flatnonzero(self._ids.alive)):
                raise damaged("its arrays disagree about which items were removed")
            self._metadata = _take_or_none(self._table("_metadata"), kept)
            self._raw = _take_or_none(self._table("_raw"), kept)
            self._ids = self._ids.compact()
        return self

    def set_estimator(self, estimator):
        """Replace the estimator, and keep the stored items where that is right.

        They are kept if the new estimator encodes items as the old one did, which is
        checked on the items themselves with ``store_items=True``, otherwise on a sample
        of them. If it does not, they are encoded anew, which needs
        ``store_items=True``.

        Parameters
        ----------
        estimator : estimator
            A fitted one, for the same kind of items.

        Returns
        -------
        what : {"kept", "encoded"}
            What became of the stored items.
        """
        check_is_fitted(self)
        model = unwrap.find_model(estimator)
        raw = self._table("_raw")
        if raw is None or self._model is None:
            encoded = encode_items(model, self._table("_sample"))
            is_same = agree(encoded, self._table("_encoded_sample"))
        else:
            encoded = encode_items(model, raw)
            is_same = agree(encoded, encode_items(self._model, raw))
        what = "kept" if is_same else "encoded"
        if not is_same:
            if raw is None:
                raise ValueError(
                    "The new estimator encodes items in another way than they are "
                    "stored. Fit an index with store_items=True, which can encode "
                    "them anew, or fit this one again."
                )
            kept = np.flatnonzero(self._ids.alive)
            raw = _metadata.take(raw, kept)
            encoded = encode_items(model, raw)
            self._items = self._build(encoded)
            self._metadata = _take_or_none(self._table("_metadata"), kept)
            self._ids = self._ids.compact()
            self._keep(raw, encoded)
        self.estimator = self.estimator_ = estimator
        self._model, self._steps = model, None
        return what

    def set_search_options(self, **options):
        """Change options of the backend that concern the search only.

        Parameters
        ----------
        **options : dict
            `nprobe` or `efSearch` for "faiss", `exact` for "usearch".

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        known = SEARCH_OPTIONS.get(self.backend_, set())
        if not known.issuperset(options):
            raise ValueError(
                f"The search of backend {self.backend_!r} has the options "
                f"{sorted(known)}; got {sorted(options)}."
            )
        for name, value in options.items():
            setattr(self._items, name, value)
        self.backend_options = {**(self.backend_options or {}), **options}
        return self

    @property
    def ids_(self):
        """Ids of the items."""
        return self._fitted("_ids").current()

    @property
    def metadata_(self):
        """What was given about the items."""
        ids, metadata = self._fitted("_ids"), self._table("_metadata")
        if metadata is None or not ids.has_removed:
            return metadata
        return _metadata.take(metadata, np.flatnonzero(ids.alive))

    @property
    def n_items_(self):
        """Number of items."""
        return self._fitted("_ids").n_alive

    # -- inside --

    def _build(self, encoded):
        """A backend with these items in it."""
        backend = self.backend
        if backend == "auto":
            backend = "inverted" if sparse.issparse(encoded) else "dense"
        items = find_backend(backend)(
            as_kind(encoded, backend),
            n_threads=self._n_threads,
            **(self.backend_options or {}),
        )
        self.backend_ = backend
        return items

    def _keep(self, X, encoded):
        """Keep what later changes of the index need of its items."""
        self._is_unit = have_unit_length(encoded)
        X = _metadata.as_table(X)
        self._raw = copy(X) if self.store_items else None
        n_items = num_samples(X)
        rows = np.unique(np.linspace(0, n_items - 1, SAMPLE).astype(np.int64))
        self._sample, self._encoded_sample = _metadata.take(X, rows), encoded[rows]

    def _search(
        self, X, k, *, groups=None, exclude=None, allowed=None, need_unit=False
    ):
        """Scores and rows of the best items, a batch of queries at a time."""
        self._check_estimator()
        if need_unit and not self._is_unit:
            raise no_distance("items")
        sets = self._read_sets(groups, num_samples(X))
        n_results = len(sets.sizes)
        if exclude is not None:
            exclude = read_exclude(exclude, self._ids, n_results)
        n_found = max(1, min(k, len(self._ids.values)))
        scores = np.full((n_results, k), -np.inf, dtype=self._items.dtype)
        rows = np.full((n_results, k), -1, dtype=np.int64)
        # An encoded query takes at most 16 bytes per feature, if all are non-zero.
        row_bytes = 16 * (self._items.n_features + k)
        for batch, part, Q in self._encode_queries(X, sets, row_bytes):
            Q = self._convert(Q, part)
            if need_unit and not have_unit_length(Q):
                raise no_distance("queries")
            scores[batch, :n_found], rows[batch, :n_found] = self._items.search(
                Q,
                n_found,
                allowed=allowed,
                excluded=None if exclude is None else cut_lists(exclude, batch),
                n_threads=self._n_threads,
            )
        return scores, rows

    def _convert(self, encoded, X):
        """Encodings of X in the form in which the backend holds its items."""
        if not hasattr(self.estimator_, "n_features_in_"):
            # One that needs no fit does not compare X with the items.
            validate_data(self, X, reset=False, skip_check_array=True)
        encoded = as_kind(encoded, self.backend_, self._items.dtype)
        if encoded.shape[1] != self._items.n_features:
            raise ValueError(
                f"The estimator encodes with {encoded.shape[1]} features, the stored "
                f"items have {self._items.n_features}."
            )
        return encoded

    @property
    def _n_features_out(self):
        return self.n_items_

    def _fitted(self, name):
        """A private attribute, missing as a public one is before `fit`."""
        if name not in vars(self):
            raise AttributeError("The index is not fitted yet.")
        return vars(self)[name]

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_items")

    def __sizeof__(self):
        """Bytes in memory, for those who budget it, as Dask does."""
        size = super().__sizeof__()
        if hasattr(self, "_items"):
            size += self._items.__sizeof__() + self._ids.values.nbytes
        return size


def _take_or_none(table, rows):
    return None if table is None else _metadata.take(table, rows)
