"""Exact search of dense items."""

import threading
from contextlib import nullcontext

import numpy as np

from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn.index.backends._blocked_items import (
    N_QUERIES,
    BlockedItems,
    check,
    check_arrays,
    cut_rows,
)
from sklearn_simlearn.index.backends._dense_codes_fast import (
    INSTRUCTIONS,
    Block,
    Graded,
    Queries,
    encode_items,
    unit_queries,
)
from sklearn_simlearn.index.backends._dense_fast import (
    Scratch,
    find_best,
    finish_search,
    make_heaps,
)
from sklearn_simlearn.index.backends._dense_grades import (
    GRADED_LAYOUT,
    GROUP,
    check_grades,
    find_graded_shapes,
    grade,
    make_grades,
)
from sklearn_simlearn.index.backends._inverted_fast import finish_search as sort_heaps
from sklearn_simlearn.index.backends._listed_fast import score_listed

# Smallest number of items for several threads. With fewer items, one thread finishes
# before another has started.
PRODUCTS_PER_THREAD = 4_000_000

# Range of the number of features for which 8-bit codes are stored. With fewer features,
# codes save no time. With more, a sum of codes may overflow.
CODED = range(16, 2**16)

# Largest number of queries for which plain C uses codes. BLAS is faster for more.
N_QUERIES_PLAIN = 4

# Largest number of queries for which graded codes are used. Reading codes of 8 bits
# takes less time per query if there are more.
N_QUERIES_GRADED = 2

# Range of lengths of items that have codes. The squares of other items may be out of
# range.
SMALLEST = 1e-140

# Scratch memory for more results is not kept. Others take about 1 MiB per thread.
MOST_RESULTS = 1_000


class _Memory(threading.local):
    """Scratch memory of the last search of each thread, which the next one reuses."""

    def __init__(self):
        self._scratch, self._size = None, None

    def scratch(self, *size):
        """Return scratch memory for numbers of threads, queries, items and results."""
        if size[-1] > MOST_RESULTS:
            return Scratch(*size)
        if size != self._size:
            self._scratch, self._size = Scratch(*size), size
        return self._scratch


MEMORY = _Memory()


class DenseItems(BlockedItems):
    """Dense items, searched exactly.

    Items are scored if an upper bound of their score, computed from 8-bit codes, is
    large enough.

    Parameters
    ----------
    D : C-contiguous ndarray of shape (n_items, n_features)
        Items, float32 or float64. They are not copied and must not be changed
        afterwards.

    n_threads : int, default=1
        Number of threads that compute the codes.

    block_length : int, default=None
        Largest number of items per block, at most 262144, the default.
    """

    # With shorter blocks, the overhead of kernel calls would be a tenth of the time of
    # a query.
    _max_length = 262_144

    _layout = {
        "items": None,
        "longest": np.float64,
        "codes": np.uint8,
        "steps": np.float32,
        "errors": np.float32,
    } | GRADED_LAYOUT

    @classmethod
    def from_arrays(cls, arrays, *, verify=None):
        """Return the items in the result of `to_arrays`.

        In version 0.2.0.dev0, codes were stored row by row. They are computed again.
        """
        if getattr(arrays.get("codes_0"), "dtype", None) != np.int8:
            return super().from_arrays(arrays, verify=verify)
        check_arrays(arrays, {"lengths": np.int64, "alive": np.bool_})
        names = [f"items_{i}" for i in range(len(arrays["lengths"]))]
        check(all(name in arrays for name in names), "items are missing")
        if verify is not None:
            verify(["lengths", "alive", *names])
        self = cls(np.concatenate([arrays[name] for name in names]))
        check(self.n_items == len(arrays["alive"]), "'alive' does not fit the items")
        self.remove(~arrays["alive"])
        return self

    def _find_best(self, Q, alive, excluded, n_threads, scores, rows):
        n_products = self.n_items * self.n_features * min(len(Q), N_QUERIES)
        n_threads = min(n_threads, 1 + n_products // PRODUCTS_PER_THREAD)
        is_coded = self.n_features in CODED and (
            INSTRUCTIONS > 0 or len(Q) <= N_QUERIES_PLAIN
        )
        n_words = -(-self.n_features // 4) if is_coded else 0
        k, longest = scores.shape[1], max(self._lengths)
        # The kernel starts its own threads.
        with nullcontext() if is_coded else one_blas_thread():
            for first in range(0, len(Q), N_QUERIES):
                chunk = slice(first, first + N_QUERIES)
                part, offsets = Q[chunk], excluded[0][first : first + N_QUERIES + 1]
                queries = Queries(part, n_words, INSTRUCTIONS, offsets, excluded[1])
                scratch = MEMORY.scratch(n_threads, len(part), longest, k)
                products, *heaps = make_heaps(n_threads, len(part), k, self.dtype)
                is_graded = is_coded and len(part) <= N_QUERIES_GRADED
                if is_graded:
                    units = np.empty(part.shape, dtype=np.float32)
                    unit_queries(part, units)
                for block_rows, block in self._read():
                    items, unit, *codes = block[:5]
                    find_best(
                        part,
                        queries,
                        Block(block_rows.start, alive[block_rows], unit[0], *codes),
                        grade(units, block[5:], INSTRUCTIONS)
                        if is_graded
                        else Graded(),
                        items,
                        n_threads,
                        scratch,
                        products,
                        *heaps,
                    )
                finish_search(*heaps, scores[chunk], rows[chunk])

    # Scoring an item takes as long as the search of this number of items.
    _cost_of_item = 10

    def _score_listed(self, Q, listed, alive, excluded, n_threads, scores, rows):
        n_found = np.zeros(len(Q), dtype=np.int64)
        for first in range(0, len(Q), N_QUERIES):
            chunk = slice(first, first + N_QUERIES)
            offsets = excluded[0][first : first + N_QUERIES + 1]
            for block_rows, (items, *_) in self._read():
                score_listed(
                    Q[chunk],
                    items,
                    block_rows.start,
                    cut_rows(listed, block_rows),
                    alive[block_rows],
                    offsets,
                    excluded[1],
                    scores[chunk],
                    rows[chunk],
                    n_found[chunk],
                )
        sort_heaps(n_found, scores, rows)

    def _convert(self, Q):
        return np.ascontiguousarray(Q, dtype=self.dtype)

    def _cut(self, D):
        for first in range(0, D.shape[0], self._block_length):
            yield D[first : first + self._block_length]

    def _make_block(self, D):
        items = np.ascontiguousarray(D, dtype=self.dtype)
        squares = np.einsum("ij,ij->i", items, items, dtype=np.float64)
        longest = np.sqrt(squares.max(initial=0, keepdims=True))
        if not SMALLEST < longest[0] < 1 / SMALLEST:
            # The squares may be out of range.
            longest = np.abs(items).max(initial=0) * np.full(1, self.n_features**0.5)
        codes = self._encode(items, longest[0])
        graded = make_grades(items, longest[0], codes[0].size > 0)
        return items, longest, *codes, *graded

    def _encode(self, items, longest):
        """Return codes of items, their steps and their errors; see (dense-bound)."""
        is_coded = self.n_features in CODED and SMALLEST < longest < 1 / SMALLEST
        n_words = -(-self.n_features // 4) if is_coded else 0
        n_groups = -(-len(items) // GROUP)
        codes = np.empty((n_groups, n_words, GROUP, 4), dtype=np.uint8)
        n_coded = n_groups * GROUP if is_coded else 0
        steps, errors = np.empty((2, n_coded), dtype=np.float32)
        if is_coded:
            row = np.zeros(4 * n_words, dtype=np.int8)
            encode_items(items, longest, codes, steps, errors, row)
        return codes, steps, errors

    def _take(self, block, kept):
        return block[0][kept]

    @staticmethod
    def _stack(parts):
        return np.concatenate(parts)

    def _find_shapes(self, block, length):
        n_groups, n_words = -(-length // GROUP), -(-self.n_features // 4)
        if self.n_features not in CODED or block[2].size == 0:
            n_words = 0
        rows = [(length, self.n_features), (1,), (n_groups, n_words, GROUP, 4)]
        n_coded = n_groups * GROUP if n_words > 0 else 0
        graded = find_graded_shapes(block[5:], n_groups)
        return [*rows, (n_coded,), (n_coded,), *graded]

    def _check_contents(self, block, length):
        check_grades(block[5:], self.n_features, length)
