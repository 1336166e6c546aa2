"""What backends share that ask another library: rows left out, ties, the arrays."""

import json
from abc import ABC, abstractmethod

import numpy as np

from sklearn_simlearn.index.backends._blocked_items import check, check_arrays


class ForeignItems(ABC):
    """Dense items in the index of another library, in single precision.

    A subclass finds the nearest items with `_find`; rows that must not be returned are
    dropped here, and more are asked for where too few are left. `_options` names the
    parameters that are saved.
    """

    dtype = np.dtype(np.float32)

    @property
    def n_items(self):
        """Number of rows, those of removed items included."""
        return len(self._alive)

    @property
    def nbytes(self):
        """Size in bytes, when saved."""
        return sum(array.nbytes for array in self.to_arrays().values())

    def __sizeof__(self):
        """Bytes in memory, roughly: those of the vectors."""
        return 4 * self.n_items * self.n_features

    @abstractmethod
    def _find(self, Q, depth, alive, n_threads):
        """Scores and rows of the best items as found; row -1 where there are no more.

        Items that are not alive may be among them.
        """

    def remove(self, rows):
        """Never return these rows again."""
        self._alive[rows] = False

    def fork(self):
        """A copy that can be changed on its own."""
        return type(self).from_arrays(self.to_arrays())

    def search(self, Q, k, *, allowed=None, excluded=None, n_threads=1):
        """The k best items per query as far as the index finds them, best first.

        The parameters are those of the exact backends.
        """
        Q = self._convert(Q)
        scores = np.full((Q.shape[0], k), -np.inf, dtype=np.float32)
        rows = np.full((Q.shape[0], k), -1, dtype=np.int64)
        alive = self._alive if allowed is None else self._alive & allowed
        if k == 0 or not alive.any():
            return scores, rows
        barred = [np.zeros(0, dtype=np.int64)] * Q.shape[0]
        if excluded is not None:
            barred = np.split(excluded[1], excluded[0][1:-1])
        open_queries = np.arange(Q.shape[0])
        depth = k + max(map(len, barred), default=0)
        while len(open_queries) > 0:
            depth = min(depth, self.n_items)
            found_scores, found = self._find(Q[open_queries], depth, alive, n_threads)
            short = []
            for query, query_scores, query_rows in zip(
                open_queries, found_scores, found, strict=True
            ):
                kept = (query_rows >= 0) & alive[query_rows]
                kept &= ~np.isin(query_rows, barred[query])
                best = np.flatnonzero(kept)
                best = best[np.lexsort((query_rows[best], -query_scores[best]))[:k]]
                scores[query, : len(best)] = query_scores[best]
                rows[query, : len(best)] = query_rows[best]
                if len(best) < k and query_rows[-1] >= 0 and depth < self.n_items:
                    short.append(query)
            open_queries = np.array(short, dtype=np.int64)
            depth *= 4
        return scores, rows

    def to_arrays(self):
        """Arrays that `from_arrays` opens again."""
        options = json.dumps({name: getattr(self, name) for name in self._options})
        arrays = {
            "shape": np.array([self.n_features], dtype=np.int64),
            "options": np.frombuffer(options.encode(), dtype=np.uint8),
            "alive": self._alive,
        }
        for i, saved in enumerate(self._save()):
            arrays[f"index_{i}"] = saved
        return arrays

    @classmethod
    def from_arrays(cls, arrays, *, verify=None):
        """Open what `to_arrays` gave.

        The other library reads its own array. What it does with a forged one is up to
        it: open such an index only from a source you trust.
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
        self._open([arrays[name] for name in names])
        return self

    def verify(self):
        """Check all arrays; `from_arrays` has done so."""
        return None

    @staticmethod
    def _convert(Q):
        return np.ascontiguousarray(Q, dtype=np.float32)
