"""Top k for any estimator: the index."""

import threading
from functools import partial
from numbers import Integral

import numpy as np
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
)
from sklearn_simlearn.index._base import as_plain, check_k
from sklearn_simlearn.index._encoded_items import encode_items
from sklearn_simlearn.index._filters import read_filter
from sklearn_simlearn.index._folder import read_index, write_index
from sklearn_simlearn.index._neighbors import NeighborsMixin
from sklearn_simlearn.index._rerank import fit_steps, search_again
from sklearn_simlearn.index._result import SearchResult
from sklearn_simlearn.index._snapshot import MemoryIndex
from sklearn_simlearn.index._state import Recipe, State
from sklearn_simlearn.index.backends._registry import BACKENDS, SEARCH_OPTIONS


class SimilarityIndex(
    NeighborsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, MemoryIndex
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
        with self._changing():
            estimator, model = self._take_estimator(X, y)
            state = State.build(X, ids, metadata, estimator, model, self._recipe())
            steps = fit_steps(self._snapshot(state))
            self._steps, self._state = steps, state
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
        result : SearchResult
            A pair ``scores, ids``, with the metadata of what was found; see
            :class:`~sklearn_simlearn.index.SearchResult`. Scores are similarities, or
            what the last re-ranking step gave instead.
        """
        index = self._snapshot()
        index._check_estimator()
        k = check_k(k)
        state, allowed = index._state, None
        if filter is not None:
            allowed = read_filter(filter, state.ids, state.current_metadata)
        restriction = {"groups": groups, "exclude": exclude, "allowed": allowed}
        if index.rerank or state.lost_steps:
            steps = self._find_steps(index)
            scores, rows = search_again(
                index, steps, X, k, features=features, **restriction
            )
        else:
            scores, rows = index._search(X, k, **restriction)
        take = None
        if state.metadata is not None:
            take = partial(state.metadata.take, rows[rows >= 0])
        return SearchResult(scores, state.ids.take(rows), take)

    def add(self, X, ids=None, metadata=None):
        """Add items.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            New items.

        ids : array-like of shape (n_items,), default=None
            Their ids, none of them in the index. May be None if `fit` got none: they
            are then numbered on. Numbers of removed items are not given again.

        metadata : list of dict, frame or structured array, default=None
            Of the kind that `fit` got.

        Returns
        -------
        self : object
            The index itself.
        """
        with self._changing():
            index = self._snapshot_to_change()
            ids, metadata = index._state.read_new(X, ids, metadata)
            self._state = index._add(index._state, X, ids, metadata)
        return self

    def upsert(self, X, ids, metadata=None):
        """Add items, and replace those that the index has already.

        A search sees all of the change or nothing of it. Items that are replaced count
        as added last.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        ids : array-like of shape (n_items,)
            Their ids, each once.

        metadata : list of dict, frame or structured array, default=None
            Of the kind that `fit` got.

        Returns
        -------
        self : object
            The index itself.
        """
        with self._changing():
            index = self._snapshot_to_change()
            state = index._state
            if ids is None:
                raise ValueError("upsert needs the ids of the items.")
            ids, metadata = state.read_new(X, ids, metadata)
            rows = state.ids.find(ids)
            state = state.remove(rows[rows >= 0])
            self._state = index._add(state, X, ids, metadata)
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
        with self._changing():
            state = self._snapshot_to_change(need_estimator=False)._state
            self._state = state.remove(np.unique(state.find(ids)))
        return self

    def compact(self):
        """Free the memory of removed items.

        A change does so by itself once more than a quarter of the rows is of removed
        items. A search never does.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        with self._changing():
            self._state = self._state.compact(n_threads=self._n_threads)
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
        self : object
            The index itself. Its parameter `estimator` stays as it was; `estimator_` is
            the new one.
        """
        check_is_fitted(self)
        model = unwrap.find_model(estimator)
        with self._changing():
            state = self._state
            recipe = self._recipe(state.search_options)
            self._state = state.with_estimator(estimator, model, recipe)
        return self

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
        with self._changing():
            known = SEARCH_OPTIONS.get(self.backend_, set())
            if not known.issuperset(options):
                raise ValueError(
                    f"The search of backend {self.backend_!r} has the options "
                    f"{sorted(known)}; got {sorted(options)}."
                )
            self._state = self._state.with_search_options(as_plain(options))
        return self

    def save(self, folder, *, include_estimator=True):
        """Store the index in a folder, replacing the one that it holds.

        A process that opens the folder during a save sees either the old or the new
        index. A save that fails or is interrupted leaves the old one. Re-ranking steps
        are not stored: `load` the index and give them by ``set_params(rerank=[...])``.

        Parameters
        ----------
        folder : path-like
            Made if it does not exist.

        include_estimator : bool, default=True
            Store the estimator too, by the package skops; of a search, the best
            estimator.
        """
        index = self._snapshot()
        if include_estimator:
            index._check_estimator()
        write_index(index, folder, include_estimator)

    @classmethod
    def load(cls, folder, *, mmap=True, estimator=None, trusted=None, verify=False):
        """Open an index that `save` stored.

        Nothing in the folder is unpickled. What the search relies on is checked, and
        the checksum of a block is compared when the block is first touched.

        Parameters
        ----------
        folder : path-like
            Where the index was saved.

        mmap : bool, default=True
            Map the arrays into memory instead of reading them: an index of any size
            opens at once, and processes share its memory.

        estimator : estimator, default=None
            A fitted estimator for the queries, instead of the stored one. It must
            encode items as they are stored.

        trusted : sequence of str, default=None
            Load the stored estimator. Its types must be listed here, unless they are
            estimators of this package or trusted by skops; functions other than
            ufuncs always have to be listed. None does not load the estimator;
            ``trusted=()`` loads it if no other types occur. Indexes of
            FAISS and usearch are opened only if `trusted` is not None, because these
            packages do not check all that they read.

        verify : bool, default=False
            Check all checksums now.

        Returns
        -------
        index : SimilarityIndex
            The index. Without estimator it can be searched only after `set_estimator`.
        """
        return read_index(
            cls,
            folder,
            mmap=mmap,
            estimator=estimator,
            trusted=trusted,
            verify=verify,
        )

    # -- inside --

    def _snapshot_to_change(self, need_estimator=True):
        """Return a snapshot, without removed rows if these have become too many."""
        index = self._snapshot()
        if need_estimator:
            index._check_estimator()
        if index._state.should_compact:
            index._state = index._state.compact(n_threads=index._n_threads)
            self._state = index._state
        return index

    def _recipe(self, search_options=None):
        options = as_plain({**(self.backend_options or {}), **(search_options or {})})
        return Recipe(self.backend, options, self.store_items, self._n_threads)

    def _add(self, state, X, ids, metadata):
        """Return a state with more items."""
        encoded = self._convert(encode_items(self._model, X), X)
        return state.add(X, encoded, ids, metadata, n_threads=self._n_threads)

    def _find_steps(self, index):
        """Return the steps for a snapshot; fit them if the index or they changed."""
        with vars(self).setdefault("_steps_lock", threading.RLock()):
            steps = self._steps
            if steps is None or not steps.serve(index):
                self._steps = steps = fit_steps(index)
        return steps.fitted

    @property
    def _n_features_out(self):
        return self.n_items_
