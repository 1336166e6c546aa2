"""Kuang, Sun and Wong: the images and the learner."""

from functools import cache

import numpy as np
from _common import load_mnist
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

from benchmarks.papers._data import CIFAR, find_path
from sklearn_simlearn import AngularBilinearRanker
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn.datasets import load_image_folder
from sklearn_simlearn.feature_extraction import GistDescriptors, ImageReader

LEVELS = np.linspace(0, 1, 21)
# One matrix for all queries has enough triplets with this number of references.
N_POOLED = 200


@cache
def load_cifar():
    """Return Gist descriptors of the pictures after PCA, and classes."""
    paths, y = load_image_folder(find_path(CIFAR), return_X_y=True)
    gist = make_pipeline(
        ImageReader(n_jobs=2), GistDescriptors(32, n_jobs=2), PCA(225, random_state=0)
    )
    X = gist.fit_transform(paths)
    return unit_rows(X.astype(np.float32)), y


@cache
def load_images(quick, n_components=260):
    if not quick:
        return load_mnist(n_components)
    X, y = load_digits(return_X_y=True)
    return unit_rows(X.astype(np.float32)), y


def grow_tree(X, n, seed):
    """Return the centres of k-means as an index that finds the nearest of them."""
    import faiss

    kmeans = faiss.Kmeans(X.shape[1], n, niter=10, seed=seed, min_points_per_centroid=1)
    kmeans.train(np.ascontiguousarray(X))
    return kmeans.index


def find_medoids(X, n, seed):
    """Return the rows next to the centres of k-means."""
    import faiss

    tree = grow_tree(X, n, seed)
    return np.unique(faiss.knn(tree.reconstruct_n(0, n), X, 1)[1])


def learn(X, y, references, n_candidates, *, query_dependent=True, **params):
    """Fit the form of the paper."""
    if not query_dependent:
        references = references[:: max(1, len(references) // N_POOLED)]
    return AngularBilinearRanker.from_paper(
        references=references,
        n_candidates=n_candidates,
        query_dependent=query_dependent,
        n_jobs=2,
        random_state=0,
        **params,
    ).fit(X, y)
