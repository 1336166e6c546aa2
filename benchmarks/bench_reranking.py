"""Re-ranking: what each step gains, and what verification costs.

Run one part with ``python benchmarks/bench_reranking.py PART``, where PART is ukbench,
learners, vectors or speed; all of them without an argument. They read
ukbench1000_geometry.npz, paris_subset_geometry.npz, paris_subset_cnn.npz,
paris_subset_bovw20k.npz, ukbench1000_codebook20k.npz and ukbench1000_vlad64.npz from
the folder that `SIMLEARN_DATA` names.

Every image queries the others. Parameters are chosen with tf-idf on one half of the
objects and figures are of the other half, unless a table says otherwise.
"""

import sys
import time
from itertools import product

import numpy as np
from _common import load, print_table
from scipy import sparse
from sklearn.preprocessing import normalize

from sklearn_simlearn import HistogramRankSVM, SparseMahalanobisLearner
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import average_precision
from sklearn_simlearn.model_selection import ObjectKFold
from sklearn_simlearn.reranking import (
    Diffusion,
    KReciprocal,
    QueryExpansion,
    SpatialVerification,
)
from sklearn_simlearn.similarities import CosineSimilarity

N_WORDS = 20_000


def load_features(name):
    """Local features, counts of their words, objects, and which images query."""
    arrays = load(name)
    features = LocalFeatures(
        arrays["offsets"],
        *(arrays[part].astype(np.float32) for part in ("x", "y", "scale", "angle")),
        words=arrays["word_20k"],
        image_sizes=arrays["image_wh"],
    )
    X = sparse.coo_array(
        (np.ones(features.n_points), (features.image_of_point, features.words)),
        shape=(len(features), N_WORDS),
    )
    y = arrays["group" if "group" in arrays else "label"].astype(np.int64)
    return features, X.tocsr(), y, np.flatnonzero(arrays["is_query"])


def rank_items(index, steps, X, y, *, features=None, queries=None):
    """Relevance, scores and junk of all items, and the ids, after these steps."""
    queries = np.arange(len(y)) if queries is None else queries
    index.set_params(rerank=steps)
    scores, ids = index.search(
        X[queries],
        k=len(y) - 1,
        exclude=queries,
        features=None if features is None else features[queries],
    )
    S = np.full((len(queries), len(y)), -np.inf)
    np.put_along_axis(S, ids, scores, axis=1)
    is_self = np.arange(len(y)) == queries[:, None]
    return (y == y[queries, None]) & ~is_self, S, is_self, ids


def evaluate(index, steps, X, y, *, features=None, queries=None, ties="average"):
    """Mean average precision and mean number of hits in the first four, the query
    itself counted, after these steps."""
    queries = np.arange(len(y)) if queries is None else queries
    relevance, S, is_self, ids = rank_items(
        index, steps, X, y, features=features, queries=queries
    )
    precision = average_precision(relevance, S, junk=is_self, ties=ties)
    n_hits = 1 + (y[ids[:, :3]] == y[queries, None]).sum(axis=1)
    return precision.mean(), n_hits.mean()


def choose(make_steps, grid, index, X, y, **options):
    """The parameters with the largest mean average precision."""
    candidates = [
        dict(zip(grid, values, strict=True)) for values in product(*grid.values())
    ]
    return max(
        candidates,
        key=lambda params: evaluate(index, make_steps(**params), X, y, **options)[0],
    )


VERIFICATION = {"max_distance": [0.08, 0.12, 0.16], "max_pairs_per_word": [5, 10]}
EXPANSION = {"n_neighbors": [1, 2, 3], "min_inliers": [8, 12]}
RECIPROCAL = {"k1": [4, 6, 8], "k2": [2, 3]}
DIFFUSION = {"n_neighbors": [4, 10, 20, 40], "alpha": [0.9]}


def choose_steps(features, X, y, **options):
    """Functions that make the steps for a database, with parameters chosen on this
    one."""
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
    options |= {"features": features}

    def choose_step(make_steps, grid):
        params = choose(make_steps, grid, index, X, y, **options)
        print("   ", params)
        return params

    fitted = {}

    def verifier(features, **params):
        key = id(features), *params.items()
        if key not in fitted:
            fitted[key] = SpatialVerification(**params).fit(features)
        return fitted[key]

    verify = choose_step(lambda **params: [verifier(features, **params)], VERIFICATION)

    def expand(features, **params):
        step = verifier(features, **verify)
        return [QueryExpansion(verifier=step, **params), step]

    expansion = choose_step(lambda **params: expand(features, **params), EXPANSION)
    best = [verifier(features, **verify)]
    reciprocal = choose_step(lambda **p: [*best, KReciprocal(**p)], RECIPROCAL)
    diffusion = choose_step(lambda **p: [*best, Diffusion(**p)], DIFFUSION)
    return {
        "plain": lambda features: [],
        "verified": lambda features: [verifier(features, **verify)],
        "expanded": lambda features: expand(features, **expansion)[:1],
        "expanded, verified": lambda features: expand(features, **expansion),
        "k-reciprocal": lambda features: [KReciprocal(**reciprocal)],
        "verified, k-reciprocal": lambda features: [
            verifier(features, **verify),
            KReciprocal(**reciprocal),
        ],
        "verified, diffusion": lambda features: [
            verifier(features, **verify),
            Diffusion(**diffusion),
        ],
        "expanded, verified, k-reciprocal": lambda features: [
            *expand(features, **expansion),
            KReciprocal(**reciprocal),
        ],
    }


# -- UKbench: new objects --


def ukbench():
    """tf-idf and the histogram learner on either half; tf-idf on all images."""
    features, X, y, _ = load_features("ukbench1000_geometry.npz")
    rows = {}
    halves = list(ObjectKFold(2, shuffle=True, random_state=0).split(X, y))
    for train, test in halves:
        print("chosen on the other half:")
        steps = choose_steps(features[train], X[train], y[train])
        learners = {
            "tf-idf": CosineSimilarity().fit(X[train]),
            "HistogramRankSVM": HistogramRankSVM(random_state=0).fit(
                X[train], y[train]
            ),
        }
        test_features = features[test]
        for learner, model in learners.items():
            index = SimilarityIndex(model, store_items=True).fit(X[test])
            for name, make in steps.items():
                found = evaluate(
                    index, make(test_features), X[test], y[test], features=test_features
                )
                rows.setdefault((learner, name), []).extend(found)
        index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
        for name in ("plain", "verified"):
            found = evaluate(index, steps[name](features), X, y, features=features)
            rows.setdefault(("tf-idf, all 1,000 images", name), []).extend(found)
    header = [
        "UKbench",
        "steps",
        "mAP, half 1",
        "N-S",
        "mAP, half 2",
        "N-S",
        "mean mAP",
    ]
    print_table(
        header,
        [
            [*key, *(f"{v:.4f}" for v in values), f"{(values[0] + values[2]) / 2:.4f}"]
            for key, values in rows.items()
        ],
    )


# -- paper 000: plain, spatial re-ranking, query expansion, both --


def learners():
    """Known objects: learners are fitted on all images; parameters are the defaults."""
    words = load("ukbench1000_codebook20k.npz")
    words = {
        "ukbench1000_geometry.npz": words[words.files[0]],
        "paris_subset_geometry.npz": load("paris_subset_bovw20k.npz")["words"],
    }
    for name, vectors in words.items():
        features, X, y, queries = load_features(name)
        queries = queries if "paris" in name else np.arange(len(y))
        verifier = SpatialVerification().fit(features)
        expansion = QueryExpansion(verifier=verifier)
        models = {
            "tf-idf": CosineSimilarity().fit(X),
            "SparseMahalanobisLearner": SparseMahalanobisLearner(
                words=vectors, holdout="samples", random_state=0
            ).fit(X, y),
            "HistogramRankSVM": HistogramRankSVM(holdout="samples", random_state=0).fit(
                X, y
            ),
        }
        chains = [[], [verifier], [expansion], [expansion, verifier]]
        table = []
        for label, model in models.items():
            index = SimilarityIndex(model, store_items=True).fit(X)
            values = [
                evaluate(index, steps, X, y, features=features, queries=queries)[0]
                for steps in chains
            ]
            table.append([label, *(f"{value:.4f}" for value in values)])
        print(f"\n{name}: {len(queries)} queries, learners fitted on all images")
        print_table(["mAP", "plain", "verified", "expanded", "both"], table)


# -- vectors --


def vectors():
    """Dense vectors, in order, shuffled, and with ties broken the worst way."""
    paris, vlad = load("paris_subset_cnn.npz"), load("ukbench1000_vlad64.npz")
    sets = {
        "Paris, CNN": (
            normalize(paris["feat"].astype(np.float64)),
            paris["y"],
            np.flatnonzero(paris["is_query"]),
            {
                "plain": [],
                "expansion of 3": [QueryExpansion(3)],
                "k-reciprocal (6, 3, 0.3)": [KReciprocal(6, 3, 0.3)],
                "k-reciprocal (20, 6, 0.3)": [KReciprocal(20, 6, 0.3)],
                "k-reciprocal (40, 10, 0.3)": [KReciprocal(40, 10, 0.3)],
                "diffusion (4, 0.9)": [Diffusion(4, 0.9)],
                "diffusion (20, 0.9)": [Diffusion(20, 0.9)],
            },
            275,
        ),
        "UKbench, VLAD-128": (
            normalize(vlad["pca128"].astype(np.float64)),
            vlad["group"],
            np.arange(1000),
            {
                "plain": [],
                "expansion of 3": [QueryExpansion(3)],
                "k-reciprocal (6, 3, 0.3)": [KReciprocal(6, 3, 0.3)],
                "k-reciprocal (20, 6, 0.3)": [KReciprocal(20, 6, 0.3)],
                "diffusion (4, 0.9)": [Diffusion(4, 0.9)],
                "diffusion (20, 0.9)": [Diffusion(20, 0.9)],
            },
            100,
        ),
    }
    table = []
    for name, (X, y, queries, chains, n_candidates) in sets.items():
        order = np.random.default_rng(0).permutation(len(y))
        shuffled = np.flatnonzero(np.isin(order, queries))
        settings = {"store_items": True, "n_candidates": n_candidates}
        index = SimilarityIndex(CosineSimilarity(use_idf=False), **settings).fit(X)
        again = SimilarityIndex(CosineSimilarity(use_idf=False), **settings).fit(
            X[order]
        )
        for label, steps in chains.items():
            value = evaluate(index, steps, X, y, queries=queries)[0]
            worst = evaluate(
                again, steps, X[order], y[order], queries=shuffled, ties="pessimistic"
            )[0]
            table.append([f"{name}: {label}", f"{value:.4f}", f"{worst:.4f}"])
    print_table(["mAP", "in order", "shuffled, ties at their worst"], table)


# -- speed --


def speed(n_queries=20, n_candidates=100):
    """Images of about 1,000 features; the same matches through OpenCV."""
    import cv2

    features, X, _, _ = load_features("ukbench1000_geometry.npz")
    rich = np.flatnonzero(features.points_per_image >= 950)
    features, X = features[rich], X[rich]
    S = CosineSimilarity().fit(X).similarity(X)[:n_queries]
    ids = np.argsort(-S, axis=1, kind="stable")[:, 1 : 1 + n_candidates]
    queries = features[:n_queries]
    verifiers = [SpatialVerification(n_jobs=n).fit(features) for n in (1, 2)]
    matches = [
        find_matches(queries[i], features[int(j)])
        for i, row in enumerate(ids)
        for j in row
    ]
    tolerance = verifiers[0].max_distance * 480

    def opencv():
        cv2.setNumThreads(1)
        for source, target in matches:
            if len(source) > 1:
                cv2.estimateAffinePartial2D(
                    source, target, ransacReprojThreshold=tolerance
                )

    contenders = {
        "SpatialVerification, 1 thread": lambda: verifiers[0].verify(queries, ids),
        "SpatialVerification, 2 threads": lambda: verifiers[1].verify(queries, ids),
        "cv2.estimateAffinePartial2D": opencv,
    }
    seconds = dict.fromkeys(contenders, np.inf)
    for _ in range(15):
        for name, run in contenders.items():
            start = time.perf_counter()
            run()
            seconds[name] = min(seconds[name], time.perf_counter() - start)
    n_points = int(features.points_per_image.mean())
    n_matches = np.mean([len(source) for source, _ in matches])
    print(f"\n{ids.size:,} candidates, {n_points} features, {n_matches:.0f} matches")
    first = next(iter(seconds.values()))
    print_table(
        ["", "us per candidate", "relative"],
        [
            [n, f"{1e6 * s / ids.size:.1f}", f"{s / first:.2f}"]
            for n, s in seconds.items()
        ],
    )


def find_matches(query, item, max_pairs=10):
    """Places of the features that share a word, as OpenCV takes them."""
    pairs = [
        (p, r)
        for word in np.intersect1d(query.words, item.words)
        for p, r in product(
            np.flatnonzero(query.words == word), np.flatnonzero(item.words == word)
        )
        if (query.words == word).sum() * (item.words == word).sum() <= max_pairs
    ]
    p, r = np.array(pairs, dtype=int).reshape(-1, 2).T
    return (
        np.stack([query.x[p], query.y[p]], axis=1),
        np.stack([item.x[r], item.y[r]], axis=1),
    )


PARTS = {"ukbench": ukbench, "learners": learners, "vectors": vectors, "speed": speed}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
