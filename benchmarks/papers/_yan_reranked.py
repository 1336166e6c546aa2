"""Yan and Yu, Tables II and III: re-ranking, other words, SIFT words."""

import warnings
from functools import cache
from typing import NamedTuple

import numpy as np
from _common import load
from bench_mahalanobis import split_paris
from bench_reranking import load_features, rank_items
from scipy import sparse
from sklearn.neighbors import NearestNeighbors

from benchmarks.papers._measures import measure_scores
from benchmarks.papers._pictures import load_pictures
from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.feature_extraction import (
    LocalDescriptors,
    LocalFeatures,
    VisualVocabulary,
)
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.reranking import KReciprocal, QueryExpansion, SpatialVerification
from sklearn_simlearn.similarities import CosineSimilarity


def seeds(quick):
    """Return the numbers of the runs."""
    return range(2 if quick else 5)


class Collection(NamedTuple):
    """Local features, counts, labels, queries, and the vectors of the words."""

    features: LocalFeatures
    X: sparse.csr_array
    y: np.ndarray
    queries: np.ndarray
    words: np.ndarray


def with_words(features, words, n_words):
    """Return the same features with other words, and their counts."""
    features = LocalFeatures(
        features.offsets,
        features.x,
        features.y,
        features.scale,
        features.angle,
        words=words,
        image_sizes=features.image_sizes,
    )
    X = sparse.coo_array(
        (np.ones(features.n_points), (features.image_of_point, words)),
        shape=(len(features), n_words),
    )
    return features, X.tocsr()


def join(first, second):
    """Return the features of two collections, one after the other."""
    parts = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("x", "y", "scale", "angle", "words", "image_sizes")
    }
    offsets = np.append(first.offsets, first.n_points + second.offsets[1:])
    return LocalFeatures(offsets, **parts)


def make_collection():
    """Return synthetic features at random places."""
    data = make_visual_words(
        n_objects=5, n_images_per_object=8, n_words=500, random_state=0
    )
    X, rng = data.data, np.random.default_rng(0)
    n_points = int(X.data.sum())
    features = LocalFeatures(
        np.append(0, np.cumsum(X.sum(axis=1).astype(np.int64))),
        *(100 * rng.random((2, n_points)) + 1),
        scale=np.ones(n_points),
        angle=np.zeros(n_points),
        words=np.repeat(X.indices, X.data.astype(np.int64)),
        image_sizes=np.full((X.shape[0], 2), 100),
    )
    queries = np.arange(0, len(data.target), 4)
    return Collection(features, X, data.target, queries, data.words)


@cache
def load_collections(quick):
    """Return collections by name: own words, UKbench's words, and a background."""
    if quick:
        return dict.fromkeys(("own", "other", "background"), make_collection())
    words = load("paris_subset_bovw20k.npz")["words"].astype(np.float32)
    other = load("ukbench1000_codebook20k.npz")["centroids"].astype(np.float32)
    features, X, y, queries = load_features("paris_subset_geometry.npz")
    background, X_background, objects, _ = load_features("ukbench1000_geometry.npz")
    nearest = NearestNeighbors(n_neighbors=1).fit(other)
    rounded = nearest.kneighbors(words, return_distance=False)[:, 0]
    mapped, X_mapped = with_words(features, rounded[features.words], len(other))
    return {
        "own": Collection(features, X, y, queries, words),
        "other": Collection(mapped, X_mapped, y, queries, other),
        "background": Collection(
            join(mapped, background),
            sparse.vstack([X_mapped, X_background], format="csr"),
            np.append(y, np.full(len(objects), -1)),
            queries,
            other,
        ),
    }


def soften(X, words, n_neighbors=2):
    """Return counts shared with the nearest words, by distance over its median."""
    distance, nearest = (
        NearestNeighbors(n_neighbors=n_neighbors + 1).fit(words).kneighbors(words)
    )
    weight = np.exp(-(distance**2) / (2 * np.median(distance[:, 1]) ** 2))
    weight /= weight.sum(axis=1, keepdims=True)
    start = np.arange(0, weight.size + 1, n_neighbors + 1)
    shape = (len(words), len(words))
    return X @ sparse.csr_array((weight.ravel(), nearest.ravel(), start), shape=shape)


def learn(X, y, words, seed, quick):
    """Fit the form of the paper, which holds out 4 images of an object if it can."""
    params = {"max_iter": 5} if quick else {}
    if np.bincount(y[y >= 0]).max() < 6:
        params["holdout"] = 1
    model = SparseMahalanobisLearner.from_paper(
        words=words, n_jobs=2, random_state=seed, **params
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few held-out images
        return model.fit(X, y)


def rank(model, X, data, chain):
    """Measure the queries of a collection after the steps of a chain."""
    verifier = SpatialVerification(n_jobs=2).fit(data.features)
    steps = {
        "plain": [],
        "SR, QE": [QueryExpansion(verifier=verifier)],
        "k-reciprocal": [KReciprocal()],
    }[chain]
    index = SimilarityIndex(model, store_items=True).fit(X)
    ranked = rank_items(
        index, steps, X, data.y, features=data.features, queries=data.queries
    )
    return measure_scores(*ranked[:2], junk=ranked[2])


@cache
def search(quick):
    """Return measures of each run by collection, model and chain."""
    found = {}
    collections = load_collections(quick)
    for name, data in collections.items():
        soft = soften(data.X, data.words)
        fixed = {
            ("tf-idf", "plain"): data.X,
            ("tf-idf", "SR, QE"): data.X,
            ("tf-idf", "k-reciprocal"): data.X,
            ("soft assignment", "SR, QE"): soft,
        }
        for (model, chain), X in fixed.items():
            value = rank(CosineSimilarity().fit(X), X, data, chain)
            found[name, model, chain] = [value] * len(seeds(quick))
    for seed in seeds(quick):
        for name in ("own", "other"):
            data = collections[name]
            is_query = np.isin(np.arange(len(data.y)), data.queries)
            train = split_paris(is_query, seed)
            model = learn(data.X[train], data.y[train], data.words, seed, quick)
            # The background is not trained separately.
            places = [name] if name == "own" else [name, "background"]
            for place in places:
                where = collections[place]
                for chain in ("plain", "SR, QE"):
                    value = rank(model, where.X, where, chain)
                    found.setdefault((place, "learned", chain), []).append(value)
    return found


@cache
def load_words(descriptor, quick):
    """Return counts, objects and words of the pictures of UKbench."""
    if quick:
        data = make_collection()
        return data.X, data.y, data.words
    pictures, y = load_pictures()
    features = LocalDescriptors(descriptor=descriptor, n_jobs=2).fit_transform(pictures)
    vocabulary = VisualVocabulary(2000, n_jobs=2, random_state=0).fit(features)
    words = vocabulary.words_.astype(np.float32)
    return vocabulary.transform(features), y, words


def measure_pictures(descriptor, quick):
    """Return measures of tf-idf and learned; one picture of each object queries."""
    X, y, words = load_words(descriptor, quick)
    found = {"tf-idf": [], "learned": []}
    for seed in seeds(quick):
        rng = np.random.default_rng(seed)
        queries = np.array([rng.choice(np.flatnonzero(y == g)) for g in np.unique(y)])
        train = np.setdiff1d(np.arange(len(y)), queries)
        models = {
            "tf-idf": CosineSimilarity().fit(X[train]),
            "learned": learn(X[train], y[train], words, seed, quick),
        }
        relevance = y[queries, None] == y
        junk = np.arange(len(y)) == queries[:, None]
        for name, model in models.items():
            S = model.similarity(X[queries], X)
            found[name].append(measure_scores(relevance & ~junk, S, junk=junk))
    return found
