"""Nearest items, with the interface of scikit-learn's nearest neighbours."""

from numbers import Integral, Real
from typing import Any, Literal

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import as_configured, num_samples
from sklearn_simlearn._core.typing import MatrixLike, SparseRows
from sklearn_simlearn.index import _metadata

# Number of neighbours of the first search within a radius.
FIRST_NEIGHBORS = 32


class NeighborsMixin:
    """Methods of an index that return distances: one minus the similarity."""

    _snapshot: Any  # method of the index

    def kneighbors(
        self,
        X: MatrixLike | None = None,
        n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return the nearest items. The distance is one minus the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            Queries. If None, the items are the queries, and an item is not its own
            neighbour. This requires ``store_items=True``.

        n_neighbors : int, default=None
            Number of neighbours. If None, `n_neighbors` of the index.

        return_distance : bool, default=True
            Whether to return the distances, too.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Distances in ascending order. Returned only if `return_distance` is True.

        indices : ndarray of shape (n_queries, n_neighbors)
            Positions of the items in `ids_`.
        """
        index = self._snapshot()
        k: Any = index.n_neighbors if n_neighbors is None else n_neighbors
        if not isinstance(k, Integral):
            raise TypeError(f"n_neighbors must be an integer; got {k!r}.")
        k = int(k)
        n_others = index.n_items_ - (X is None)
        if not 1 <= k <= n_others:
            raise ValueError(
                "Expected n_neighbors from 1 to the number of items, "
                f"{n_others}; got {k}."
            )
        X, exclude = _read_queries(index, X)
        scores, rows = index._search(X, k, exclude=exclude, need_unit=True)
        if (rows < 0).any():
            raise ValueError(
                f"The backend {index.backend_!r} found fewer than {k} "
                "neighbours for some queries. Let it visit more items with "
                "backend_options."
            )
        indices = _places(index)[rows]
        return (_distance(scores), indices) if return_distance else indices

    def kneighbors_graph(
        self,
        X: MatrixLike | None = None,
        n_neighbors: int | None = None,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> SparseRows:
        """Return the graph of the nearest items.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        n_neighbors : int, default=None
            As for `kneighbors`.

        mode : {"connectivity", "distance"}, default="connectivity"
            Values of the graph: ones or distances.

        Returns
        -------
        graph : sparse CSR of shape (n_queries, n_items)
            Graph. Each row is sorted by distance, as scikit-learn requires of
            precomputed graphs.
        """
        _check_mode(mode)
        index = self._snapshot()
        distances, indices = index.kneighbors(X, n_neighbors)
        n_queries, n_neighbors = indices.shape
        data = distances if mode == "distance" else np.ones(indices.shape)
        indptr = np.arange(0, indices.size + 1, n_neighbors)
        graph = sparse.csr_array(
            (data.ravel(), indices.ravel(), indptr), shape=(n_queries, index.n_items_)
        )
        return as_configured(graph)

    def radius_neighbors(
        self,
        X: MatrixLike | None = None,
        radius: float = 0.5,
        return_distance: bool = True,
    ) -> np.ndarray | tuple[np.ndarray, np.ndarray]:
        """Return all items within a distance.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        radius : float, default=0.5
            Largest distance. Items have a similarity of at least ``1 - radius``.

        return_distance : bool, default=True
            Whether to return the distances, too.

        Returns
        -------
        distances : ndarray of shape (n_queries,) of ndarray
            Distances in ascending order. Returned only if `return_distance` is True.

        indices : ndarray of shape (n_queries,) of ndarray
            Positions of the items in `ids_`.
        """
        index = self._snapshot()
        if not (isinstance(radius, Real) and radius >= 0):
            raise ValueError(f"radius must be a number of at least 0; got {radius!r}.")
        X, exclude = _read_queries(index, X)
        n_queries, n_items = num_samples(X), index.n_items_
        places = _places(index)
        distances = np.empty(n_queries, dtype=object)
        indices = np.empty(n_queries, dtype=object)
        waiting, k = np.arange(n_queries), min(FIRST_NEIGHBORS, n_items)
        while len(waiting):
            scores, rows = index._search(
                _metadata.take(X, waiting),
                k,
                exclude=None if exclude is None else exclude[waiting],
                need_unit=True,
            )
            found = _distance(scores)
            within = (found <= radius) & (rows >= 0)
            # A query is complete if its last neighbour is outside the radius, or if no
            # items are left.
            is_done = ~within[:, -1] if k < n_items else np.ones(len(rows), bool)
            for i in np.flatnonzero(is_done):
                distances[waiting[i]] = found[i, within[i]]
                indices[waiting[i]] = places[rows[i, within[i]]]
            waiting, k = waiting[~is_done], min(4 * k, n_items)
        return (distances, indices) if return_distance else indices

    def radius_neighbors_graph(
        self,
        X: MatrixLike | None = None,
        radius: float = 0.5,
        mode: Literal["connectivity", "distance"] = "connectivity",
    ) -> SparseRows:
        """Return the graph of all items within a distance.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        radius : float, default=0.5
            As for `radius_neighbors`.

        mode : {"connectivity", "distance"}, default="connectivity"
            Values of the graph: ones or distances.

        Returns
        -------
        graph : sparse CSR of shape (n_queries, n_items)
            Graph. Each row is sorted by distance.
        """
        _check_mode(mode)
        index = self._snapshot()
        distances, indices = index.radius_neighbors(X, radius)
        lengths = [len(row) for row in indices]
        columns = np.concatenate(indices)
        data = np.concatenate(distances)
        graph = sparse.csr_array(
            (
                data if mode == "distance" else np.ones(len(data)),
                columns,
                np.concatenate([[0], np.cumsum(lengths)]),
            ),
            shape=(len(indices), index.n_items_),
        )
        return as_configured(graph)

    def transform(self, X: MatrixLike) -> SparseRows:
        """Return the graph of distances to the nearest items, for other estimators.

        As in :class:`~sklearn.neighbors.KNeighborsTransformer`, a row has one neighbour
        more than `n_neighbors`, because an item is its own neighbour.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        graph : sparse CSR of shape (n_queries, n_items)
            Graph of distances.
        """
        index = self._snapshot()
        n_neighbors = min(index.n_neighbors + 1, index.n_items_)
        return index.kneighbors_graph(X, n_neighbors, mode="distance")


def _read_queries(index, X):
    """Return the queries, and the ids to exclude from the neighbours of each."""
    if X is not None:
        return X, None
    raw = index._state.current_raw()
    if raw is None:
        raise ValueError(
            "X=None uses original items as queries. The index stores them only with "
            "store_items=True."
        )
    return raw, index.ids_


def _places(index):
    """Return the position of each row among the items that were not removed."""
    return np.cumsum(index._state.ids.alive) - 1


def _distance(scores):
    """Return one minus the similarity; replace negative rounding errors by zero."""
    return np.maximum(1 - scores, 0)


def no_distance(what):
    """Return the error for encodings, of queries or of items, without unit length."""
    return ValueError(
        f"One minus the similarity is not a distance, because some encoded {what} do "
        "not have unit length. Use `search`, or an estimator that normalises queries "
        "and items."
    )


def _check_mode(mode):
    if mode not in ("connectivity", "distance"):
        raise ValueError(f'mode must be "connectivity" or "distance"; got {mode!r}.')
