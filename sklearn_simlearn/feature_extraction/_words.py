"""k-means and the search for nearest words, with FAISS or scikit-learn."""

import numpy as np
from sklearn.cluster import KMeans
from sklearn.neighbors import NearestNeighbors

from sklearn_simlearn._core.optional import has_faiss, import_optional
from sklearn_simlearn._core.progress import show_step
from sklearn_simlearn._core.rows import bounded_blocks
from sklearn_simlearn._core.threads import faiss_threads

# Number of descriptors that are converted and compared at a time.
BLOCK = 2**16

# k-means in two levels: number of descriptors per cell for the first level, and bytes
# of descriptors that are held at a time in the second level.
POINTS_PER_CELL, MAX_CELL_BYTES = 256, 2**29

# Iterations of k-means with fewer distances use one thread, because several threads
# would mostly wait for each other.
MIN_THREADED = 2**23

# Chosen on UKbench descriptors with `benchmarks/bench_features.py`: more than 99.5 % of
# the descriptors get their nearest word. For larger vocabularies than that of UKbench,
# the list of candidates in a graph grows with the fourth root of the number of words;
# otherwise, the share of missed words would rise.
HNSW_LINKS, HNSW_BUILD, HNSW_SEARCH, HNSW_WORDS = 16, 200, 32, 20_000
IVF_PROBED = 1 / 6  # share of the cells that is searched


def choose_backend(backend: str, search: str) -> str:
    """Return the backend to use; an approximate search requires FAISS."""
    if search != "exact":
        if backend == "sklearn":
            raise ValueError(
                f"search={search!r} requires FAISS, because scikit-learn searches "
                "exactly. Pass backend='faiss' or 'auto'."
            )
        backend = "faiss"
    elif backend == "auto":
        backend = "faiss" if has_faiss() else "sklearn"
    if backend == "faiss":
        import_optional("faiss", "vision", f"A vocabulary with search={search!r}")
    return backend


def learn_words(X, n_words, *, backend, max_iter, seed, n_threads):
    """Return the centres of k-means, which starts from random descriptors.

    Parameters
    ----------
    X : ndarray of shape (n_points, n_components), dtype float32
        Descriptors. They may be mapped into memory, because FAISS does not copy them.

    n_words : int
        Number of words.

    backend : {"faiss", "sklearn"}
        Library for k-means.

    max_iter : int
        Largest number of iterations.

    seed : int
        Seed of the start.

    n_threads : int
        Number of threads.

    Returns
    -------
    words : ndarray of shape (n_words, n_components), dtype float32
    """
    if backend == "sklearn":
        kmeans = KMeans(
            n_words, init="random", n_init=1, max_iter=max_iter, random_state=seed
        )
        return kmeans.fit(X).cluster_centers_.astype(np.float32, copy=False)
    faiss = import_optional("faiss", "vision", "backend='faiss'")
    clustering = faiss.Clustering(X.shape[1], n_words)
    clustering.niter = max_iter
    clustering.seed = seed
    # The caller has chosen the points, so FAISS must not select some of them.
    clustering.min_points_per_centroid = 1
    clustering.max_points_per_centroid = len(X) // n_words + 1
    is_small = len(X) * n_words < MIN_THREADED
    with faiss_threads(1 if is_small else n_threads):
        clustering.train(X, faiss.IndexFlatL2(X.shape[1]))
    words = faiss.vector_to_array(clustering.centroids)
    return words.reshape(n_words, X.shape[1])


def learn_words_by_cell(X, rows, n_words, *, max_iter, seed, n_threads):
    """Return the centres of k-means in two levels: cells, then words of each cell.

    The number of words of a cell is proportional to its number of descriptors. If the
    number of cells is the number of words per cell, a descriptor is compared with twice
    the square root of `n_words` centres in an iteration, instead of with all centres.

    Parameters
    ----------
    X : ndarray or StackedRows of shape (n_points, n_components)
        Descriptors of any type. They may be mapped into memory, because they are read
        in blocks, and only those of some cells are held at a time.

    rows : int ndarray or None
        Numbers of the descriptors to use, in ascending order; all if None.

    n_words, max_iter, seed, n_threads
        As for `learn_words`.

    Returns
    -------
    words : ndarray of shape (n_words, n_components), dtype float32
    """
    options = {"backend": "faiss", "max_iter": max_iter, "n_threads": n_threads}
    rows = np.arange(len(X)) if rows is None else rows
    n_cells = round(n_words**0.5)
    places = np.linspace(0, len(rows) - 1, min(len(rows), POINTS_PER_CELL * n_cells))
    few = take_floats(X, rows[places.astype(np.int64)])
    centers = learn_words(few, n_cells, seed=seed, **options)
    search = WordSearch(centers, backend="faiss", search="exact")
    cells = np.empty(len(rows), dtype=np.int32)
    for start, block in float_blocks(X, rows):
        cells[start : start + len(block)] = search.find(block, 1, n_threads)[1].ravel()

    n_points = np.bincount(cells, minlength=n_cells)
    stops = np.cumsum(n_points)
    # Cumulative sums are rounded, so that a cell has at most as many words as
    # descriptors.
    word_stops = stops * n_words // len(rows)
    words = np.empty((n_words, X.shape[1]), dtype=np.float32)
    n_together = max(1, MAX_CELL_BYTES // (4 * X.shape[1]))
    for part in bounded_blocks(n_points, n_together):
        before = stops[part.start] - n_points[part.start]
        members = np.flatnonzero((cells >= part.start) & (cells < part.stop))
        order = np.argsort(cells[members], kind="stable")
        points = take_floats(X, rows[members], places=np.argsort(order))
        for cell in range(part.start, part.stop):
            show_step("cells of words", f"{cell + 1} of {n_cells}")
            stop, word_stop = stops[cell] - before, word_stops[cell]
            word_start = word_stops[cell - 1] if cell else 0
            if word_start < word_stop:
                words[word_start:word_stop] = learn_words(
                    points[stop - n_points[cell] : stop],
                    int(word_stop - word_start),
                    seed=(seed + cell) % np.iinfo(np.int32).max,
                    **options,
                )
        del points  # free memory before the next cells are read
    return words


class WordSearch:
    """Search for the nearest words of descriptors.

    Parameters
    ----------
    words : ndarray of shape (n_words, n_components), dtype float32

    backend : {"faiss", "sklearn"}

    search : {"exact", "hnsw", "ivf"}

    graph : ndarray of uint8, default=None
        Result of `to_bytes`, opened instead of building a graph.
    """

    def __init__(self, words, *, backend, search, graph=None):
        self._backend = backend
        if backend == "sklearn":
            self._index = NearestNeighbors(algorithm="brute").fit(words)
            return
        faiss = import_optional("faiss", "vision", f"search={search!r}")
        self._cells = None
        if search == "hnsw":
            # A few evenly spaced words, by which `find` sorts descriptors.
            self._cells = faiss.IndexFlatL2(words.shape[1])
            step = max(1, int(len(words) ** 0.5))
            self._cells.add(np.ascontiguousarray(words[::step]))
        if graph is not None:
            self._index = faiss.deserialize_index(graph)
            return
        self._index = _make_index(faiss, words.shape[1], len(words), search)
        # With one thread, the graph is deterministic.
        with faiss_threads(1):
            if not self._index.is_trained:
                self._index.train(words)
            self._index.add(words)

    def to_bytes(self):
        """Return the index as an array, which is faster to open than to build again."""
        faiss = import_optional("faiss", "vision", "An approximate search")
        return faiss.serialize_index(self._index)

    def find(self, X, n_neighbors, n_threads):
        """Return squared distances and words of float32 descriptors, nearest first."""
        if self._backend == "faiss":
            with faiss_threads(n_threads):
                if self._cells is None:
                    return self._index.search(X, n_neighbors)
                # Similar descriptors visit the same nodes of the graph. If they are
                # searched one after another, these nodes are in the cache.
                order = np.argsort(self._cells.search(X, 1)[1].ravel(), kind="stable")
                found = self._index.search(X[order], n_neighbors)
                place = np.argsort(order)
                return tuple(part[place] for part in found)
        self._index.set_params(n_jobs=n_threads)
        distances, words = self._index.kneighbors(X, n_neighbors)
        return distances**2, words


def _make_index(faiss, n_components, n_words, search):
    if search == "hnsw":
        index = faiss.IndexHNSWFlat(n_components, HNSW_LINKS)
        index.hnsw.efConstruction = HNSW_BUILD
        index.hnsw.efSearch = round(
            HNSW_SEARCH * max(1.0, n_words / HNSW_WORDS) ** 0.25
        )
        return index
    if search == "ivf":
        n_cells = max(1, int(n_words**0.5))
        index = faiss.index_factory(n_components, f"IVF{n_cells},Flat")
        index.nprobe = max(1, round(n_cells * IVF_PROBED))
        index.cp.min_points_per_centroid = 1
        return index
    return faiss.IndexFlatL2(n_components)


class StackedRows:
    """Vertical stack of arrays, without a copy.

    Parameters
    ----------
    parts : list of ndarray of shape (n_rows, n_columns)
    """

    def __init__(self, parts):
        self._parts = parts
        self._stops = np.cumsum([len(part) for part in parts])
        self.shape = (int(self._stops[-1]), parts[0].shape[1])
        self.dtype = np.result_type(*parts)

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        """Return copies of rows, given by a slice or by ascending numbers."""
        rows = np.arange(*rows.indices(len(self))) if isinstance(rows, slice) else rows
        if len(rows) == 0:
            return np.empty((0, self.shape[1]), dtype=self.dtype)
        first, last = np.searchsorted(self._stops, [rows[0], rows[-1]], side="right")
        pieces = np.split(rows, np.searchsorted(rows, self._stops[first:last]))
        return np.concatenate(
            [
                part[piece - (stop - len(part))]
                for part, piece, stop in zip(
                    self._parts[first : last + 1],
                    pieces,
                    self._stops[first : last + 1],
                    strict=True,
                )
            ]
        )


def float_blocks(X, rows=None):
    """Yield starts and float32 blocks of descriptors; raise unless they are finite."""
    for start in range(0, len(X) if rows is None else len(rows), BLOCK):
        part = slice(start, start + BLOCK)
        block = np.ascontiguousarray(
            X[part if rows is None else rows[part]], dtype=np.float32
        )
        if not np.isfinite(block).all():
            raise ValueError("Descriptors must be finite in single precision.")
        yield start, block


def take_floats(X, rows, places=None, out=None):
    """Return some descriptors in float32, in order or at given positions."""
    if out is None:
        out = np.empty((len(rows), X.shape[1]), dtype=np.float32)
    for start, block in float_blocks(X, rows):
        part = slice(start, start + len(block))
        out[part if places is None else places[part]] = block
    return out
