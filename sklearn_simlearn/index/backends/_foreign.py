"""Base class of the backends that use another library."""

import json
import threading
from abc import ABC, abstractmethod
from contextlib import contextmanager
from copy import copy

import numpy as np

from sklearn_simlearn.index.backends._blocked_items import (
    check,
    check_arrays,
    restrict,
)


class Shared:
    """Index of another library, shared by several `ForeignItems`.

    Rows are added to the index but never changed or removed. A `ForeignItems` with
    fewer rows ignores the additional ones.

    Parameters
    ----------
    library_index : object
        The index, or a list of indexes.

    n_rows : int
        Number of rows of the index.

    source : ndarray, default=None
        Bytes that the index reads in place. If given, rows cannot be added.
    """

    def __init__(self, library_index, n_rows, source=None):
        self.index, self.n_rows, self.source = library_index, n_rows, source
        self._condition = threading.Condition()
        self._gate = threading.Lock()
        self._n_readers = 0

    @contextmanager
    def reading(self):
        """Hold the lock for readers, which excludes writers."""
        with self._gate, self._condition:
            self._n_readers += 1
        try:
            yield self.index
        finally:
            with self._condition:
                self._n_readers -= 1
                self._condition.notify_all()

    @contextmanager
    def writing(self):
        """Hold the lock for a writer, which excludes readers and writers."""
        with self._gate, self._condition:
            self._condition.wait_for(lambda: self._n_readers == 0)
            yield self.index


class ForeignItems(ABC):
    """Dense items in the index of another library, in single precision.

    A subclass finds the nearest items with `_find`. This class drops rows that must not
    be returned, and asks for more items if too few are left. `_options` names the
    parameters that are saved.

    The other library changes its index in place, under a lock. Copies by `fork` share
    this index, but an item that is added to one copy is not found by the others.
    """

    dtype = np.dtype(np.float32)

    @property
    def n_items(self):
        """Return the number of rows, including those of removed items."""
        return len(self._alive)

    @property
    def nbytes(self):
        """Return the size in bytes when saved."""
        return sum(array.nbytes for array in self.to_arrays().values())

    def __sizeof__(self):
        """Return the number of bytes of the vectors in memory."""
        return 4 * self.n_items * self.n_features

    @abstractmethod
    def _find(self, index, Q, depth, alive, n_threads):
        """Return unfiltered scores and rows of the best items; row -1 if missing.

        The result may contain removed items and items that other copies have added.
        """

    @abstractmethod
    def _count(self, index):
        """Return the number of rows of an index of the library."""

    @abstractmethod
    def _grow(self, index, D, n_threads):
        """Add items to an index of the library."""

    @abstractmethod
    def _extract(self, index, rows):
        """Return the content of an index of the library for `_rebuild`."""

    @abstractmethod
    def _rebuild(self, extracted, rows, n_threads):
        """Return a new index of the library with some rows of another."""

    def add(self, D, *, n_threads=1):
        """Append items as new rows."""
        D = self._convert(D)
        shared = self._shared
        if shared.source is not None:
            shared = self._rebuilt(np.arange(self.n_items), n_threads)
        while True:
            with shared.writing() as index:
                if shared.n_rows == self.n_items:
                    # If adding fails, this index accepts no more rows.
                    shared.n_rows = -1
                    self._grow(index, D, n_threads)
                    shared.n_rows = self.n_items + len(D)
                    break
            # Another copy has already added items.
            shared = self._rebuilt(np.arange(self.n_items), n_threads)
        self._shared = shared
        self._alive = np.append(self._alive, np.ones(len(D), dtype=bool))

    def remove(self, rows):
        """Exclude these rows from all later searches."""
        self._alive[rows] = False

    def compact(self, *, n_threads=1):
        """Drop removed rows, and return the old numbers of the remaining rows."""
        kept = np.flatnonzero(self._alive)
        if len(kept) < self.n_items:
            self._shared = self._rebuilt(kept, n_threads)
            self._alive = np.ones(len(kept), dtype=bool)
        return kept

    def _rebuilt(self, rows, n_threads):
        with self._reading() as index:
            extracted = self._extract(index, rows)
        return Shared(self._rebuild(extracted, rows, n_threads), len(rows))

    def fork(self):
        """Return an independent copy."""
        other = copy(self)
        other._alive = self._alive.copy()
        return other

    def search(self, Q, k, *, allowed=None, excluded=None, n_threads=1):
        """Return the k best items per query that the index finds, best first.

        The parameters are those of the exact backends.
        """
        Q = self._convert(Q)
        scores = np.full((Q.shape[0], k), -np.inf, dtype=np.float32)
        rows = np.full((Q.shape[0], k), -1, dtype=np.int64)
        alive = restrict(self._alive, allowed)
        if k == 0 or not alive.any():
            return scores, rows
        barred = [np.zeros(0, dtype=np.int64)] * Q.shape[0]
        if excluded is not None:
            barred = np.split(excluded[1], excluded[0][1:-1])
        open_queries = np.arange(Q.shape[0])
        depth = k + max(map(len, barred), default=0)
        while len(open_queries) > 0:
            with self._reading() as index:
                # Rows that other copies have added may replace some of these.
                n_rows = self._count(index)
                depth = min(depth, n_rows)
                found_scores, found = self._find(
                    index, Q[open_queries], depth, alive, n_threads
                )
            short = []
            for query, query_scores, query_rows in zip(
                open_queries, found_scores, found, strict=True
            ):
                kept = (query_rows >= 0) & (query_rows < self.n_items)
                kept[kept] = alive[query_rows[kept]]
                kept &= ~np.isin(query_rows, barred[query])
                best = np.flatnonzero(kept)
                best = best[np.lexsort((query_rows[best], -query_scores[best]))[:k]]
                scores[query, : len(best)] = query_scores[best]
                rows[query, : len(best)] = query_rows[best]
                if len(best) < k and query_rows[-1] >= 0 and depth < n_rows:
                    short.append(query)
            open_queries = np.array(short, dtype=np.int64)
            depth *= 4
        return scores, rows

    def _reading(self):
        """Return a context with the index of the library, for a search."""
        return self._shared.reading()

    def to_arrays(self):
        """Return the arrays for `from_arrays`."""
        options = json.dumps({name: getattr(self, name) for name in self._options})
        arrays = {
            "shape": np.array([self.n_features], dtype=np.int64),
            "options": np.frombuffer(options.encode(), dtype=np.uint8),
            "alive": self._alive,
        }
        shared = self._shared
        if shared.n_rows != self.n_items:
            shared = self._rebuilt(np.arange(self.n_items), 1)
        with shared.writing() as index:
            for i, saved in enumerate(self._save(index)):
                arrays[f"index_{i}"] = saved
        return arrays

    @classmethod
    def from_arrays(cls, arrays, *, verify=None):
        """Return the items in the result of `to_arrays`.

        The other library reads its own array and may not detect a forged one. Open such
        an index only if you trust its source.
        """
        names = sorted(name for name in arrays if name.startswith("index_"))
        small = {"shape": np.int64, "options": np.uint8, "alive": np.bool_}
        check_arrays(arrays, {**small, **dict.fromkeys(names, np.uint8)})
        if verify is not None:
            verify([*small, *names])
        self = cls.__new__(cls)
        check(len(arrays["shape"]) == 1, "'shape' must hold one number")
        self.n_features = int(arrays["shape"][0])
        self._alive = np.array(arrays["alive"])
        try:
            options = json.loads(arrays["options"].tobytes())
        except ValueError:
            options = None
        check(
            isinstance(options, dict) and set(options) == set(self._options),
            "'options' cannot be read",
        )
        self.__dict__.update(options)
        self._shared = self._open([arrays[name] for name in names])
        return self

    def verify(self):
        """Do nothing: `from_arrays` has checked all arrays."""
        return None

    @staticmethod
    def _convert(Q):
        return np.ascontiguousarray(Q, dtype=np.float32)
