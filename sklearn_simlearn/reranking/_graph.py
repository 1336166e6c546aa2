"""Graph of the nearest items of an index, as sparse matrices."""

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.rows import inverse
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.index._ids import Ids
from sklearn_simlearn.index._rerank import Queries, neighbor_lists
from sklearn_simlearn.reranking._lists import affinities, make_ids


@dataclass
class Graph:
    """Nearest items of each item of an index, including itself, the best first.

    Attributes
    ----------
    ids : Ids
        Ids of the items.

    rows : int ndarray of shape (n_items, n_neighbors)
        Numbers of the items that were found, -1 if there are no more.

    scores : ndarray of shape (n_items, n_neighbors)

    affinities : ndarray of shape (n_items, n_neighbors)
        Result of `affinities` for lists of `n_candidates` items, as for queries.
    """

    ids: Ids
    rows: np.ndarray
    scores: np.ndarray
    affinities: np.ndarray


def as_queries(queries, index, n_lists):
    """Return `Queries`; make them if a user called the step with samples."""
    if isinstance(queries, Queries):
        return queries
    if num_samples(queries) != n_lists:
        raise ValueError(
            f"Each list of candidates needs one query; got {num_samples(queries)} "
            f"queries for {n_lists} lists."
        )
    return Queries(index, queries)


def find_graph(index, n_neighbors=None):
    """Return the graph of an index, which is found by searching with its own items.

    An item has `n_neighbors` neighbours; `n_candidates` of the index if None.
    """
    if index.n_items_ == 0:
        raise ValueError("An index without items has no graph. Add items first.")
    ids = make_ids(index.ids_, index.n_items_)
    n_neighbors = index.n_candidates if n_neighbors is None else n_neighbors
    n_neighbors = min(n_neighbors, index.n_items_)
    depth = max(n_neighbors, index.n_candidates)
    parts = []
    for scores, found in neighbor_lists(index, depth):
        rows = ids.find(found.ravel()).reshape(found.shape)
        kept = np.s_[:, :n_neighbors]
        parts.append((rows[kept], scores[kept], affinities(scores)[kept]))
    return Graph(ids, *(np.concatenate(part) for part in zip(*parts, strict=True)))


def estimate_group_size(rows):
    """Estimate the number of other items in the group of an item.

    Among the k nearest items of an item, a certain share has the item among their own k
    nearest items. By chance, this share would be k / (n - 1) for n items. The
    difference is largest if k is the number of other items in a group: a smaller k
    misses some of them, a larger k adds items of other groups.

    Parameters
    ----------
    rows : int ndarray of shape (n_items, n_neighbors)
        Neighbours of each item, as in a `Graph`.

    Returns
    -------
    size : int
        Estimate, at most a third of the length of the lists. Larger values would not be
        reliable.
    """
    n_items, n_found = rows.shape
    is_other = (rows >= 0) & (rows != np.arange(n_items)[:, None])
    rank = as_matrix(np.where(is_other, rows, -1), np.cumsum(is_other, axis=1), n_items)
    back = sparse.csr_array(rank.T)
    # Two items find each other if k is at least the larger of their ranks.
    both = rank.multiply(back.sign()).maximum(back.multiply(rank.sign())).tocsr()
    n_mutual = np.cumsum(np.bincount(both.data, minlength=n_found + 1))[1:]
    k = np.arange(1, len(n_mutual) + 1)
    excess = n_mutual / (n_items * k) - k / max(n_items - 1, 1)
    return 1 + int(np.argmax(excess[: max(1, (n_found - 1) // 3)]))


def as_matrix(rows, values, n_items):
    """Return lists as a CSR matrix with one row per list."""
    is_there = rows >= 0
    indptr = np.concatenate([[0], np.cumsum(is_there.sum(axis=1))])
    return sparse.csr_array(
        (values[is_there], rows[is_there], indptr), shape=(len(rows), n_items)
    )


def as_links(rows, n_items):
    """Return lists as a CSR matrix of ones."""
    return as_matrix(rows, np.ones(rows.shape, dtype=np.float32), n_items)


def scale_to_sum_one(W):
    """Return rows divided by their sums; rows of zeros are unchanged."""
    total = W.sum(axis=1)
    return sparse.csr_array(sparse.diags_array(inverse(total).astype(W.dtype)) @ W)
