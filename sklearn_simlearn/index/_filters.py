"""Conversion of the parameters `exclude` and `filter` of a search to rows of items."""

from collections.abc import Mapping, Sequence, Set
from numbers import Number

import numpy as np

# Types of ids and booleans.
PLAIN = frozenset((int, float, bool, str, bytes, np.int64, np.int32, np.str_, np.bool))


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
    check_lists("exclude", exclude, n_results)
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


def check_lists(name, lists, n_results):
    """Raise unless there is one id, or a list of ids, per result."""
    found = "a string" if isinstance(lists, str) else len(lists)
    if found != n_results:
        raise ValueError(
            f"{name} must have one id, or a list of ids, per query; got {found} "
            f"for {n_results}."
        )


def cut_lists(lists, batch):
    """Return the lists of a batch, taken from concatenated lists."""
    indptr, rows = lists
    indptr = indptr[batch.start : batch.stop + 1]
    return indptr - indptr[0], rows[indptr[0] : indptr[-1]]


class PerQuery(list):
    """Filters, or the rows that they allow, one per result; None allows all."""


def split_filter(filter, n_results):
    """Return a filter per query as `PerQuery`, and any other filter unchanged.

    Parameters
    ----------
    filter : object
        Parameter of a search.

    n_results : int
        Number of queries, or of sets of queries.
    """
    if isinstance(filter, np.ndarray):
        if filter.ndim == 2:
            filter = PerQuery(filter)
    elif (
        isinstance(filter, Sequence)
        and not isinstance(filter, str | bytes)
        # A list of ids may be long, so its elements are not checked one by one.
        and not PLAIN.issuperset(map(type, filter))
        and any(part is None or _is_filter(part) for part in filter)
    ):
        filter = PerQuery(filter)
    if isinstance(filter, PerQuery) and len(filter) != n_results:
        raise ValueError(
            "A list of filters must have one filter, or None, per query; got "
            f"{len(filter)} for {n_results}."
        )
    return filter


def _is_filter(part):
    """Return whether an element of a list is a filter, and not an id or a boolean."""
    return isinstance(part, Mapping) or callable(part) or np.ndim(part) == 1


def read_filter(filter, ids, metadata, n_results):
    """Return the rows that a search may return.

    Parameters
    ----------
    filter : object
        Mask of the items that were not removed, a list of ids, a dict of columns and
        conditions, a function that maps the metadata to a mask, or a list with one of
        them, or None, per result.

    ids : Ids
        Ids of the items.

    metadata : PartedTable or None
        Metadata of all rows.

    n_results : int
        Number of queries, or of sets of queries.

    Returns
    -------
    allowed : ndarray, PerQuery of ndarray, or None
        Boolean mask of all rows, or rows in ascending order, without repetitions.
    """
    filter = split_filter(filter, n_results)
    if isinstance(filter, PerQuery):
        return PerQuery(_read_one(part, ids, metadata) for part in filter)
    return _read_one(filter, ids, metadata)


def _read_one(filter, ids, metadata):
    if filter is None:
        return None
    if isinstance(filter, Mapping):
        return _require(metadata, "dict").find(filter)
    if callable(filter):
        filter = _ask(filter, _require(metadata, "function"), ids)
    mask = np.asarray(filter)
    if mask.ndim == 0:
        check_filter(filter)
    if mask.dtype != bool:
        # Only strings have to be read again, since NumPy converts numbers to strings.
        rows = np.sort(ids.find(mask if mask.dtype.kind in "iu" else filter))
        # Avoid np.unique, which takes as long as scoring these items.
        is_new = rows >= 0
        is_new[1:] &= rows[1:] > rows[:-1]
        return rows[is_new]
    if mask.shape != (ids.n_alive,):
        raise ValueError(
            f"A mask as filter must have one boolean for each of the {ids.n_alive} "
            f"items; got shape {mask.shape}."
        )
    if not ids.has_removed:
        return mask
    allowed = np.zeros(ids.n_rows, dtype=bool)
    allowed[ids.alive] = mask
    return allowed


def check_filter(filter):
    """Raise unless a filter is a mask, a list of ids, a dict or a function."""
    if isinstance(filter, str | bytes | Set | Number):
        raise ValueError(
            "filter must be a boolean mask, a list of ids, a dict of columns and "
            "conditions, or a function that takes the metadata and returns a mask; "
            f"got {filter!r:.80}."
        )


def _require(metadata, kind):
    if metadata is None:
        raise ValueError(
            f"A {kind} as filter requires metadata. Pass metadata to `fit`."
        )
    return metadata


def _ask(filter, metadata, ids):
    if ids.has_removed:
        table = metadata.take(np.flatnonzero(ids.alive))
    else:
        table = metadata.whole()
    if isinstance(table, Sequence):
        mask = [filter(row) for row in table]
    else:
        mask = filter(table)
    if ids.n_alive == 0:
        return np.zeros(0, dtype=bool)
    if np.asarray(mask).dtype != bool:
        raise ValueError("The filter function must return a boolean mask.")
    return mask


def cut_allowed(allowed, batch):
    """Return the allowed rows of a batch of queries."""
    return PerQuery(allowed[batch]) if isinstance(allowed, PerQuery) else allowed


def search_items(items, Q, k, allowed, excluded, n_threads):
    """Search encoded items, restricted to the result of `read_filter`.

    The parameters are those of the backends, except that `allowed` may differ between
    queries.
    """
    if not isinstance(allowed, PerQuery):
        return items.search(
            Q, k, allowed=allowed, excluded=excluded, n_threads=n_threads
        )
    scores = np.full((len(allowed), k), -np.inf, dtype=items.dtype)
    rows = np.full((len(allowed), k), -1, dtype=np.int64)
    for i, of_query in enumerate(allowed):
        one = slice(i, i + 1)
        scores[one], rows[one] = items.search(
            Q[one],
            k,
            allowed=of_query,
            excluded=None if excluded is None else cut_lists(excluded, one),
            n_threads=n_threads,
        )
    return scores, rows
