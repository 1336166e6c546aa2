"""Parameters `exclude` and `filter` of a search as rows of items."""

from collections.abc import Mapping, Sequence, Set

import numpy as np


def read_exclude(exclude, ids, n_results):
    """Return the rows to exclude from each result, as concatenated lists.

    Parameters
    ----------
    exclude : array-like of length n_results
        One id or a list of ids per result.

    ids : Ids
        Ids of the items.

    n_results : int
        Number of queries, or of sets of queries.

    Returns
    -------
    indptr, rows : ndarray of int64
        The rows ``rows[indptr[i]:indptr[i + 1]]`` are excluded from result i.
    """
    if len(exclude) != n_results:
        raise ValueError(
            "exclude must have one id, or a list of ids, per query; got "
            f"{len(exclude)} for {n_results}."
        )
    lists = exclude if isinstance(exclude, np.ndarray) else list(exclude)
    if all(np.ndim(part) == 0 for part in lists):
        rows, sizes = ids.find(exclude), np.ones(n_results, dtype=np.int64)
    else:
        parts = [ids.find(np.atleast_1d(part)) for part in lists]
        rows = np.concatenate(parts)
        sizes = np.array([len(part) for part in parts])
    known = rows >= 0
    result = np.repeat(np.arange(n_results), sizes)[known]
    n_known = np.bincount(result, minlength=n_results)
    return np.concatenate([[0], np.cumsum(n_known)]), rows[known]


def cut_lists(lists, batch):
    """Return the lists of a batch, taken from concatenated lists."""
    indptr, rows = lists
    indptr = indptr[batch.start : batch.stop + 1]
    return indptr - indptr[0], rows[indptr[0] : indptr[-1]]


def read_filter(filter, ids, read_metadata):
    """Return the mask of the rows that a search may return.

    Parameters
    ----------
    filter : array-like or callable
        Mask of the items that were not removed, a list of ids, or a function that maps
        the metadata to a mask.

    ids : Ids
        Ids of the items.

    read_metadata : callable
        Function that returns the metadata of the items that were not removed, or None.
    """
    check_filter(filter)
    if callable(filter):
        filter = _ask(filter, read_metadata(), ids.n_alive)
    mask = np.asarray(filter)
    allowed = np.zeros(len(ids.values), dtype=bool)
    if mask.dtype != bool:
        rows = ids.find(filter)
        allowed[rows[rows >= 0]] = True
        return allowed
    if mask.shape != (ids.n_alive,):
        raise ValueError(
            f"A mask as filter must have one boolean for each of the {ids.n_alive} "
            f"items; got shape {mask.shape}."
        )
    allowed[ids.alive] = mask
    return allowed


def check_filter(filter):
    """Raise unless a filter is a mask, a list of ids or a function."""
    if isinstance(filter, str | bytes | Mapping | Set):
        raise ValueError(
            "filter must be a boolean mask, a list of ids, or a function that takes "
            f"the metadata and returns a mask; got {filter!r:.80}."
        )


def _ask(filter, metadata, n_items):
    if metadata is None:
        raise ValueError(
            "A function as filter requires metadata. Pass metadata to `fit`."
        )
    if isinstance(metadata, Sequence):
        mask = [filter(row) for row in metadata]
    else:
        mask = filter(metadata)
    if n_items == 0:
        return np.zeros(0, dtype=bool)
    if np.asarray(mask).dtype != bool:
        raise ValueError("The filter function must return a boolean mask.")
    return mask
