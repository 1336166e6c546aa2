"""Search of dense items by usearch."""

import numpy as np

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn.index.backends._blocked_items import check
from sklearn_simlearn.index.backends._foreign import ForeignItems, Shared

STORED = {"float32": "f32", "float16": "f16", "int8": "i8"}


class UsearchItems(ForeignItems):
    """Dense items in a graph of usearch, by inner product.

    Parameters
    ----------
    D : ndarray of shape (n_items, n_features)
        Items.

    stored : {"float32", "float16", "int8"}, default="float32"
        Type of the stored values. For int8, values are multiplied by a constant such
        that the largest value of the first items fits. Larger values of later items are
        clipped.

    connectivity : int, default=None
        Number of neighbours per item in the graph. If None, the default of usearch.

    expansion_add, expansion_search : int, default=None
        Sizes of the lists of candidates when adding and searching. If None, the
        defaults of usearch.

    exact : bool, default=False
        Whether to compare all items instead of searching the graph.

    n_threads : int, default=1
        Number of threads that build the graph. The graph depends on it.
    """

    _options = (
        "stored",
        "connectivity",
        "expansion_add",
        "expansion_search",
        "exact",
    )

    def __init__(
        self,
        D,
        *,
        stored="float32",
        connectivity=None,
        expansion_add=None,
        expansion_search=None,
        exact=False,
        n_threads=1,
    ):
        self.stored, self.exact, self.connectivity = stored, exact, connectivity
        self.expansion_add, self.expansion_search = expansion_add, expansion_search
        self.n_features = D.shape[1]
        self._alive = np.ones(0, dtype=bool)
        largest = np.abs(D).max(initial=0)
        self._scale = np.float32(127 / largest if largest > 0 else 1)
        self._shared = Shared(self._make_index(), 0)
        self.add(D, n_threads=n_threads)

    def _make_index(self):
        return _import_usearch().Index(
            ndim=self.n_features,
            metric="ip",
            dtype=STORED[self.stored],
            connectivity=self.connectivity,
            expansion_add=self.expansion_add,
            expansion_search=self.expansion_search,
        )

    def _reading(self):
        # Concurrent searches would use the same memory of usearch.
        return self._shared.writing()

    def _count(self, index):
        return len(index)

    def _grow(self, index, D, n_threads):
        rows = np.arange(len(index), len(index) + len(D))
        if len(D) > 0:
            index.add(rows, self._quantise(D, self._scale), threads=n_threads)

    def _extract(self, index, rows):
        shared = self._shared
        if shared.source is not None and len(rows) == shared.n_rows:
            return bytes(shared.source)
        return np.array(index.get(rows)) if len(rows) else None

    def _rebuild(self, extracted, rows, n_threads):
        index = self._make_index()
        if isinstance(extracted, bytes):
            index.load(extracted)
        elif extracted is not None:
            index.add(np.arange(len(rows)), extracted, threads=n_threads)
        return index

    def _find(self, index, Q, depth, alive, n_threads):
        scale = np.ones(len(Q), dtype=np.float32)
        if self.stored == "int8":
            largest = np.abs(Q).max(axis=1, initial=0)
            scale = np.divide(127, largest, out=scale, where=largest > 0)
        matches = index.search(
            self._quantise(Q, scale[:, None]),
            depth,
            threads=n_threads,
            exact=self.exact,
        )
        counts = np.atleast_1d(getattr(matches, "counts", depth))
        distances = np.atleast_2d(matches.distances)
        # usearch does not set the entries after the last match.
        found = np.arange(distances.shape[1]) < counts[:, None]
        scores = np.full(distances.shape, -np.inf, dtype=np.float32)
        scores[found] = 1 - distances[found].astype(np.float32)
        rows = np.full(distances.shape, -1, dtype=np.int64)
        rows[found] = np.atleast_2d(matches.keys)[found]
        if self.stored == "int8":
            scores /= scale[:, None] * self._scale
        return scores, rows

    def _quantise(self, X, scale):
        if self.stored != "int8":
            return X
        return np.clip(np.rint(X * scale), -127, 127).astype(np.int8)

    def _save(self, index):
        saved = index.save()
        return [
            np.frombuffer(saved, dtype=np.uint8),
            np.frombuffer(self._scale.tobytes(), dtype=np.uint8),
        ]

    def _open(self, saved):
        check(len(saved) == 2 and len(saved[1]) == 4, "two usearch arrays are needed")
        self._scale = np.frombuffer(saved[1].tobytes(), dtype=np.float32)[0]
        index = self._make_index()
        try:
            index.view(memoryview(saved[0]))
        except Exception as error:  # usearch raises errors of many types
            raise ValueError("usearch cannot read its index.") from error
        check(index.ndim == self.n_features, "usearch: wrong number of features")
        check(len(index) == self.n_items, "usearch: wrong number of items")
        return Shared(index, self.n_items, source=saved[0])


def _import_usearch():
    return import_optional("usearch.index", "usearch", "The backend 'usearch'")
