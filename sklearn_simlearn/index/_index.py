"""Index that finds the top k items for any estimator."""

import os
from collections.abc import Sequence
from functools import partial
from numbers import Integral
from typing import Any, Self

from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import FilterLike, MatrixLike, MetadataLike
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.index._base import as_plain, check_k
from sklearn_simlearn.index._filters import read_filter
from sklearn_simlearn.index._folder import read_index, write_index
from sklearn_simlearn.index._neighbors import NeighborsMixin
from sklearn_simlearn.index._rerank import search_again
from sklearn_simlearn.index._result import SearchResult
from sklearn_simlearn.index._snapshot import MemoryIndex
from sklearn_simlearn.index._state import Change
from sklearn_simlearn.index.backends._registry import BACKENDS, SEARCH_OPTIONS


class SimilarityIndex(
    NeighborsMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, MemoryIndex
):
    r"""Index that finds the most similar items to a query.

    A similarity can be indexed if it is the inner product of an encoded query and an
    encoded item. The index stores encoded items, encodes a query, and returns the items
    with the largest inner products. Read more in the :ref:`User Guide <serving>`.

    Parameters
    ----------
    estimator : estimator
        Estimator that encodes queries and items: a learner, a hand-made similarity, a
        transformer, whose output is compared by the cosine, a pipeline that ends in one
        of them, or a parameter search over one of them. A fitted estimator is used
        without a copy. If it is not fitted, `fit` fits a clone.

    backend : str, default="auto"
        Data structure of the search: "auto", "inverted", "dense", "hybrid", "faiss" or
        "usearch". Three backends are exact: "inverted" for sparse encodings, "dense"
        for dense ones, and "hybrid" for a
        :class:`~sklearn_simlearn.compose.SimilarityUnion` of both. "auto" selects one
        of them by the type of the encodings. "faiss" and "usearch" are packages for
        approximate search of dense encodings. Encodings are converted if the backend
        requires it.

    backend_options : dict, default=None
        Keyword arguments of the backend; see the :ref:`User Guide <serving>`.

    rerank : list of re-ranking steps, default=None
        Steps that `search` applies in turn to its results (:ref:`reranking`). A fitted
        step is used without a copy. If a step is not fitted, a copy is fitted on the
        index.

    n_candidates : int, default=100
        Number of best items to re-rank. All other items are ranked after them.

    n_neighbors : int, default=5
        Number of neighbours for `kneighbors`, `kneighbors_graph` and `transform`.

    store_items : bool, default=False
        Whether to store the original items, too. Then `set_estimator` can encode them
        again, and `kneighbors` can use the items as queries.

    n_jobs : int, default=None
        Number of threads of a search. The results do not depend on it.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    backend_ : str
        The backend in use.

    ids_ : ndarray of shape (n_items,)
        Ids of the items, in the order in which they were added.

    metadata_ : list, frame, structured array or None
        Metadata of the items, in the same order; None if `fit` got none.

    n_items_ : int
        Number of items, without removed items.

    n_features_in_ : int
        Number of features of the items, if they have a fixed number.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the items, if they have names.

    See Also
    --------
    sklearn.neighbors.NearestNeighbors : Search by a distance that is not learned.

    Notes
    -----
    Items with the same score are returned in the order in which they were added.

    Only `search` re-ranks its results. Methods that return distances do not.

    The distance of neighbours is the cosine distance, one minus the similarity. This is
    a distance only if the encodings of queries and items have unit length. For other
    encodings, the methods that return distances raise an error, but `search` does not.
    A row of zeros has distance 1 from all others.

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
        estimator: BaseEstimator,
        *,
        backend: str = "auto",
        backend_options: dict[str, Any] | None = None,
        rerank: Sequence[BaseEstimator] | None = None,
        n_candidates: int = 100,
        n_neighbors: int = 5,
        store_items: bool = False,
        n_jobs: int | None = None,
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
    def fit(
        self,
        X: MatrixLike,
        y: TargetLike | None = None,
        ids: ArrayLike | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Store items, and fit the estimator on them if it is not fitted.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items, in any form that the first step of the estimator accepts.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, used if the estimator is not fitted.

        ids : array-like of shape (n_items,) or "index", default=None
            Unique ids, integers or strings, that `search` returns. "index" uses the
            index of the pandas frame `X` or `metadata`. None numbers the items from 0.

        metadata : list of dict, frame or structured array, default=None
            Metadata with one row per item. `search` can filter by it.

        Returns
        -------
        self : object
            The index itself.
        """
        with self._changing():
            self._build(X, ids, metadata, *self._take_estimator(X, y))
        return self

    def search(
        self,
        X: MatrixLike,
        k: int = 10,
        *,
        groups: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
        filter: FilterLike | None = None,
        features: LocalFeatures | None = None,
    ) -> SearchResult:
        """Return the most similar items to each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        k : int, default=10
            Number of items per query.

        groups : array-like of shape (n_queries,), default=None
            Set of each query, for :class:`~sklearn_simlearn.MemoryVectorQuery`, which
            combines the queries of a set into one query. There is one result per set,
            in sorted order.

        exclude : array-like of length n_queries (or n_sets), default=None
            Ids to exclude from the results: one id or a list of ids per query. Unknown
            ids are ignored.

        filter : array-like, dict or callable, default=None
            Restriction of the results: a boolean mask in the order of `ids_`, a list of
            ids, a dict of conditions on the metadata, such as
            ``{"lang": "de", "price": ("<", 10)}``, or a function that takes the
            metadata and returns a mask; see :ref:`search-filter`. To use a separate
            filter for each query, pass a list with one of these, or None, per query.

        features : LocalFeatures, default=None
            Local features of the queries, for re-ranking steps that compare them. If
            None, `X` is used.

        Returns
        -------
        result : SearchResult
            Pair ``scores, ids``, with the metadata of the items found; see
            :class:`~sklearn_simlearn.index.SearchResult`. Scores are similarities, or
            the scores of the last re-ranking step.
        """
        index = self._snapshot()
        index._check_estimator()
        k = check_k(k)
        state, allowed = index._state, None
        sets = index._read_sets(groups, num_samples(X))
        if filter is not None:
            allowed = read_filter(filter, state.ids, state.metadata, sets.n_sets)
        restriction = {"exclude": exclude, "allowed": allowed}
        if (index.rerank or state.lost_steps) and state.n_items:
            steps = self._find_steps(index)
            scores, rows = search_again(
                index, steps, X, k, groups=groups, features=features, **restriction
            )
        else:
            scores, rows = index._search(X, k, sets, **restriction)
        take = None
        if state.metadata is not None:
            take = partial(state.metadata.take, rows[rows >= 0])
        return SearchResult(scores, state.ids.take(rows), take)

    def add(
        self,
        X: MatrixLike,
        ids: ArrayLike | None = None,
        metadata: MetadataLike | None = None,
    ) -> Self:
        """Add items.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            New items.

        ids : array-like of shape (n_items,), default=None
            Ids of the new items. They must not be in the index already. If `fit` was
            called without ids, None continues the numbering. Ids of removed items are
            not reused.

        metadata : list of dict, frame or structured array, default=None
            Metadata of the same type and columns as in `fit`.

        Returns
        -------
        self : object
            The index itself.
        """
        with self._changing():
            self._put("add", X, ids, metadata)
        return self

    def upsert(
        self, X: MatrixLike, ids: ArrayLike, metadata: MetadataLike | None = None
    ) -> Self:
        """Add items, and replace those with the same ids.

        A concurrent search sees all changes of the call or none. Replaced items count
        as added last.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items.

        ids : array-like of shape (n_items,)
            Unique ids of the items.

        metadata : list of dict, frame or structured array, default=None
            Metadata of the same type and columns as in `fit`.

        Returns
        -------
        self : object
            The index itself.
        """
        with self._changing():
            if ids is None:
                raise ValueError("upsert requires the ids of the items.")
            self._put("upsert", X, ids, metadata)
        return self

    def remove(self, ids: ArrayLike) -> Self:
        """Remove items, so that `search` no longer returns them.

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
            index = self._snapshot_to_change(need_estimator=False)
            self._apply(Change("remove", index._state.ids.convert(ids)))
        return self

    def compact(self) -> Self:
        """Free the memory of removed items.

        Changes of the index do this automatically if more than a quarter of the rows
        are removed items. A search never does.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        with self._changing():
            self._state = self._state.compact(n_threads=self._n_threads)
        return self

    def set_estimator(self, estimator: BaseEstimator) -> Self:
        """Replace the estimator, and encode the items again if needed.

        If the new estimator encodes items as the old one did, the stored items are
        kept. This is checked on all items if ``store_items=True``, otherwise on a
        sample of them. If the encodings differ, the items are encoded again, which
        requires ``store_items=True``.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator for the same type of items.

        Returns
        -------
        self : object
            The index itself. Its parameter `estimator` is unchanged; `estimator_` is
            the new estimator.
        """
        check_is_fitted(self)
        model = unwrap.find_model(estimator)
        with self._changing():
            state = self._state
            recipe = self._recipe(state.search_options)
            self._state = state.with_estimator(estimator, model, recipe)
        return self

    def set_search_options(self, **options: Any) -> Self:
        """Change backend options that affect only the search.

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
                    f"The search options of backend {self.backend_!r} are "
                    f"{sorted(known)}; got {sorted(options)}."
                )
            self._state = self._state.with_search_options(as_plain(options))
        return self

    def save(
        self, folder: str | os.PathLike[str], *, include_estimator: bool = True
    ) -> None:
        """Store the index in a folder. Replace the index that the folder holds.

        A process that opens the folder during a save sees either the old or the new
        index. A save that fails or is interrupted leaves the old index unchanged.
        Re-ranking steps are not stored: after `load`, set them with
        ``set_params(rerank=[...])``.

        Parameters
        ----------
        folder : path-like
            Folder, created if it does not exist.

        include_estimator : bool, default=True
            Whether to store the estimator, too, with the package skops. For a parameter
            search, the best estimator is stored.
        """
        index = self._snapshot()
        if include_estimator:
            index._check_estimator()
        write_index(index, folder, include_estimator)

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        mmap: bool = True,
        estimator: BaseEstimator | None = None,
        trusted: Sequence[str] | None = None,
        verify: bool = False,
    ) -> Self:
        """Open an index that `save` stored.

        Nothing in the folder is unpickled. Everything that a search relies on is
        checked. The checksum of a block is checked when the block is first read.

        Parameters
        ----------
        folder : path-like
            Folder in which the index was saved.

        mmap : bool, default=True
            Whether to map the arrays into memory instead of reading them. Then an index
            of any size opens immediately, and processes share its memory.

        estimator : estimator, default=None
            Fitted estimator for the queries, used instead of the stored one. It must
            encode items as they are stored.

        trusted : sequence of str, default=None
            Names of types and functions that the stored estimator may use, in addition
            to estimators of this package and to types that skops trusts. Functions
            other than ufuncs must always be listed. ``trusted=()`` loads an estimator
            that needs no other types. None does not load the estimator. Indexes of
            FAISS and usearch are opened only if `trusted` is not None, because these
            packages do not check the files that they read.

        verify : bool, default=False
            Whether to check all checksums immediately.

        Returns
        -------
        index : SimilarityIndex
            The index. If it was loaded without an estimator, call `set_estimator`
            before a search.
        """
        return read_index(
            cls,
            folder,
            mmap=mmap,
            estimator=estimator,
            trusted=trusted,
            verify=verify,
        )

    @property
    def _n_features_out(self):
        return self.n_items_
