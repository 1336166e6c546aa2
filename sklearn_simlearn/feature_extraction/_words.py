"""k-means and the search for nearest words, by FAISS or by scikit-learn."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from sklearn_simlearn.feature_extraction._optional import has_faiss, import_optional
from sklearn_simlearn.index._faiss import faiss_threads

# Descriptors that are converted and compared at a time.
BLOCK = 2**16

# Chosen on UKbench descriptors by `benchmarks/bench_features.py`: more than 99.5 % of
# the descriptors get their nearest word.
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH = 16, 80, 48
IVF_PROBED = 1 / 6  # part of the cells that is searched


def choose_library(library: str, search: str) -> str:
    """Which library is to be used; an approximate search needs FAISS."""
    if search != "exact":
        if library == "sklearn":
            raise ValueError(
                f"search={search!r} needs FAISS, since scikit-learn searches exactly: "
                "pass library='faiss' or 'auto'."
            )
        library = "faiss"
    elif library == "auto":
        library = "faiss" if has_faiss() else "sklearn"
    if library == "faiss":
        import_optional("faiss", "vision", f"A vocabulary with search={search!r}")
    return library


def learn_words(X, n_words, *, library, search, max_iter, seed, n_threads):
    """Centres of k-means, which starts from random descriptors.

    Parameters
    ----------
    X : ndarray of shape (n_points, n_components), dtype float32
        Descriptors. They may be mapped into memory: FAISS makes no copy of them.

    Returns
    -------
    words : ndarray of shape (n_words, n_components), dtype float32
    """
    if library == "sklearn":
        kmeans = KMeans(
            n_words, init="random", n_init=1, max_iter=max_iter, random_state=seed
        )
        return kmeans.fit(X).cluster_centers_.astype(np.float32, copy=False)
    faiss = import_optional("faiss", "vision", "library='faiss'")
    clustering = faiss.Clustering(X.shape[1], n_words)
    clustering.niter = max_iter
    clustering.seed = seed
    # The number of points is the caller's choice, not FAISS'.
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = len(X) // n_words + 1
    index = _make_index(faiss, X.shape[1], n_words, search)
    clustering.update_index = not index.is_trained
    with faiss_threads(n_threads):
        clustering.train(X, index)
    words = faiss.vector_to_array(clustering.centroids)
    return words.reshape(n_words, X.shape[1])


class WordSearch:
    """Nearest words of descriptors.

    Parameters
    ----------
    words : ndarray of shape (n_words, n_components), dtype float32

    library : {"faiss", "sklearn"}

    search : {"exact", "hnsw", "ivf"}

    graph : ndarray of uint8, default=None
        What `to_bytes` gave, to be opened instead of built.
    """

    def __init__(self, words, *, library, search, graph=None):
        self._library = library
        if library == "sklearn":
            self._index = NearestNeighbors(algorithm="brute").fit(words)
            return
        faiss = import_optional("faiss", "vision", f"search={search!r}")
        if graph is not None:
            self._index = faiss.deserialize_index(graph)
            return
        self._index = _make_index(faiss, words.shape[1], len(words), search)
        # With one thread a graph does not depend on which one comes first.
        with faiss_threads(1):
            if not self._index.is_trained:
                self._index.train(words)
            self._index.add(words)

    def to_bytes(self):
        """The index as an array, which is cheaper to open than to build."""
        faiss = import_optional("faiss", "vision", "An approximate search")
        return faiss.serialize_index(self._index)

    def find(self, X, n_neighbors, n_threads):
        """Squared distances and words, nearest first, of float32 descriptors."""
        if self._library == "faiss":
            with faiss_threads(n_threads):
                return self._index.search(X, n_neighbors)
        self._index.set_params(n_jobs=n_threads)
        distances, words = self._index.kneighbors(X, n_neighbors)
        return distances**2, words


def _make_index(faiss, n_components, n_words, search):
    if search == "hnsw":
        index = faiss.IndexHNSWFlat(n_components, HNSW_LINKS)
        index.hnsw.efConstruction = HNSW_BUILD
        index.hnsw.efSearch = HNSW_SEARCH
        return index
    if search == "ivf":
        n_cells = max(1, int(n_words**0.5))
        index = faiss.index_factory(n_components, f"IVF{n_cells},Flat")
        index.nprobe = max(1, round(n_cells * IVF_PROBED))
        index.cp.min_points_per_centroid = 1
        return index
    return faiss.IndexFlatL2(n_components)


def float_blocks(X):
    """Starts and float32 copies or views of blocks of descriptors, all finite."""
    for start in range(0, len(X), BLOCK):
        block = np.ascontiguousarray(X[start : start + BLOCK], dtype=np.float32)
        if not np.isfinite(block).all():
            raise ValueError("Descriptors must be finite in single precision.")
        yield start, block
