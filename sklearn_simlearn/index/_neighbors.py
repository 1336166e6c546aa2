"""Nearest items, in the terms of scikit-learn's neighbours."""

from numbers import Integral, Real

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.index import _metadata

# Neighbours that a search within a radius first asks for.
FIRST_NEIGHBORS = 32


class NeighborsMixin:
    """Methods of an index that return distances, one minus the similarity."""

    def kneighbors(self, X=None, n_neighbors=None, return_distance=True):
        """The nearest items, by one minus the similarity.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            Queries. If None, the items themselves, none of which is its own neighbour;
            this needs ``store_items=True``.

        n_neighbors : int, default=None
            Number of neighbours; that of the index if None.

        return_distance : bool, default=True
            Return distances too.

        Returns
        -------
        distances : ndarray of shape (n_queries, n_neighbors)
            Ascending. Only with `return_distance`.

        indices : ndarray of shape (n_queries, n_neighbors)
            Numbers of the items in `ids_`.
        """
        index = self._snapshot()
        n_neighbors = index.n_neighbors if n_neighbors is None else n_neighbors
        if not isinstance(n_neighbors, Integral):
            raise TypeError(f"n_neighbors must be an integer; got {n_neighbors!r}.")
        n_others = index.n_items_ - (X is None)
        if not 1 <= n_neighbors <= n_others:
            raise ValueError(
                "Expected n_neighbors from 1 to the number of items, "
                f"{n_others}; got {n_neighbors}."
            )
        X, exclude = _read_queries(index, X)
        scores, rows = index._search(
            X, int(n_neighbors), exclude=exclude, need_unit=True
        )
        if (rows < 0).any():
            raise ValueError(
                f"The backend {index.backend_!r} found fewer than {n_neighbors} "
                "neighbours for some queries: let it look at more items by "
                "backend_options."
            )
        indices = _places(index)[rows]
        return (_distance(scores), indices) if return_distance else indices

    def kneighbors_graph(self, X=None, n_neighbors=None, mode="connectivity"):
        """Graph of the nearest items.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        n_neighbors : int, default=None
            As for `kneighbors`.

        mode : {"connectivity", "distance"}, default="connectivity"
            Store ones, or distances.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_items)
            Each row in the order of distance, as scikit-learn wants precomputed graphs.
        """
        _check_mode(mode)
        index = self._snapshot()
        distances, indices = index.kneighbors(X, n_neighbors)
        n_queries, n_neighbors = indices.shape
        data = distances if mode == "distance" else np.ones(indices.shape)
        indptr = np.arange(0, indices.size + 1, n_neighbors)
        return sparse.csr_matrix(
            (data.ravel(), indices.ravel(), indptr), shape=(n_queries, index.n_items_)
        )

    def radius_neighbors(self, X=None, radius=0.5, return_distance=True):
        """All items within a distance.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        radius : float, default=0.5
            Largest distance: items with a similarity of at least ``1 - radius``.

        return_distance : bool, default=True
            Return distances too.

        Returns
        -------
        distances : ndarray of shape (n_queries,) of ndarray
            Ascending. Only with `return_distance`.

        indices : ndarray of shape (n_queries,) of ndarray
            Numbers of the items in `ids_`.
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
            # A query is done once its last neighbour lies outside or none are left.
            is_done = ~within[:, -1] if k < n_items else np.ones(len(rows), bool)
            for i in np.flatnonzero(is_done):
                distances[waiting[i]] = found[i, within[i]]
                indices[waiting[i]] = places[rows[i, within[i]]]
            waiting, k = waiting[~is_done], min(4 * k, n_items)
        return (distances, indices) if return_distance else indices

    def radius_neighbors_graph(self, X=None, radius=0.5, mode="connectivity"):
        """Graph of all items within a distance.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features), default=None
            As for `kneighbors`.

        radius : float, default=0.5
            As for `radius_neighbors`.

        mode : {"connectivity", "distance"}, default="connectivity"
            Store ones, or distances.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_items)
            Each row in the order of distance.
        """
        _check_mode(mode)
        index = self._snapshot()
        distances, indices = index.radius_neighbors(X, radius)
        lengths = [len(row) for row in indices]
        columns = np.concatenate(indices)
        data = np.concatenate(distances)
        return sparse.csr_matrix(
            (
                data if mode == "distance" else np.ones(len(data)),
                columns,
                np.concatenate([[0], np.cumsum(lengths)]),
            ),
            shape=(len(indices), index.n_items_),
        )

    def transform(self, X):
        """Graph of distances to the nearest items, for estimators that take one.

        As in :class:`~sklearn.neighbors.KNeighborsTransformer`, there is one neighbour
        more than `n_neighbors`, since an item is its own neighbour.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_queries, n_features)
            Queries.

        Returns
        -------
        graph : csr_matrix of shape (n_queries, n_items)
            Distances.
        """
        index = self._snapshot()
        n_neighbors = min(index.n_neighbors + 1, index.n_items_)
        return index.kneighbors_graph(X, n_neighbors, mode="distance")


def _read_queries(index, X):
    """Return queries, and what is left out of the neighbours of each."""
    if X is not None:
        return X, None
    raw = index._state.current_raw()
    if raw is None:
        raise ValueError(
            "X=None searches for the items themselves, which the index keeps only "
            "with store_items=True."
        )
    return raw, index.ids_


def _places(index):
    """Return the number of each row among the items that were not removed."""
    return np.cumsum(index._state.ids.alive) - 1


def _distance(scores):
    """One minus the similarity; rounding may take that of equals below zero."""
    return np.maximum(1 - scores, 0)


def no_distance(what):
    return ValueError(
        f"One minus the similarity is no distance, because some encoded {what} are not "
        "of unit length. Use `search`, or an estimator that normalises both sides."
    )


def _check_mode(mode):
    if mode not in ("connectivity", "distance"):
        raise ValueError(f'mode must be "connectivity" or "distance"; got {mode!r}.')
