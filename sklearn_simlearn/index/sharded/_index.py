"""An index over many machines: shards on the workers of a Dask cluster."""

import threading
from numbers import Integral

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_is_fitted, validate_data

from sklearn_simlearn._core import unwrap
from sklearn_simlearn._core.sklearn import (
    HasMethods,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn.index import _metadata
from sklearn_simlearn.index._base import BaseIndex, check_k, is_fitted
from sklearn_simlearn.index._ids import check_ids, number_on, read_ids
from sklearn_simlearn.index._index import SimilarityIndex
from sklearn_simlearn.index.backends._registry import BACKENDS
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._folder import ShardedFolderMixin
from sklearn_simlearn.index.sharded._remote import (
    ask,
    derive,
    find_client,
    find_workers,
)
from sklearn_simlearn.index.sharded._sources import Rows, find_parts, is_in_memory
from sklearn_simlearn.index.sharded._state import (
    Shards,
    assemble,
    build_shards,
    merge,
    refuse_repeated,
    send,
    survey,
    unavailable,
)

# Bytes of encoded queries that one message holds.
MESSAGE = 2**22


class ShardedIndex(ShardedFolderMixin, BaseIndex):
    r"""The best items for a query, of more items than one machine holds.

    The items are cut into shards, each of which is a
    :class:`~sklearn_simlearn.index.SimilarityIndex` in the memory of a worker of a Dask
    cluster. A batch of queries is encoded once and sent to all shards; their best items
    are merged. The answer is that of one index over all items: the same ids, scores and
    order of ties. Read more in the :ref:`User Guide <scaling>`.

    The Dask client in force is used; the same code runs on the cores of a laptop and on
    a cluster.

    Parameters
    ----------
    estimator : estimator
        As for :class:`~sklearn_simlearn.index.SimilarityIndex`. One that is not fitted
        is fitted by `fit` if `X` lies in memory.

    n_shards : int, default=None
        Number of shards that items in memory are cut into; as many as the cluster has
        workers if None. Partitions and files are a shard each.

    backend, backend_options, store_items, n_jobs : default="auto", None, False, None
        Of the shards, as for :class:`~sklearn_simlearn.index.SimilarityIndex`. `n_jobs`
        threads of a worker answer a batch.

    Attributes
    ----------
    estimator_ : object
        The fitted estimator.

    ids_ : ndarray of shape (n_items,)
        Ids of the items, in the order in which they were added. They are fetched from
        the workers.

    metadata_ : list, frame, structured array or None
        What was given about the items, in the same order, fetched too.

    n_items_ : int
        Number of items, without those that were removed.

    shards_ : list of str
        Names of the shards: files, folders, partitions or rows.

    n_features_in_ : int
        Width of the items, where they have one.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the items, if they had any.

    See Also
    --------
    SimilarityIndex : The same on one machine.

    Notes
    -----
    A shard is the result of Dask tasks that open or build it and apply its changes. If
    a worker is lost, Dask runs them again on another, and a search in flight waits for
    it. So the source must outlive the index: files and folders must be where they were,
    and partitions computable. Items from memory, and those that were added, are kept by
    Dask's scheduler for that purpose; `save` lets it forget them.

    Threads may search at the same time, also while another one adds or removes items: a
    search sees all of a change or nothing of it. Changes wait for each other.

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
        estimator,
        *,
        n_shards=None,
        backend="auto",
        backend_options=None,
        store_items=False,
        n_jobs=None,
    ):
        self.estimator = estimator
        self.n_shards = n_shards
        self.backend = backend
        self.backend_options = backend_options
        self.store_items = store_items
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=False)
    def fit(self, X, y=None, ids=None, metadata=None):
        """Store items on the workers, and fit the estimator unless it is fitted.

        Parameters
        ----------
        X : Dask collection, list of files, or {array-like, sparse matrix} of shape \
                (n_items, n_features)
            Items. Of a Dask array or DataFrame, and of a Dask Series of vectors, each
            partition becomes a shard, as does each .npy or .npz file (as
            :func:`~sklearn_simlearn.datasets.load_npz` reads it), which workers must
            see under the same path. Other samples are cut into `n_shards`.

        y : array-like of shape (n_items,) or (n_items, n_columns), default=None
            Labels or relevance matrix, for an estimator that is not fitted.

        ids : array-like of shape (n_items,), default=None
            What `search` calls the items: integers or strings, each once. Their numbers
            0, 1, ... if None. Partitions may have partitions of ids, and files need a
            list with the ids of each.

        metadata : list of dict, frame or structured array, default=None
            More about the items, for `search` to filter by, in the same forms.

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
                "The estimator is not fitted, and X does not lie in memory: fit the "
                "estimator first."
            )
        template = SimilarityIndex(
            estimator,
            backend=self.backend,
            backend_options=self.backend_options,
            store_items=self.store_items,
            n_jobs=self.n_jobs,
        )
        futures = build_shards(client, template, parts)
        return self._start(client, names, futures, estimator, model)

    def search(
        self, X, k=10, *, groups=None, exclude=None, filter=None, partial="refuse"
    ):
        """The best items for each query.

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
            What becomes of a search if a shard cannot be had, such as one whose file is
            gone after its worker was lost: an error that names it, or an answer from
            the other shards.

        Returns
        -------
        scores : ndarray of shape (n_queries, k)
            Similarities, the largest first; -inf where there are no more items.

        ids : ndarray of shape (n_queries, k)
            Ids of the items; -1 or "" where the score is -inf.

        missing : list of str
            Names of the shards that could not be had. Only with ``partial="allow"``.
        """
        self._check_estimator()
        check_k(k)
        if partial not in ("refuse", "allow"):
            raise ValueError(f'partial must be "refuse" or "allow"; got {partial!r}.')
        shards = self._shards
        n_shards = len(shards.names)
        sets = self._read_sets(groups, num_samples(X))
        n_results = len(sets.sizes)
        if exclude is not None and len(exclude) != n_results:
            raise ValueError(
                "exclude must have one id, or a list of ids, per query; got "
                f"{len(exclude)} for {n_results}."
            )
        filters = [filter] * n_shards
        if not callable(filter) and np.asarray(filter).dtype == bool:
            filters = shards.cut_mask(np.asarray(filter))
        empty = "" if self._common.id_kind == "strings" else -1
        scores, ids, missing = [], [], set()
        row_bytes = 16 * (self._common.n_features + k)
        for batch, part, Q in self._encode_queries(X, sets, row_bytes):
            self._check_queries(Q, part)
            n_rows = max(1, MESSAGE * Q.shape[0] // max(1, _n_bytes(Q)))
            for some in gen_batches(Q.shape[0], n_rows):
                barred = None
                if exclude is not None:
                    first = batch.start + some.start
                    barred = exclude[first : first + some.stop - some.start]
                answers = self._ask(
                    shards,
                    _tasks.answer,
                    [
                        (Q[some], k, runs, barred, of_shard)
                        for runs, of_shard in zip(shards.runs, filters, strict=True)
                    ],
                    missing if partial == "allow" else None,
                )
                best = merge(answers, some.stop - some.start, k, empty, self._common)
                scores.append(best[0])
                ids.append(best[1])
        found = np.concatenate(scores), np.concatenate(ids)
        if partial == "refuse":
            return found
        return *found, [shards.names[i] for i in sorted(missing)]

    def add(self, X, ids=None, metadata=None):
        """Add items.

        Parameters
        ----------
        X : as for `fit`
            New items. Partitions and files become shards of their own, others go to
            the shard with the fewest items.

        ids : as for `fit`, default=None
            Their ids, none of them in the index. May be None if `fit` got none: they
            are then numbered on. Numbers of removed items are not given again.

        metadata : as for `fit`, default=None
            Of the kind that `fit` got.

        Returns
        -------
        self : object
            The index itself.
        """
        self._check_estimator()
        with self._lock:
            if ids is None and not self._is_numbered:
                raise ValueError(
                    "The index has ids: give those of the new items as well."
                )
            if is_in_memory(X):
                self._shards = self._add_rows(X, ids, metadata)
            else:
                self._shards = self._add_shards(X, ids, metadata)
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
        ids = read_ids(ids)
        with self._lock:
            shards = self._shards
            rows = self._find(shards, ids)
            found = rows.max(axis=0)
            if (found < 0).any():
                unknown = ids[found < 0][:3].tolist()
                raise ValueError(f"The index has no items with the ids {unknown}.")
            removed = np.union1d(shards.removed, found)
            affected = np.flatnonzero((rows >= 0).any(axis=1))
            futures = self._derive(
                shards, affected, _tasks.remove, [(ids,)] * len(affected)
            )
            self._shards = shards._replace(futures=futures, removed=removed)
        return self

    def compact(self):
        """Free the memory of removed items.

        Returns
        -------
        self : object
            The index itself.
        """
        check_is_fitted(self)
        with self._lock:
            shards = self._shards
            everyone = range(len(shards.names))
            futures = self._derive(
                shards, everyone, _tasks.compact, [()] * len(everyone)
            )
            runs = tuple(runs.without(shards.removed) for runs in shards.runs)
            self._shards = shards._replace(futures=futures, runs=runs)
        return self

    def set_estimator(self, estimator):
        """Replace the estimator, and keep the stored items where that is right.

        Parameters
        ----------
        estimator : estimator
            A fitted one, for the same kind of items.

        Returns
        -------
        self : object
            The index itself; see :meth:`SimilarityIndex.set_estimator`.
        """
        check_is_fitted(self)
        model = unwrap.find_model(estimator)
        with self._lock:
            shards = self._shards
            n_shards = len(shards.names)
            sent = send(self._client, estimator)
            futures = self._derive(
                shards, range(n_shards), _tasks.adopt, [(sent,)] * n_shards
            )
            common, found = survey(self._client, shards.names, futures)
            # Shards that were encoded again have forgotten removed items.
            runs = tuple(
                runs
                if part.n_rows == runs.length.sum()
                else runs.without(shards.removed)
                for runs, part in zip(shards.runs, found, strict=True)
            )
            self._common = common._replace(is_numbered=self._is_numbered)
            self._shards = shards._replace(futures=futures, runs=runs)
            self.estimator_, self._model = estimator, model
        return self

    @property
    def ids_(self):
        """Ids of the items."""
        return self._fetch()[0]

    @property
    def metadata_(self):
        """What was given about the items."""
        return self._fetch()[1]

    @property
    def n_items_(self):
        """Number of items."""
        shards = self._fitted_shards()
        return shards.n_rows - len(shards.removed)

    @property
    def shards_(self):
        """Names of the shards."""
        return list(self._fitted_shards().names)

    # -- inside --

    def _start(self, client, names, futures, estimator, model):
        """Take up new shards."""
        shards, common, is_numbered = assemble(client, names, futures)
        self._open(client, shards, common, is_numbered)
        self.estimator_, self._model = estimator, model
        return self

    def _open(self, client, shards, common, is_numbered):
        self._client, self._lock = client, threading.Lock()
        self._shards, self._is_numbered = shards, is_numbered
        # Shards themselves do not number items.
        self._common = common._replace(is_numbered=is_numbered)
        for name in ("n_features_in_", "feature_names_in_"):
            vars(self).pop(name, None)
        if common.n_features_in is not None:
            self.n_features_in_ = common.n_features_in
        if common.names_in is not None:
            self.feature_names_in_ = np.array(common.names_in, dtype=object)

    def _add_rows(self, X, ids, metadata):
        """The shards after some rows were added to the smallest."""
        shards, n_items = self._shards, num_samples(X)
        if ids is None:
            ids = number_on(shards.next_id, n_items)
        else:
            ids = check_ids(ids, n_items)
            self._refuse_known(shards, ids)
        next_id = shards.next_id
        if self._is_numbered:
            next_id = max(next_id, int(ids.max(initial=-1)) + 1)
        smallest = int(np.argmin([runs.length.sum() for runs in shards.runs]))
        rows = Rows(_metadata.as_table(X), ids, metadata)
        futures = self._derive(shards, [smallest], _tasks.add, [(rows,)])
        runs = list(shards.runs)
        runs[smallest] = runs[smallest].append(shards.n_rows, n_items)
        return shards._replace(
            futures=futures,
            runs=tuple(runs),
            n_rows=shards.n_rows + n_items,
            next_id=next_id,
        )

    def _add_shards(self, X, ids, metadata):
        """The shards with new ones at the end."""
        shards = self._shards
        names, parts = find_parts(X, ids, metadata, 1)
        template = SimilarityIndex(
            self.estimator_,
            backend=self._common.backend,
            backend_options=self.backend_options,
            store_items=self.store_items,
            n_jobs=self.n_jobs,
        )
        futures = build_shards(self._client, template, parts)
        new, _, _ = assemble(
            self._client,
            names,
            futures,
            first_row=shards.n_rows,
            first_id=shards.next_id,
            like=self._common,
        )
        if not self._is_numbered:
            refuse_repeated(self._client, [*shards.futures, *new.futures])
        return Shards(
            shards.names + new.names,
            shards.futures + new.futures,
            shards.runs + new.runs,
            shards.removed,
            new.n_rows,
            new.next_id,
        )

    def _refuse_known(self, shards, ids):
        known = self._find(shards, ids).max(axis=0) >= 0
        if known.any():
            raise ValueError(
                f"The index already has items with the ids {ids[known][:3].tolist()}: "
                "remove them first."
            )

    def _find(self, shards, ids):
        """Row of each id in each shard, -1 where it has none."""
        arguments = [(ids, runs) for runs in shards.runs]
        return np.stack(self._ask(shards, _tasks.find, arguments))

    def _fetch(self):
        """Ids and metadata of all items, in their order."""
        shards = self._fitted_shards()
        arguments = [(runs,) for runs in shards.runs]
        parts = self._ask(shards, _tasks.current, arguments)
        rows, ids, metadata = zip(*parts, strict=True)
        order = np.argsort(np.concatenate(rows))
        table = None
        if metadata[0] is not None:
            table = metadata[0]
            for more in metadata[1:]:
                table = _metadata.join(table, more)
            table = _metadata.take(table, order)
        return np.concatenate(ids)[order], table

    def _ask(self, shards, function, arguments, missing=None):
        """Answers of all shards, or of those that can be had if `missing` takes note.

        A call that fails because a shard cannot be had raises an error that names it.
        """
        answers, faults = ask(self._client, shards.futures, function, arguments)
        if faults and missing is None:
            raise unavailable(shards.names, faults)
        if faults:
            missing.update(faults)
        return [part for i, part in enumerate(answers) if i not in faults]

    def _derive(self, shards, affected, function, arguments):
        """The futures of all shards, of which some are replaced."""
        futures = list(shards.futures)
        made = derive(self._client, [futures[i] for i in affected], function, arguments)
        for i, future in zip(affected, made, strict=True):
            futures[i] = future
        return tuple(futures)

    def _check_queries(self, Q, X):
        if not hasattr(self.estimator_, "n_features_in_"):
            # One that needs no fit does not compare X with the items.
            validate_data(self, X, reset=False, skip_check_array=True)
        if Q.shape[1] != self._common.n_features:
            raise ValueError(
                f"The estimator encodes with {Q.shape[1]} features, the stored items "
                f"have {self._common.n_features}."
            )

    def _fitted_shards(self):
        if "_shards" not in vars(self):
            raise AttributeError("The index is not fitted yet.")
        return self._shards

    def __sklearn_is_fitted__(self):
        return hasattr(self, "_shards")

    def __getstate__(self):
        if hasattr(self, "_shards"):
            raise TypeError(
                "A ShardedIndex lives on a cluster and cannot be pickled: use `save`."
            )
        return super().__getstate__()


def _n_bytes(Q):
    if sparse.issparse(Q):
        return Q.data.nbytes + Q.indices.nbytes + Q.indptr.nbytes
    return Q.nbytes
