"""Search of dense items by FAISS."""

import numpy as np

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.threads import faiss_threads
from sklearn_simlearn.index.backends._blocked_items import check
from sklearn_simlearn.index.backends._foreign import ForeignItems, Shared


class FaissItems(ForeignItems):
    """Dense items in a FAISS index of any kind, by inner product.

    Parameters
    ----------
    D : ndarray of shape (n_items, n_features)
        Items to store. The index is trained on them.

    factory : str, default="Flat"
        String for FAISS' index factory, such as "Flat", "IVF1024,Flat", "HNSW32" or
        "IVF4096,PQ32".

    nprobe : int, default=None
        Number of cells of an inverted file that a search visits. If None, the default
        of FAISS.

    efSearch : int, default=None
        Size of the list of candidates of a search in a graph. If None, the default of
        FAISS.

    n_indexes : int, default=1
        Number of inverted files, trained with different seeds and searched together,
        like the k-means trees of Kuang et al.

    n_threads : int, default=1
        Number of threads for training and adding items.
    """

    _options = ("factory", "nprobe", "efSearch", "n_indexes")

    def __init__(
        self,
        D,
        *,
        factory="Flat",
        nprobe=None,
        efSearch=None,
        n_indexes=1,
        n_threads=1,
    ):
        self.factory, self.n_indexes = factory, n_indexes
        self.nprobe, self.efSearch = nprobe, efSearch
        faiss = _import_faiss()
        self.n_features = D.shape[1]
        self._alive = np.ones(0, dtype=bool)
        indexes = []
        for seed in range(n_indexes):
            try:
                index = faiss.index_factory(
                    self.n_features, factory, faiss.METRIC_INNER_PRODUCT
                )
            except RuntimeError as error:
                raise ValueError(
                    f"FAISS cannot create an index with factory={factory!r} for "
                    f"{self.n_features} features. See the documentation of FAISS."
                ) from error
            ivf = faiss.try_extract_index_ivf(index)
            if ivf is not None:
                ivf.cp.seed += seed
            elif n_indexes > 1:
                raise ValueError(
                    "n_indexes > 1 requires an inverted file, such as "
                    f"factory='IVF1024,Flat'; got factory={factory!r}."
                )
            indexes.append(index)
        D = self._convert(D)
        with faiss_threads(n_threads):
            for index in indexes:
                try:
                    index.train(D)
                except RuntimeError as error:
                    raise ValueError(
                        f"FAISS cannot train factory={factory!r} on {len(D)} items. "
                        "Add items, or choose a smaller index."
                    ) from error
        self._shared = Shared(indexes, 0)
        self.add(D, n_threads=n_threads)

    def _count(self, indexes):
        return indexes[0].ntotal

    def _grow(self, indexes, D, n_threads):
        with faiss_threads(n_threads):
            for index in indexes:
                index.add(D)

    def _extract(self, indexes, rows):
        faiss = _import_faiss()
        return [faiss.clone_index(index) for index in indexes]

    def _rebuild(self, indexes, rows, n_threads):
        faiss = _import_faiss()
        with faiss_threads(n_threads):
            for index in indexes:
                ivf = faiss.try_extract_index_ivf(index)
                if ivf is not None:
                    ivf.make_direct_map()
                D = index.reconstruct_batch(rows)
                if ivf is not None:
                    ivf.set_direct_map_type(faiss.DirectMap.NoMap)
                index.reset()
                index.add(D)
        return indexes

    def _find(self, indexes, Q, depth, alive, n_threads):
        faiss = _import_faiss()
        selector = None
        if not alive.all() or indexes[0].ntotal != len(alive):
            # FAISS does not select rows beyond the end of the bitmap.
            bits = np.packbits(alive, bitorder="little")
            selector = faiss.IDSelectorBitmap(bits)
        found = []
        with faiss_threads(n_threads):
            for index in indexes:
                parameters = self._make_parameters(index, selector)
                found.append(index.search(Q, depth, params=parameters))
        scores = np.concatenate([part[0] for part in found], axis=1)
        rows = np.concatenate([part[1] for part in found], axis=1)
        if len(found) == 1:
            return scores, rows
        # Sort by score, and drop duplicates.
        for query in range(len(Q)):
            order = np.lexsort((rows[query], -scores[query]))
            _, first = np.unique(rows[query, order], return_index=True)
            order = order[np.sort(first)]
            order = order[rows[query, order] >= 0]
            n = len(order)
            scores[query, :n], rows[query, :n] = (
                scores[query, order],
                rows[query, order],
            )
            scores[query, n:], rows[query, n:] = -np.inf, -1
        return scores, rows

    def _make_parameters(self, index, selector):
        """Return search parameters for the type of an index."""
        faiss = _import_faiss()
        index = faiss.downcast_index(index)
        options = {} if selector is None else {"sel": selector}
        if isinstance(index, faiss.IndexPreTransform):
            inner = self._make_parameters(index.index, selector)
            return inner and faiss.SearchParametersPreTransform(index_params=inner)
        if isinstance(index, faiss.IndexIVF):
            if self.nprobe is not None:
                options["nprobe"] = self.nprobe
            return faiss.SearchParametersIVF(**options) if options else None
        if isinstance(index, faiss.IndexHNSW):
            if self.efSearch is not None:
                options["efSearch"] = self.efSearch
            return faiss.SearchParametersHNSW(**options) if options else None
        return faiss.SearchParameters(**options) if options else None

    def _save(self, indexes):
        faiss = _import_faiss()
        return [faiss.serialize_index(index) for index in indexes]

    def _open(self, saved):
        faiss = _import_faiss()
        check(
            len(saved) == self.n_indexes, f"{self.n_indexes} FAISS indexes are needed"
        )
        indexes = []
        for array in saved:
            try:
                index = faiss.deserialize_index(np.array(array))
            except RuntimeError as error:
                raise ValueError("FAISS cannot read its index.") from error
            check(index.d == self.n_features, "FAISS: wrong number of features")
            check(index.ntotal == self.n_items, "FAISS: wrong number of items")
            indexes.append(index)
        return Shared(indexes, self.n_items)


def _import_faiss():
    return import_optional("faiss", "faiss", "The backend 'faiss'")
