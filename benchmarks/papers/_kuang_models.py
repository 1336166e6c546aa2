"""Kuang, Sun and Wong: the images, the methods and what is drawn of them."""

from functools import cache

import numpy as np
from _common import load, load_mnist
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks.papers._frame import RANKS, Panel, column
from sklearn_simlearn import AngularBilinearRanker
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn.similarities import CosineSimilarity

MNIST_FILE, CIFAR_FILE = "mnist.npz", "cifar10_gist.npz"
LEVELS = np.linspace(0, 1, 21)

METHODS = {
    "angular": {"sigma": 0.95},
    "QD-RSVM": {"sigma": 0.0},
    "QI-RSVM": {"sigma": 0.0, "query_dependent": False},
}
# One matrix for all queries has enough triplets with so many references.
N_POOLED = 200


@cache
def load_images(quick, file=MNIST_FILE, n_components=260):
    if quick:
        X, y = load_digits(return_X_y=True)
        return unit_rows(X.astype(np.float32)), y
    if file == MNIST_FILE:
        return load_mnist(n_components)
    arrays = load(file)
    X = PCA(225, random_state=0).fit_transform(arrays["X"].astype(np.float32))
    return unit_rows(X), arrays["y"].astype(np.int64)


def grow_tree(X, n, seed):
    """Centres of k-means, as an index that finds the nearest of them."""
    import faiss

    kmeans = faiss.Kmeans(X.shape[1], n, niter=10, seed=seed, min_points_per_centroid=1)
    kmeans.train(np.ascontiguousarray(X))
    return kmeans.index


def find_medoids(X, n, seed):
    """Rows next to the centres of k-means."""
    import faiss

    tree = grow_tree(X, n, seed)
    return np.unique(faiss.knn(tree.reconstruct_n(0, n), X, 1)[1])


def fit(X, y, references, n_candidates=50, *, query_dependent=True, **params):
    """The paper's form, in which a query takes the mean of ten references."""
    if not query_dependent:
        references = references[:: max(1, len(references) // N_POOLED)]
    return AngularBilinearRanker(
        references=references,
        n_candidates=n_candidates,
        n_neighbors=10,
        query_dependent=query_dependent,
        holdout=None,
        n_jobs=2,
        random_state=0,
        **params,
    ).fit(X, y)


def fit_method(name, X, y, references, n):
    if name == "Euclidean":
        return CosineSimilarity(use_idf=False).fit(X[:2])
    return fit(X, y, references, n, **METHODS[name])


def ranks_of(quick):
    """Ranks of the precision; the last is the 1,000 of the paper."""
    return (*RANKS, 100, 300, 500) if quick else (*RANKS, 100, 300, 1000)


def curves_panels(values, ranks):
    """Recall and precision, and precision by rank, as the paper draws them."""
    by_recall = {
        name: list(zip(LEVELS, np.mean(column(v, "curve"), axis=0), strict=True))
        for name, v in values.items()
    }
    by_rank = {
        name: [(k, np.mean(column(v, f"P@{k}"))) for k in ranks]
        for name, v in values.items()
    }
    return [
        Panel("", "recall", "precision", by_recall),
        Panel("", "rank R", "precision@R", by_rank),
    ]
