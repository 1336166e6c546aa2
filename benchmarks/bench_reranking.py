"""Re-ranking: gain of each step, and cost of verification.

Run one part with ``python benchmarks/bench_reranking.py PART``, where PART is ukbench,
learners, vectors, averages, sizes or speed. Without an argument, all of them run. They
read files of UKbench and Paris, and "sizes" also those of MNIST, Office and Caltech,
from the folder that `SIMLEARN_DATA` names. "averages" reads those of ORL and Banking77.

Every image queries the others. In "ukbench", parameters are chosen with tf-idf on one
half of the objects, and measured on the other half. In "averages", learners are fitted
on half of the classes; half of the samples of the other classes query the other half,
over three seeds. The other parts use the defaults, unless a table names parameters.
"""

import sys
import time
from itertools import product

import numpy as np
from _common import as_counts, load, print_table
from _sets import load_set, split_set
from scipy import sparse
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import normalize

from sklearn_simlearn import (
    HistogramRankSVM,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn.feature_extraction import LocalFeatures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import average_precision, precision_at_k
from sklearn_simlearn.model_selection import ObjectKFold
from sklearn_simlearn.reranking import (
    Diffusion,
    KReciprocal,
    NeighborAveraging,
    QueryExpansion,
    SpatialVerification,
)
from sklearn_simlearn.similarities import CosineSimilarity

N_WORDS = 20_000


def load_features(name):
    """Return local features, counts of words, objects, and the mask of queries."""
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


def evaluate(index, steps, X, y, **options):
    """Return mean average precision and the mean number of hits in the first four,
    including the query itself, after these steps."""
    precision, n_hits = measure(index, steps, X, y, **options)
    return precision.mean(), n_hits.mean()


def rank_items(index, steps, X, y, *, features=None, queries=None):
    """Return relevance, scores and junk of all items, and the ids, after the steps."""
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


def measure(index, steps, X, y, *, features=None, queries=None, ties="average"):
    """Return average precision and number of hits of each query."""
    queries = np.arange(len(y)) if queries is None else queries
    relevance, S, is_self, ids = rank_items(
        index, steps, X, y, features=features, queries=queries
    )
    precision = average_precision(relevance, S, junk=is_self, ties=ties)
    return precision, 1 + (y[ids[:, :3]] == y[queries, None]).sum(axis=1)


def choose(make_steps, grid, index, X, y, **options):
    """Return the parameters with the largest mean average precision."""
    candidates = [
        dict(zip(grid, values, strict=True)) for values in product(*grid.values())
    ]
    return max(
        candidates,
        key=lambda params: evaluate(index, make_steps(**params), X, y, **options)[0],
    )


TOLERANCE = {"max_distance": [0.08, 0.12, 0.16], "max_pairs_per_word": [5, 10, 20]}
RANKING = {"similarity_weight": [1, 2, 4], "size_power": [0, 0.25, 0.5]}
EXPANSION = {"n_neighbors": [1, 2, 3], "min_inliers": [8, 12]}
RECIPROCAL = {"k1": [4, 6, 8, "auto"], "k2": [None, 3]}
DIFFUSION = {"n_neighbors": [10, 20, 40], "damping": [0.8, 0.9, 0.95]}


def choose_steps(features, X, y):
    """Return the parameters of the steps, chosen on this database."""
    index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)

    def choose_step(make_steps, grid):
        return choose(make_steps, grid, index, X, y, features=features)

    def verify(**params):
        return [SpatialVerification(**params).fit(features)]

    tolerance = choose_step(verify, TOLERANCE)
    ranking = choose_step(lambda **p: verify(**tolerance, **p), RANKING)
    verification = tolerance | ranking
    (step,) = verify(**verification)
    return {
        "verification": verification,
        "expansion": choose_step(
            lambda **p: [QueryExpansion(verifier=step, **p)], EXPANSION
        ),
        "reciprocal": choose_step(lambda **p: [step, KReciprocal(**p)], RECIPROCAL),
        "diffusion": choose_step(lambda **p: [step, Diffusion(**p)], DIFFUSION),
    }


def make_chains(features, params):
    """Return the steps for a database by name."""
    verifier = SpatialVerification(**params["verification"]).fit(features)
    expansion = QueryExpansion(verifier=verifier, **params["expansion"])
    reciprocal = KReciprocal(**params["reciprocal"])
    return {
        "plain": [],
        "verified": [verifier],
        "expanded": [expansion],
        "expanded, verified": [expansion, verifier],
        "k-reciprocal": [reciprocal],
        "verified, k-reciprocal": [verifier, reciprocal],
        "verified, diffusion": [verifier, Diffusion(**params["diffusion"])],
        "expanded, verified, k-reciprocal": [expansion, verifier, reciprocal],
    }


DEFAULTS = {"verification": {}, "expansion": {}, "reciprocal": {}, "diffusion": {}}


# -- UKbench: new objects --


def ukbench():
    """Measure tf-idf and the histogram learner on both halves; tf-idf on all images."""
    features, X, y, _ = load_features("ukbench1000_geometry.npz")
    chosen, default = {}, {}
    for train, test in ObjectKFold(2, shuffle=True, random_state=0).split(X, y):
        params = choose_steps(features[train], X[train], y[train])
        print("chosen on the other half:", *params.items(), sep="\n    ", flush=True)
        learners = {
            "tf-idf": CosineSimilarity().fit(X[train]),
            "HistogramRankSVM": HistogramRankSVM(random_state=0).fit(
                X[train], y[train]
            ),
        }
        options = {"X": X[test], "y": y[test], "features": features[test]}
        for learner, model in learners.items():
            index = SimilarityIndex(model, store_items=True).fit(X[test])
            for found, given in ((chosen, params), (default, DEFAULTS)):
                for name, steps in make_chains(features[test], given).items():
                    values = measure(index, steps, **options)
                    found.setdefault((learner, name), []).append(values)
        index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
        for found, given in ((chosen, params), (default, DEFAULTS)):
            chains = make_chains(features, given)
            for name in ("plain", "verified"):
                values = measure(index, chains[name], X, y, features=features)
                key = "tf-idf, all 1,000 images", name
                found.setdefault(key, []).append(values)
    print_table(
        ["UKbench", "steps", "mAP, half 1", "N-S", "mAP, half 2", "N-S", "mean mAP"]
        + ["defaults", "difference", "its error"],
        [[*key, *compare(halves, default[key])] for key, halves in chosen.items()],
    )


def compare(chosen, default):
    """Return cells of chosen and of default parameters, and their difference.

    The standard error is of the mean difference over queries of both halves.
    """
    cells = [values.mean() for half in chosen for values in half]
    difference = np.concatenate(
        [theirs[0] - ours[0] for theirs, ours in zip(default, chosen, strict=True)]
    )
    precision = np.concatenate([half[0] for half in default])
    error = difference.std(ddof=1) / len(difference) ** 0.5
    cells += [(cells[0] + cells[2]) / 2, precision.mean(), difference.mean(), error]
    return [f"{value:.4f}" for value in cells]


# -- learners: plain, spatial re-ranking, query expansion, both --


def learners():
    """Measure known objects: learners are fitted on other images of the same objects.

    One image of each object queries in UKbench, the marked photographs in Paris.
    Parameters are the defaults.
    """
    words = load("ukbench1000_codebook20k.npz")
    words = {
        "ukbench1000_geometry.npz": words[words.files[0]],
        "paris_subset_geometry.npz": load("paris_subset_bovw20k.npz")["words"],
    }
    for name, vectors in words.items():
        features, X, y, queries = load_features(name)
        if "ukbench" in name:
            queries = np.unique(y, return_index=True)[1]
        rest = np.setdiff1d(np.arange(len(y)), queries)
        verifier = SpatialVerification().fit(features)
        expansion = QueryExpansion(verifier=verifier)
        options = {"holdout": "samples", "random_state": 0}
        models = {
            "tf-idf": CosineSimilarity(),
            "SparseMahalanobisLearner": SparseMahalanobisLearner(
                words=vectors, **options
            ),
            "the same, as in the paper": SparseMahalanobisLearner(
                words=vectors, init="tfidf", holdout=None, random_state=0
            ),
            "HistogramRankSVM": HistogramRankSVM(**options),
        }
        chains = [[], [verifier], [expansion], [expansion, verifier]]
        table = []
        for label, model in models.items():
            model.fit(X[rest], y[rest])
            index = SimilarityIndex(model, store_items=True).fit(X)
            values = [
                evaluate(index, steps, X, y, features=features, queries=queries)[0]
                for steps in chains
            ]
            table.append([label, *(f"{value:.4f}" for value in values)])
        print(f"\n{name}: {len(queries)} queries, learners fitted on the other images")
        print_table(["mAP", "plain", "verified", "expanded", "both"], table)


# -- vectors --


def vectors():
    """Measure dense vectors: in order, shuffled, with ties in the worst order."""
    paris, vlad = load("paris_subset_cnn.npz"), load("ukbench1000_vlad64.npz")
    sets = {
        "Paris, CNN": (
            normalize(paris["feat"].astype(np.float64)),
            paris["y"],
            np.flatnonzero(paris["is_query"]),
            {
                "plain": [],
                "expansion of 3": [QueryExpansion(3)],
                "k-reciprocal": [KReciprocal()],
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
                "k-reciprocal": [KReciprocal()],
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


# -- the size of neighbourhoods --


def averages(n_seeds=3):
    """Measure items averaged with their neighbours, with and without labels."""
    models = {
        "cosine": CosineSimilarity(use_idf=False),
        "two covariances": TwoCovarianceSimilarity(random_state=0),
    }
    table = []
    for name, (label, model) in product(("Faces", "Banking"), models.items()):
        X, y = load_set(name)
        values = []
        for seed in range(n_seeds):
            train, test = split_set(X, y, "objects", seed)
            items, queries = train_test_split(
                test, test_size=0.5, stratify=y[test], random_state=seed
            )
            index = SimilarityIndex(
                model.fit(X[train], y[train]), n_candidates=1000, store_items=True
            ).fit(X[items])
            steps = [
                [],
                *([NeighborAveraging(n)] for n in (3, 5, 10)),
                [NeighborAveraging(10).fit(index, y[items])],
            ]
            relevance = (y[queries][:, None] == y[items]).astype(np.int8)
            for chain in steps:
                index.set_params(rerank=chain)
                _, ids = index.search(X[queries], k=len(items))
                ranked = np.take_along_axis(relevance, ids, axis=1)
                order = np.broadcast_to(-np.arange(len(items)), ranked.shape)
                values.append(np.mean(average_precision(ranked, order)))
                values.append(np.mean(precision_at_k(ranked, order, 1)))
        means = np.reshape(values, (n_seeds, -1, 2)).mean(axis=0)
        table.append([f"{name}, {label}", *(f"{a:.3f} {b:.3f}" for a, b in means)])
    print("\nmAP and P@1 on new classes, items averaged with their neighbours")
    print_table(["", "none", "3", "5", "10", "10, labels"], table)


def sizes(n_queries=300):
    """Measure estimated sizes on sets with groups of many sizes."""
    table = []
    for name, X, y in sets_of_groups():
        use_idf = sparse.issparse(X)
        index = SimilarityIndex(CosineSimilarity(use_idf=use_idf), store_items=True)
        index.fit(X)
        rng = np.random.default_rng(0)
        queries = np.sort(rng.permutation(len(y))[:n_queries])
        chains = [[], [KReciprocal(6, 3)], [KReciprocal(20, 6)], [KReciprocal(40, 10)]]
        chains += [[KReciprocal()], [Diffusion()]]
        values = [evaluate(index, steps, X, y, queries=queries)[0] for steps in chains]
        size = len(y) / len(np.unique(y))
        k1 = KReciprocal().fit(index).k1_
        table.append([name, f"{size:.0f}", k1, *(f"{value:.3f}" for value in values)])
    header = ["mAP", "images per class", "k1", "plain", "(6, 3)", "(20, 6)"]
    print_table([*header, "(40, 10)", "auto", "diffusion"], table)


def sets_of_groups():
    """Yield names, samples and labels."""
    rng = np.random.default_rng(0)

    def draw(X, y, n_classes, n_per_class):
        classes = rng.permutation(np.unique(y))[:n_classes]
        rows = [rng.permutation(np.flatnonzero(y == c))[:n_per_class] for c in classes]
        rows = np.concatenate(rows)
        return X[rows], y[rows]

    vlad, cnn = load("ukbench1000_vlad64.npz"), load("ukbench1000_cnn.npz")
    yield "UKbench, VLAD-128", normalize(vlad["pca128"].astype(float)), vlad["group"]
    yield "UKbench, CNN", normalize(cnn["feat"].astype(float)), vlad["group"]
    words = load("ukbench1000_bovw20k.npz")
    yield "UKbench, words", as_counts(words), words["group"]
    paris = load("paris_subset_cnn.npz")
    yield "Paris, CNN", normalize(paris["feat"].astype(float)), paris["y"]
    yield "Paris, words", as_counts(load("paris_subset_bovw20k.npz")), paris["y"]
    mnist = load("mnist.npz")
    X = normalize(mnist["X_train"].reshape(-1, 28 * 28)[:20_000].astype(float))
    for size in (8, 20, 50, 100):
        yield f"MNIST, {size} of each", *draw(X, mnist["y_train"][:20_000], 10, size)
    office = load("office_caltech10_surf800.npz")
    X = sparse.csr_array(office["amazon_X"].astype(float))
    yield "Office, 50 of each", *draw(X, office["amazon_y"], 10, 50)
    caltech = load("caltech101_oasis_b32_1k.npz")
    yield "Caltech, 20 of each", *draw(as_counts(caltech), caltech["y"], 40, 20)


# -- speed --


def speed(n_queries=20, n_candidates=100):
    """Time images of about 1,000 features; compare with OpenCV on the same matches."""
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
    """Return positions of the features that share a word, in the form of OpenCV."""
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


PARTS = {
    "ukbench": ukbench,
    "learners": learners,
    "vectors": vectors,
    "averages": averages,
    "sizes": sizes,
    "speed": speed,
}

if __name__ == "__main__":
    for part in sys.argv[1:] or PARTS:
        PARTS[part]()
