"""Search with the package bmp (block-max pruning), for comparison."""

import tempfile
from itertools import pairwise
from pathlib import Path

import numpy as np


def to_impacts(X):
    """Yield rows as dicts from words to weights of 8 bits, which BMP reads."""
    factor = 255 / X.data.max()
    for begin, end in pairwise(X.indptr):
        weights = np.maximum(np.rint(factor * X.data[begin:end]), 1).astype(int)
        words = map(str, X.indices[begin:end].tolist())
        yield dict(zip(words, weights.tolist(), strict=True))


class BMP:
    """Index of non-negative CSR rows in blocks of 32 items, the default of the package.

    A search does not approximate the best items by the weights of 8 bits.
    """

    def __init__(self, X):
        from bmp import Indexer, Searcher

        with tempfile.TemporaryDirectory() as folder:
            path = str(Path(folder, "items.bmp"))
            indexer = Indexer(path, 32, False)
            for number, row in enumerate(to_impacts(X)):
                indexer.add_document(str(number), row)
            indexer.finish()
            self._searcher = Searcher(path)

    def search(self, impacts, k):
        """Return ids and scores of the best items for a row of `to_impacts`."""
        return self._searcher.search(impacts, k=k, alpha=1.0, beta=1.0)
