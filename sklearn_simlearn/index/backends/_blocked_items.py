"""Base class of the exact backends: blocks of items, removal, and arrays to save.

Items are stored in immutable blocks. Added items become new blocks, which are merged
with preceding shorter blocks. Therefore each row is copied a logarithmic number of
times, and the number of blocks is small.
"""

import mmap
from concurrent.futures import ThreadPoolExecutor
from copy import copy

import numpy as np

from sklearn_simlearn._core.storage import DamagedError

# Number of queries per call of a kernel. Ctrl-C takes effect only between calls.
N_QUERIES = 256


class BlockedItems:
    """Items in blocks, ranked by their inner product with a query.

    A subclass defines blocks. A block is a tuple of arrays with the names and dtypes of
    `_layout`, where None means the dtype of the items. `_make_block(D)` builds a block,
    and `_take(block, kept)` returns some of its rows. `_find_shapes` and
    `_check_contents` define the conditions that the kernels require. A block has at
    most `_max_length` rows. `_find_best` searches all items. `_score_listed` scores
    listed items; it is faster if at most one item in `_cost_of_item` is listed.
    """

    _max_values = np.iinfo(np.int32).max  # offsets within a block are int32

    def __init__(self, D, *, n_threads=1, block_length=None):
        self._block_length = block_length or self._max_length
        self.n_features = D.shape[1]
        self.dtype = D.dtype
        self._start(n_threads, [D])

    def _start(self, n_threads, parts):
        self._blocks, self._lengths, self._unread, self._opened = [], [], [], []
        self._alive = np.ones(0, dtype=bool)
        for D in parts:
            self.add(D, n_threads=n_threads)

    @property
    def n_items(self):
        """Return the number of rows, including those of removed items."""
        return len(self._alive)

    @property
    def nbytes(self):
        """Return the size in bytes."""
        return sum(array.nbytes for array in self.to_arrays().values())

    def __sizeof__(self):
        """Return the number of bytes in memory, without memory-mapped files."""
        arrays = self.to_arrays().values()
        return sum(array.nbytes for array in arrays if not _is_mapped(array))

    def add(self, D, *, n_threads=1):
        """Append items as new rows."""
        first = self._find_merged(D.shape[0])
        if first < len(self._blocks):
            before = [self._take(block, slice(None)) for _, block in self._read(first)]
            merged = self._stack([*before, D])
        else:
            merged = D
        parts = list(self._cut(merged))
        if n_threads > 1:
            with ThreadPoolExecutor(n_threads) as pool:
                made = list(pool.map(self._make_block, parts))
        else:
            made = [self._make_block(part) for part in parts]
        self._blocks[first:] = made
        self._lengths[first:] = [part.shape[0] for part in parts]
        self._unread[first:] = self._opened[first:] = [None] * len(parts)
        self._alive = np.append(self._alive, np.ones(D.shape[0], dtype=bool))

    def _find_merged(self, n_added):
        """Return the number of the first block that added rows are merged into."""
        first = len(self._blocks)
        while first > 0 and self._lengths[first - 1] < min(
            2 * n_added, self._block_length - n_added
        ):
            first -= 1
            n_added += self._lengths[first]
        return first

    def remove(self, rows):
        """Exclude these rows from all later searches."""
        self._alive[rows] = False

    def compact(self, *, n_threads=1):
        """Drop removed rows, and return the old numbers of the remaining rows."""
        kept = np.flatnonzero(self._alive)
        if len(kept) < self.n_items:
            self._start(n_threads, [self.take(kept)])
        return kept

    def fork(self):
        """Return an independent copy that shares the blocks."""
        other = copy(self)
        for name in ("_blocks", "_lengths", "_unread", "_opened", "_alive"):
            setattr(other, name, copy(getattr(self, name)))
        return other

    def take(self, rows):
        """Return some items as rows, sparse or dense."""
        is_sorted = (rows[1:] >= rows[:-1]).all()
        order = slice(None) if is_sorted else np.argsort(rows, kind="stable")
        places = rows[order]
        parts = []
        for held, block in self._read():
            here = cut_rows(places, held)
            if len(here):
                parts.append(self._take(block, here))
        if not parts:
            parts = [self._take(block, slice(0)) for _, block in self._read()][:1]
        taken = self._stack(parts)
        return taken if is_sorted else taken[np.argsort(order)]

    def search(self, Q, k, *, allowed=None, excluded=None, n_threads=1):
        """Return the k best items per query, best first. Ties are ordered by row.

        Parameters
        ----------
        Q : canonical rows of shape (n_queries, n_features)
            Queries.

        k : int
            Number of items per query.

        allowed : ndarray, default=None
            Items that may be returned: a boolean mask of all rows, or rows in ascending
            order. If None, all items.

        excluded : tuple (indptr, rows), default=None
            The items ``rows[indptr[i]:indptr[i + 1]]`` are excluded for query i.

        n_threads : int, default=1
            Number of threads. The result does not depend on it.

        Returns
        -------
        scores : ndarray of shape (n_queries, k)
            Inner products; -inf if there are fewer than k items.

        rows : int64 ndarray of shape (n_queries, k)
            Rows of the items; -1 where the score is -inf.
        """
        n_queries, depth = Q.shape[0], min(k, self.n_items)
        scores = np.full((n_queries, depth), -np.inf, dtype=self.dtype)
        rows = np.full((n_queries, depth), -1, dtype=np.int64)
        if depth > 0 and n_queries > 0:
            # The inputs are valid from here on. Kernels do not check them.
            Q, excluded = self._convert(Q), _sort_lists(excluded, n_queries)
            listed = self._list_few(allowed)
            if listed is not None:
                alive = self._alive.view(np.uint8)
                self._score_listed(Q, listed, alive, excluded, n_threads, scores, rows)
            else:
                alive = restrict(self._alive, allowed).view(np.uint8)
                self._find_best(Q, alive, excluded, n_threads, scores, rows)
        return _widen(scores, k, -np.inf), _widen(rows, k, -1)

    def _list_few(self, allowed):
        """Return the allowed rows if it is faster to score all of them; else None."""
        if allowed is None:
            return None
        is_mask = allowed.dtype == bool
        n_allowed = np.count_nonzero(allowed) if is_mask else len(allowed)
        if n_allowed * self._cost_of_item > self.n_items:
            return None
        return np.flatnonzero(allowed) if is_mask else allowed

    def to_arrays(self):
        """Return the arrays for `from_arrays`, without copies.

        Returns
        -------
        arrays : dict of str to ndarray
            Arrays by name. Names of arrays of a block end in its number.
        """
        arrays = {
            "shape": np.array(
                [self.n_features, self._block_length, self.dtype.itemsize],
                dtype=np.int64,
            ),
            "lengths": np.array(self._lengths, dtype=np.int64),
            "alive": self._alive,
        }
        for i, block in enumerate(self._blocks):
            arrays.update(zip(self._names(i), block, strict=True))
        return arrays

    @classmethod
    def from_arrays(cls, arrays, *, verify=None):
        """Return the items from the result of `to_arrays`, or from memory maps of it.

        Only dtypes and shapes are checked here. When a block is first used, its
        contents are checked for everything that the kernels require.

        Parameters
        ----------
        arrays : dict of str to ndarray
            Arrays, which may be read-only. They are not copied.

        verify : callable, default=None
            Function that is called with a list of names before the contents of these
            arrays are first read.

        Raises
        ------
        ValueError
            If the arrays do not have the form of `to_arrays`. Invalid contents of a
            block raise it when the block is first used.
        """
        self = cls.__new__(cls)
        verify = verify or (lambda names: None)
        small = {"shape": np.int64, "lengths": np.int64, "alive": np.bool_}
        check_arrays(arrays, small)
        verify(list(small))
        shape, lengths = arrays["shape"], arrays["lengths"].tolist()
        check(len(shape) == 3, "'shape' must hold three numbers")
        self.n_features, self._block_length, itemsize = map(int, shape)
        check(0 <= self.n_features <= cls._max_values, "'shape' is out of range")
        check(0 < self._block_length <= cls._max_length, "'shape' is out of range")
        check(itemsize in (4, 8), "'shape' is out of range")
        self.dtype = np.dtype(f"f{itemsize}")
        check(
            all(0 <= length <= self._block_length for length in lengths),
            "'lengths' is out of range",
        )
        check(sum(lengths) == len(arrays["alive"]), "'alive' does not fit 'lengths'")
        self._lengths, self._alive = lengths, np.array(arrays["alive"])
        self._restore(arrays, verify)
        check(self._alive.view(np.uint8).max(initial=0) <= 1, "'alive' must be bool")
        self._blocks, self._unread, self._opened = [], [], [None] * len(lengths)
        for i, length in enumerate(lengths):
            names = self._names(i)
            for name in names:
                check(name in arrays, f"the array {name!r} is missing")
            block = tuple(arrays[name] for name in names)
            for name, array, shape, dtype in zip(
                names,
                block,
                self._find_shapes(block, length),
                self._layout.values(),
                strict=True,
            ):
                check(array.dtype == (dtype or self.dtype), f"{name!r}: wrong dtype")
                check(array.shape == shape, f"{name!r}: wrong shape")
                check(array.flags.c_contiguous, f"{name!r}: not contiguous")
            self._blocks.append(block)
            self._unread.append((names, verify))
        return self

    def _restore(self, arrays, verify):
        """Read further arrays that a subclass saves."""

    def verify(self):
        """Check the contents of all blocks now."""
        for _ in self._read():
            pass

    def _names(self, i):
        return [f"{name}_{i}" for name in self._layout]

    def _read(self, first=0):
        """Yield blocks and their rows, starting at a given block. Check each once."""
        row = sum(self._lengths[:first])
        for i in range(first, len(self._blocks)):
            length = self._lengths[i]
            if self._unread[i] is not None:
                names, verify = self._unread[i]
                verify(names)
                self._check_contents(self._blocks[i], length)
                self._unread[i] = None
            yield slice(row, row + length), self._blocks[i]
            row += length

    def _open(self):
        """Return the blocks as objects of the kernel, each of which is made once."""
        for i, (rows, block) in enumerate(self._read()):
            if self._opened[i] is None:
                self._opened[i] = self._open_block(rows.start, *block)
        return self._opened


def _is_mapped(array):
    while isinstance(array, np.ndarray):
        array = array.base
    return isinstance(array, mmap.mmap)


def check(is_sound, fault):
    """Raise DamagedError unless a condition holds."""
    if not is_sound:
        raise DamagedError(f"The arrays of the index are damaged: {fault}.")


def check_arrays(arrays, dtypes):
    """Raise unless the arrays exist, are one-dimensional and have the right dtype."""
    for name, dtype in dtypes.items():
        check(name in arrays, f"the array {name!r} is missing")
        check(arrays[name].ndim == 1, f"{name!r} must have one dimension")
        check(arrays[name].dtype == dtype, f"{name!r} must hold {dtype.__name__}")


def check_offsets(offsets, end, name):
    """Raise unless offsets rise from 0 to `end`."""
    check(
        offsets[0] == 0 and offsets[-1] == end and (offsets[1:] >= offsets[:-1]).all(),
        f"the offsets {name!r} must rise from 0 to {end}",
    )


def check_range(numbers, end, name):
    """Raise unless all numbers are at least 0 and less than `end`."""
    is_sound = len(numbers) == 0 or (numbers.min() >= 0 and numbers.max() < end)
    check(is_sound, f"{name!r} is out of range")


def restrict(alive, allowed):
    """Return the mask of rows that were not removed and are allowed.

    Parameters
    ----------
    alive : bool ndarray of shape (n_rows,)
        Mask of the rows that were not removed.

    allowed : ndarray or None
        Boolean mask, or rows; None allows all rows.
    """
    if allowed is None:
        return alive
    if allowed.dtype == bool:
        return alive & allowed
    mask = np.zeros_like(alive)
    mask[allowed] = alive[allowed]
    return mask


def cut_rows(rows, block):
    """Return the positions in a block of the rows that it holds; rows are sorted."""
    first, last = rows.searchsorted((block.start, block.stop))
    return rows[first:last] - block.start


def _sort_lists(excluded, n_queries):
    """Return the rows of each query in ascending order."""
    if excluded is None:
        return np.zeros(n_queries + 1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    indptr, rows = (np.ascontiguousarray(array, dtype=np.int64) for array in excluded)
    query = np.repeat(np.arange(n_queries), np.diff(indptr))
    # Append an entry, because the kernels take the address of an element.
    return indptr, np.append(rows[np.lexsort((rows, query))], 0)


def _widen(best, k, filler):
    if best.shape[1] == k:
        return best
    return np.pad(best, ((0, 0), (0, k - best.shape[1])), constant_values=filler)
