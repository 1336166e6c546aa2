"""Search of dense items by usearch."""

import numpy as np

from sklearn_simlearn.index.backends._blocked_items import check
from sklearn_simlearn.index.backends._foreign import ForeignItems

STORED = {"float32": "f32", "float16": "f16", "int8": "i8"}


class UsearchItems(ForeignItems):
    """Dense items in a graph of usearch, by inner product.

    Parameters
    ----------
    D : ndarray of shape (n_items, n_features)
        Items.

    stored : {"float32", "float16", "int8"}, default="float32"
        How their values are stored. As int8 they are multiplied by a constant, so that
        the largest value of the first items just fits; later ones are cut off there.

    connectivity : int, default=None
        Neighbours per item in the graph; None leaves it to usearch.

    expansion_add, expansion_search : int, default=None
        How many nearest items adding and searching keep; None leaves it to usearch.

    exact : bool, default=False
        Whether to compare all items instead of following the graph.

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
        self._index, self._is_mapped = self._make_index(), False
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

    def add(self, D, *, n_threads=1):
        """Add items; their rows go on from the last one."""
        self._load()
        rows = np.arange(self.n_items, self.n_items + D.shape[0])
        D = self._convert(D)
        if len(D) > 0:
            self._index.add(rows, self._quantise(D, self._scale), threads=n_threads)
        self._alive = np.append(self._alive, np.ones(len(D), dtype=bool))

    def compact(self, *, n_threads=1):
        """Forget removed items; returns the rows that are kept, numbered anew."""
        kept = np.flatnonzero(self._alive)
        if len(kept) < self.n_items:
            vectors = np.array(self._index.get(kept))
            self._index, self._is_mapped = self._make_index(), False
            if len(kept) > 0:
                self._index.add(np.arange(len(kept)), vectors, threads=n_threads)
            self._alive = np.ones(len(kept), dtype=bool)
        return kept

    def _find(self, Q, depth, alive, n_threads):
        scale = np.ones(len(Q), dtype=np.float32)
        if self.stored == "int8":
            largest = np.abs(Q).max(axis=1, initial=0)
            scale = np.divide(127, largest, out=scale, where=largest > 0)
        matches = self._index.search(
            self._quantise(Q, scale[:, None]),
            depth,
            threads=n_threads,
            exact=self.exact,
        )
        counts = np.atleast_1d(getattr(matches, "counts", depth))
        scores = 1 - np.atleast_2d(matches.distances).astype(np.float32)
        rows = np.atleast_2d(matches.keys).astype(np.int64)
        if self.stored == "int8":
            scores /= scale[:, None] * self._scale
        rows[np.arange(rows.shape[1]) >= counts[:, None]] = -1
        return scores, rows

    def _quantise(self, X, scale):
        if self.stored != "int8":
            return X
        return np.clip(np.rint(X * scale), -127, 127).astype(np.int8)

    def _save(self):
        saved = self._index.save()
        return [
            np.frombuffer(saved, dtype=np.uint8),
            np.frombuffer(self._scale.tobytes(), dtype=np.uint8),
        ]

    def _open(self, saved):
        check(len(saved) == 2 and len(saved[1]) == 4, "two usearch arrays are needed")
        self._scale = np.frombuffer(saved[1].tobytes(), dtype=np.float32)[0]
        self._index, self._is_mapped = self._make_index(), True
        self._buffer = saved[0]  # the index reads it, as long as it is
        try:
            self._index.view(memoryview(self._buffer))
        except Exception as error:  # usearch raises what it likes
            raise ValueError("usearch cannot read its index.") from error
        check(
            self._index.ndim == self.n_features, "the usearch index has another width"
        )
        check(len(self._index) == self.n_items, "the usearch index has another length")

    def _load(self):
        """Turn a mapped index, which is fixed, into one that can grow."""
        if self._is_mapped:
            index = self._make_index()
            index.load(bytes(self._buffer))
            self._index, self._is_mapped, self._buffer = index, False, None


def _import_usearch():
    try:
        import usearch.index
    except ImportError as error:
        raise ImportError(
            "The backend 'usearch' needs usearch: "
            'pip install "sklearn-simlearn[usearch]" brings it.'
        ) from error
    return usearch.index
