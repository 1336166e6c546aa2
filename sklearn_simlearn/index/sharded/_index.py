"""Index in shards on the workers of a Dask cluster."""

import os
from collections.abc import Sequence
from functools import partial as bind
from numbers import Integral
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.typing import (
    DaskCollection,
    FilterLike,
    MatrixLike,
    MetadataLike,
    PartitionsLike,
)
from sklearn_simlearn.index._base import check_k, is_fitted
from sklearn_simlearn.index._filters import check_lists
from sklearn_simlearn.index._index import SimilarityIndex
from sklearn_simlearn.index._result import SearchResult
from sklearn_simlearn.index._snapshot import SnapshotIndex
from sklearn_simlearn.index.backends._registry import BACKENDS
from sklearn_simlearn.index.sharded import _changes
from sklearn_simlearn.index.sharded._folder import read_index, write_index
from sklearn_simlearn.index.sharded._remote import find_client, find_workers
from sklearn_simlearn.index.sharded._search import search_shards
from sklearn_simlearn.index.sharded._sources import find_parts, is_in_memory
from sklearn_simlearn.index.sharded._state import assemble, build_shards


class ShardedIndex(SnapshotIndex):
    r"""Index for more items than fit into the memory of one machine.

    The items are divided into shards. Each shard is a
    :class:`~sklearn_simlearn.index.SimilarityIndex` in the memory of a worker of a Dask
    cluster. A batch of queries is encoded once and sent to all shards. Their results
    are merged. The ids, scores and order of ties are the same as with one index over
    all items. Read more in the :ref:`User Guide <scaling>`.

    The current Dask client is used. The same code runs on the cores of a laptop and on
    a cluster.

    Parameters
    ----------
    estimator : estimator
        As for :class:`~sklearn_simlearn.index.SimilarityIndex`. If it is not fitted,
        `fit` fits a clone, which requires `X` in memory.

    n_shards : int, default=None
        Number of shards for items in memory. If None, the number of workers of the
        cluster. Each partition or file is one shard.

    backend, backend_options, store_items, n_jobs : default="auto", None, False, None
        As for :class:`~sklearn_simlearn.index.SimilarityIndex`. `n_jobs` is the number
        of threads per worker.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    ids_ : ndarray of shape (n_items,)
        Ids of the items, in the order in which they were added. Each access fetches
        them from the workers.

    metadata_ : list, frame, structured array or None
        Metadata of the items in the same order, also fetched from the workers.

    n_items_ : int
        Number of items, without removed items.

    shards_ : list of str
        Names of the shards: files, folders, partitions or rows.

    n_features_in_ : int
        Number of features of the items, if they have a fixed number.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the items, if they have names.

    See Also
    --------
    SimilarityIndex : The same on one machine.

    Notes
    -----
    A shard is the result of Dask tasks that open or build it and apply its changes. If
    a worker is lost, Dask runs these tasks again on another worker, and running
    searches wait for them. Therefore the source of the items must exist as long as the
    index: files and folders must not be moved, and partitions must be computable. Until
    `save` is called, Dask's scheduler keeps a copy of items from memory and of added
    items.

    Several threads may search at the same time, even while another thread adds or
    removes items. A search sees all items of a change or none. Changes run one after
    another.

    Examples
    --------
    >>> from dask.distributed import Client
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn.index import ShardedIndex
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> client = Client(n_workers=2, processes=False, dashboard_address=":0")
    >>> X, y = load_digits(return_X_y=True)
    >>> index = ShardedIndex(CosineSimilarity(use_idf=False)).fit(X[:1000])
    >>> index.shards_
    ['rows 0 to 499', 'rows 500 to 999']
    >>> scores, ids = index.search(X[1000:1002], k=3)
    >>> y[ids], y[1000:1002]
    (array([[1, 1, 1],
           [4, 4, 4]]), array([1, 4]))
    >>> client.close()
    """

    _parameter_constraints: dict = {
        "estimator": [HasMethods(["fit"])],
        "n_shards": [Interval(Integral, 1, None, closed="left"), None],
        "backend": [StrOptions({"auto", *BACKENDS})],
        "backend_options": [dict, None],
        "store_items": ["boolean"],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        estimator: BaseEstimator,
        *,
        n_shards: int | None = None,
        backend: str = "auto",
        backend_options: dict[str, Any] | None = None,
        store_items: bool = False,
        n_jobs: int | None = None,
    ):
        self.estimator = estimator
        self.n_shards = n_shards
        self.backend = backend
        self.backend_options = backend_options
        self.store_items = store_items
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(
        self,
        X: PartitionsLike,
        y: PartitionsLike | None = None,
        ids: PartitionsLike | None = None,
        metadata: MetadataLike | DaskCollection | None = None,
    ) -> Self:
        """Store items on the workers. Fit the estimator if it is not fitted.

        Parameters
        ----------
        X : Dask collection, list of files, or {array-like, sparse matrix} of shape \
                (n_items, n_features)
            Items. Each partition of a Dask array, DataFrame or Series of vectors
            becomes a shard. Each .npy or .npz file (see
            :func:`~sklearn_simlearn.datasets.load_npz`) becomes a shard, and all
            workers must see it under the same path. Other samples are divided into
            `n_shards`.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, used if the estimator is not fitted.

        ids : array-like of shape (n_items,) or "index", default=None
            Unique ids, integers or strings, that `search` returns. "index" uses the
            index of the pandas frame `X` or `metadata`. None numbers the items from 0.
            For a Dask collection, pass an array or a Dask collection with the same
            partitions. For files, pass a list with the ids of each file.

        metadata : list of dict, frame or structured array, default=None
            Metadata of the items, in the same forms. `search` can filter by it.

        Returns
        -------
        self : object
            The index itself.
        """
        client = find_client()
        n_shards = self.n_shards or len(find_workers(client))
        names, parts = find_parts(X, ids, metadata, n_shards)
        if is_in_memory(X) or is_fitted(self.estimator):
            estimator, model = self._take_estimator(X, y)
        else:
            raise ValueError(
                "The estimator is not fitted, and X is not in memory. Fit the "
                "estimator first."
            )
        futures = build_shards(client, self._template(estimator, self.backend), parts)
        with self._changing():
            state = assemble(client, names, futures, (estimator, model))
            self._client, self._state = client, state
        return self

    def search(
        self,
        X: MatrixLike,
        k: int = 10,
        *,
        groups: ArrayLike | None = None,
        exclude: ArrayLike | None = None,
        filter: FilterLike | None = None,
        partial: Literal["refuse", "allow"] = "refuse",
    ) -> SearchResult:
        """Return the most similar items to each query.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        k : int, default=10
            Number of items per query.

        groups, exclude, filter : default=None
            As for :meth:`SimilarityIndex.search`. A function as filter runs on the
            workers, on the metadata of one shard at a time.

        partial : {"refuse", "allow"}, default="refuse"
            Behaviour if a shard is not available, for example if its worker was lost
            and its file no longer exists. "refuse" raises an error that names the
            shard. "allow" returns results from the other shards.

        Returns
        -------
        result : SearchResult
            Pair ``scores, ids``, with the metadata of the items found, which is fetched
            from the workers on first access; see
            :class:`~sklearn_simlearn.index.SearchResult`. With ``partial="allow"``, its
            attribute `missing` names the shards that did not answer.
        """
        index = self._snapshot()
        k = check_k(k)
        if partial not in ("refuse", "allow"):
            raise ValueError(f'partial must be "refuse" or "allow"; got {partial!r}.')
        shards = index._state
        sets = index._read_sets(groups, num_samples(X))
        if exclude is not None:
            check_lists("exclude", exclude, sets.n_sets)
        filters = shards.cut_filter(filter, sets.n_sets)
        missing: set[int] | None = set() if partial == "allow" else None
        scores, rows, ids = search_shards(index, X, k, sets, exclude, filters, missing)
        take = None
        if shards.common.has_metadata:
            take = bind(_changes.fetch_metadata, index._client, shards, rows[rows >= 0])
        names = [shards.names[i] for i in sorted(missing or ())]
        return SearchResult(scores, ids, take, names)

    def add(
        self,
        X: PartitionsLike,
        ids: PartitionsLike | None = None,
        metadata: MetadataLike | DaskCollection | None = None,
    ) -> Self:
        """Add items.

        Parameters
        ----------
        X : as for `fit`
            New items. Partitions and files become new shards. Items in memory are added
            to the shard with the fewest items.

        ids : as for `fit`, default=None
            New ids. They must not be in the index already. If `fit` got no ids, None
            continues the numbering. Ids of removed items are not reused.

        metadata : as for `fit`, default=None
            Metadata of the same type and columns as in `fit`.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        with self._changing():
            shards = self._shards_to_change()
            template = self._template(shards.estimator, shards.common.backend)
            self._state = _changes.add(self._client, shards, template, X, ids, metadata)
        return self

    def upsert(
        self,
        X: PartitionsLike,
        ids: PartitionsLike,
        metadata: MetadataLike | DaskCollection | None = None,
    ) -> Self:
        """Add items, and replace those with the same ids.

        A concurrent search sees all changes of the call or none. Replaced items count
        as added last.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_items, n_features)
            Items in the memory of this process.

        ids : array-like of shape (n_items,)
            Unique ids of the items.

        metadata : list of dict, frame or structured array, default=None
            Metadata of the same type and columns as in `fit`.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        if not is_in_memory(X):
            raise ValueError(
                "upsert requires items in the memory of this process. For partitions "
                "and files, remove the old items and call `add`."
            )
        if ids is None:
            raise ValueError("upsert requires the ids of the items.")
        with self._changing():
            shards = self._shards_to_change()
            self._state = _changes.upsert_rows(self._client, shards, X, ids, metadata)
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
            shards = self._shards_to_change()
            self._state = _changes.remove(self._client, shards, ids)
        return self

    def compact(self) -> Self:
        """Free the memory of removed items.

        Changes of the index do this automatically if more than a quarter of the rows
        are removed items.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        with self._changing():
            self._state = _changes.compact(self._client, self._state)
        return self

    def set_estimator(self, estimator: BaseEstimator) -> Self:
        """Replace the estimator, and encode the items again if needed.

        Parameters
        ----------
        estimator : estimator
            Fitted estimator for the same type of items.

        Returns
        -------
        self : object
            The index itself; see :meth:`SimilarityIndex.set_estimator`.
        """
        check_is_fitted(self)
        model = unwrap.find_model(estimator)
        with self._changing():
            self._state = _changes.set_estimator(
                self._client, self._state, estimator, model
            )
        return self

    def save(
        self, folder: str | os.PathLike[str], *, include_estimator: bool = True
    ) -> None:
        """Store the index in a folder that all workers see under the same path.

        Each worker stores its shards. A process that opens the folder during a save
        sees either the old or the new index. A save that fails keeps the old one.

        Afterwards this index uses the saved shards. They are mapped into memory from
        the folder, and opened again if a worker is lost. The original source is no
        longer needed.

        Parameters
        ----------
        folder : path-like
            Folder, created if it does not exist.

        include_estimator : bool, default=True
            Whether to store the estimator, too, with the package skops. For a parameter
            search, the best estimator is stored.
        """
        check_is_fitted(self)
        with self._changing():
            self._state = write_index(self._snapshot(), folder, include_estimator)

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
        """Open an index that `save` stored, or a folder of saved indexes.

        If a shard of a saved index is damaged or missing, a warning is issued. The
        other shards can be searched with ``partial="allow"``.

        Parameters
        ----------
        folder : path-like
            Folder that `save` wrote, or a folder whose sub-folders each hold a
            :class:`~sklearn_simlearn.index.SimilarityIndex`. The sub-folders become
            shards in the order of their names. If they were fitted without ids, the
            items of all shards are numbered consecutively. All workers must see the
            folder under the same path.

        mmap : bool, default=True
            Whether to map the shards into memory instead of reading them.

        estimator : estimator, default=None
            Fitted estimator for the queries, used instead of the stored one.

        trusted : sequence of str, default=None
            Names of types and functions that the stored estimator may use, as for
            :meth:`SimilarityIndex.load`. None does not load the estimator.

        verify : bool, default=False
            Whether to check all checksums immediately.

        Returns
        -------
        index : ShardedIndex
            The index.
        """
        return read_index(
            cls, folder, mmap=mmap, estimator=estimator, trusted=trusted, verify=verify
        )

    @property
    def ids_(self) -> np.ndarray:
        """Fetch the ids of the items from the workers."""
        state = self._fitted_state()
        return _changes.fetch(self._client, state)[0]

    @property
    def metadata_(self) -> MetadataLike | None:
        """Fetch the metadata of the items from the workers."""
        state = self._fitted_state()
        return _changes.fetch(self._client, state)[1]

    @property
    def shards_(self) -> list[str]:
        """Return the names of the shards."""
        return list(self._fitted_state().names)

    def _template(self, estimator, backend):
        """Return an unfitted index with the parameters of the shards."""
        return SimilarityIndex(
            estimator,
            backend=backend,
            backend_options=self.backend_options,
            store_items=self.store_items,
            n_jobs=self.n_jobs,
        )

    def _shards_to_change(self):
        """Return the shards, compacted if too many rows were removed."""
        if self._state.should_compact:
            self._state = _changes.compact(self._client, self._state)
        return self._state

    def _find_encoded(self, ids):
        return _changes.fetch_encoded(self._client, self._state, ids)

    def __getstate__(self):
        if self.__sklearn_is_fitted__():
            raise TypeError("A ShardedIndex cannot be pickled. Use `save`.")
        return super().__getstate__()
