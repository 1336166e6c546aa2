"""SparseMahalanobisLearner: accuracy on Paris and UKbench, speed, the paper's size.

    python benchmarks/bench_mahalanobis.py [PART ...]

where PART is paris, settings, distributions, ukbench, speed, oxford or retrieval; all
of them, some 30 minutes on 2 cores, if there is none. They read
paris_subset_bovw20k.npz, ukbench1000_bovw20k.npz and ukbench1000_codebook20k.npz.
"""

import resource
import sys
import time

import numpy as np
from _common import as_counts, best_seconds, load, print_table
from sklearn.metrics import roc_auc_score

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn._mahalanobis import _arrays, _Pairs, _Problem
from sklearn_simlearn._mahalanobis_fast import score_queries
from sklearn_simlearn._random import make_generator
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.model_selection import ObjectShuffleSplit
from sklearn_simlearn.similarities import CosineSimilarity


def load_paris():
    arrays = load("paris_subset_bovw20k.npz")
    is_query = arrays["is_query"].astype(bool)
    return as_counts(arrays), arrays["y"], is_query, arrays["words"]


def split_paris(is_query, seed):
    """Training samples: four fifths of those that are not among the marked queries."""
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~is_query))
    return np.sort(rest[: 4 * len(rest) // 5])


def compare_on_paris(variants, n_seeds=5):
    """mAP of the marked queries, in the whole collection and among unseen images."""
    X, y, is_query, words = load_paris()
    scores = {name: [] for name in ["tf-idf", *variants]}
    for seed in range(n_seeds):
        train = split_paris(is_query, seed)
        unseen = np.setdiff1d(np.arange(len(y)), train)
        models = {"tf-idf": CosineSimilarity()}
        for name, parameters in variants.items():
            models[name] = SparseMahalanobisLearner(
                words=words, n_jobs=2, random_state=seed
            ).set_params(**parameters)
        for name, model in models.items():
            model.fit(X[train], y[train])
            scores[name].append(
                (
                    model.score(X, y, query_mask=is_query),
                    model.score(X[unseen], y[unseen], query_mask=is_query[unseen]),
                    getattr(model, "best_iter_", 0),
                )
            )
    scores = {name: np.array(values) for name, values in scores.items()}
    rows = []
    for name, values in scores.items():
        gain = values[:, :2] / scores["tf-idf"][:, :2] - 1
        rows.append(
            [
                name,
                f"{values[:, 0].mean():.3f}",
                f"{gain[:, 0].mean():+.1%}",
                f"{gain[:, 0].min():+.1%} to {gain[:, 0].max():+.1%}",
                f"{values[:, 1].mean():.3f}",
                f"{gain[:, 1].mean():+.1%}",
                f"{values[:, 2].mean():.0f}",
            ]
        )
    print_table(
        ["", "mAP", "gain", "of the seeds", "unseen images", "gain", "iterations"], rows
    )
    print()


def paris():
    """The paper's protocol: queries in the test set, the rest 4:1, hold-out."""
    compare_on_paris({f"{k} neighbours": {"n_neighbors": k} for k in range(4)})


def settings():
    """Other ways to mine, solve and regularise."""
    variants = {
        "as it is": {},
        "hard triplets only": {"n_random_triplets": 0},
        "20,000 hard triplets": {"max_hard_triplets": 20_000},
        "mined anew every 20": {"refresh_triplets": 20},
        "sgd": {"solver": "sgd"},
        "identity": {"init": "identity"},
        "neighbours by co-occurrence": {"words": None},
        "nothing held out": {"holdout": None},
    }
    for alpha in (0.0, 0.01, 1.0, 10.0):
        variants[f"alpha {alpha}"] = {"alpha": alpha}
    for margin in (0.001, 0.003, 0.03, 0.1):
        variants[f"margin {margin}"] = {"margin": margin}
    compare_on_paris(variants)


def distributions():
    """Similarities of matching and other pairs, neither of them in training."""
    X, y, is_query, words = load_paris()
    rows = []
    for name in ("tf-idf", "learned"):
        matching, other = [], []
        for seed in range(5):
            train = split_paris(is_query, seed)
            unseen = np.setdiff1d(np.arange(len(y)), train)
            model = CosineSimilarity()
            if name == "learned":
                model = SparseMahalanobisLearner(
                    words=words, n_jobs=2, random_state=seed
                )
            S = model.fit(X[train], y[train]).similarity(X[unseen])
            above = np.triu_indices(len(unseen), 1)
            match = (y[unseen][:, None] == y[unseen])[above]
            matching.append(S[above][match])
            other.append(S[above][~match])
        matching, other = np.concatenate(matching), np.concatenate(other)
        is_match = np.repeat([True, False], [len(matching), len(other)])
        auc = roc_auc_score(is_match, np.concatenate([matching, other]))
        for kind, values in (("matching", matching), ("other", other)):
            quantiles = np.quantile(values, [0.08, 0.25, 0.5, 0.75, 0.92])
            cells = [f"{quantile:.3f}" for quantile in quantiles]
            rows.append([f"{name}, {kind} pairs", *cells, f"{auc:.3f}"])
    print_table(["similarity", "8 %", "25 %", "50 %", "75 %", "92 %", "AUC"], rows)
    print()


def ukbench():
    """Objects that are new at test time, ten splits, with the defaults."""
    arrays = load("ukbench1000_bovw20k.npz")
    codebook = load("ukbench1000_codebook20k.npz")
    X, y, words = as_counts(arrays), arrays["group"], codebook[codebook.files[0]]
    splits = ObjectShuffleSplit(n_splits=10, test_size=0.5, random_state=0)
    variants = {
        "defaults": {"words": None},
        "nearest centres": {},
        "no hold-out": {"holdout": None},
        "no hold-out, alpha 0": {"holdout": None, "alpha": 0.0},
    }
    scores = {name: [] for name in ["tf-idf", *variants]}
    for seed, (train, test) in enumerate(splits.split(X, y)):
        baseline = CosineSimilarity().fit(X[train])
        scores["tf-idf"].append(baseline.score(X[test], y[test]))
        for name, parameters in variants.items():
            model = SparseMahalanobisLearner(words=words, n_jobs=2, random_state=seed)
            model.set_params(**parameters).fit(X[train], y[train])
            scores[name].append(model.score(X[test], y[test]))
    tfidf = np.array(scores["tf-idf"])
    print_table(
        ["UKbench, new objects", "mAP", "least gain", "largest gain"],
        [
            [
                name,
                f"{np.mean(values):.4f}",
                f"{(values - tfidf).min():+.4f}",
                f"{(values - tfidf).max():+.4f}",
            ]
            for name, values in scores.items()
        ],
    )
    print()


def make_oxford():
    """5,000 images, 500,000 words, about 2,500 of them in an image, 11 landmarks."""
    data = make_visual_words(
        n_objects=11,
        n_images_per_object=52,
        n_distractors=4_428,
        n_words=500_000,
        n_words_per_object=6_000,
        visibility=0.08,
        noise=0.6,
        n_clutter=2_000,
        group_size=16,
        n_dims=32,
        zipf_exponent=0.5,
        dtype=np.float32,
        random_state=0,
    )
    return data.data, data.target, data.words


def pose(X, y, words, n_neighbors=2, **parameters):
    """The problem that `fit` solves, with its queries."""
    learner = SparseMahalanobisLearner(n_neighbors, words=words, **parameters)
    X = learner._check_samples(X, reset=True)
    relevance = check_relevance(y)
    nobody = np.zeros(len(y), dtype=bool)
    rng = make_generator(0)
    queries, weight = learner._choose_queries(relevance, nobody, rng)
    neighbors = learner._find_neighbors(X, words, lambda name: False)
    pairs = _Pairs(learner._check_init(X), neighbors)
    problem = _Problem(X, relevance, nobody, pairs, n_threads=1)
    return learner, problem, queries, weight, rng


def speed():
    """An evaluation against SciPy's products, whatever the number of triplets."""
    X, y, words = make_oxford()
    learner, problem, queries, weight, rng = pose(X, y, words, n_random_triplets=0)
    m = problem.pairs.start + 0.1  # so that no entry of M is zero
    M = problem.pairs.matrix(m).astype(problem.X.dtype)
    of_scipy = best_seconds(lambda: (problem.X[queries] @ M) @ problem.X.T)
    rows = [["SciPy: Q M X'", "", f"{of_scipy:.2f}", "1.00"]]
    margin = learner._find_margin(problem, queries, weight)
    for n_triplets in (100_000, 1_000_000, None, 20_000_000):
        if n_triplets == 20_000_000:
            learner.set_params(max_hard_triplets=None, n_random_triplets=20_000_000)
        else:
            learner.set_params(max_hard_triplets=n_triplets)
        triplets = learner._mine(problem, problem.pairs.start, queries, weight, rng)
        name = "listed" if n_triplets else "all that are hard"
        n_listed = len(triplets.arrays[5])
        n = n_listed + (triplets.n_hard if n_triplets in (None, 20_000_000) else 0)
        for n_threads in (1, 2):
            problem.n_threads = n_threads
            seconds = best_seconds(
                lambda triplets=triplets: problem.evaluate(m, triplets, margin)
            )
            rows.append(
                [
                    f"evaluation, {name}, threads: {n_threads}",
                    f"{n:,}",
                    f"{seconds:.2f}",
                    f"{seconds / of_scipy:.2f}",
                ]
            )
    print(f"{len(queries)} queries, {len(m):,} unknowns")
    print_table(["", "triplets", "seconds", "ratio"], rows)
    print()


def oxford():
    """50 iterations at the paper's size."""
    X, y, words = make_oxford()
    print(
        f"{len(y)} images, {X.shape[1]:,} words, {X.nnz / len(y):.0f} of them in an "
        f"image; {X.data.nbytes / 2**20:.0f} MiB of counts"
    )
    start = time.perf_counter()
    learner = SparseMahalanobisLearner(
        3,
        words=words,
        n_random_triplets=3_000_000,
        max_iter=50,
        n_iter_no_change=50,
        tol=0,
        n_jobs=2,
        random_state=0,
    ).fit(X, y)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{learner.n_iter_} iterations, {learner.n_hard_triplets_:,} hard and "
        f"{learner.n_random_triplets:,} random triplets, "
        f"{(learner.support_.nnz + X.shape[1]) // 2:,} unknowns: {seconds:.0f} s, peak "
        f"memory of the process {peak:.1f} GiB"
    )
    print(
        f"hold-out: {learner.holdout_scores_[0]:.3f}, at best "
        f"{learner.holdout_scores_.max():.3f} in iteration {learner.best_iter_}\n"
    )


def retrieval():
    """Time of the inverted file by the number of neighbours, one thread."""
    X, y, words = make_oxford()
    queries = np.flatnonzero(y >= 0)[:200]
    rows = []
    for k in range(5):
        learner, problem, *_ = pose(X, y, words, k)
        # Every entry of the support is used, as after learning it might be.
        vars(learner).update(
            learner._serve(problem.pairs, problem.pairs.start + 0.1, X.dtype)
        )
        Q, D = learner.transform(X[queries]), learner.transform_database(X)
        file = D.tocsc()
        out = np.empty((len(queries), len(y)), dtype=X.dtype)
        arrays = *_arrays(Q), *_arrays(file), 1, out
        seconds = best_seconds(lambda arrays=arrays: score_queries(*arrays), repeat=5)
        n_postings = np.diff(file.indptr)[Q.indices].sum()
        rows.append((k, Q.nnz, n_postings, seconds))
    print_table(
        [
            "neighbours",
            "words a query",
            "postings a query",
            "ms a query",
            "ns a posting",
        ],
        [
            [
                k,
                f"{n_words / len(queries):,.0f}",
                f"{n_postings / len(queries):,.0f}",
                f"{1e3 * seconds / len(queries):.2f}",
                f"{1e9 * seconds / n_postings:.2f}",
            ]
            for k, n_words, n_postings, seconds in rows
        ],
    )
    print()


PARTS = (paris, settings, distributions, ukbench, speed, oxford, retrieval)

if __name__ == "__main__":
    parts = {part.__name__: part for part in PARTS}
    for name in sys.argv[1:] or parts:
        parts[name]()
