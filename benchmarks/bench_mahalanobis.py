"""SparseMahalanobisLearner: early stopping, settings, new objects, speed, large data.

    python benchmarks/bench_mahalanobis.py [PART ...]

where PART is stopping, settings, ukbench, speed or oxford. Without PART, all of them
run. They read paris_subset_bovw20k.npz and ukbench1000_bovw20k.npz. The tables of the
paper are in ``python -m benchmarks.papers yan``.
"""

import resource
import sys
import time
import warnings

import numpy as np
from _common import as_counts, best_seconds, load, print_table
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.mahalanobis._problem import draw_queries
from sklearn_simlearn.model_selection import ObjectShuffleSplit
from sklearn_simlearn.similarities import CosineSimilarity

# All iterations from tf-idf, with the pull towards it.
PLAIN = {"holdout": None, "alpha": 0.1}


def load_paris():
    arrays = load("paris_subset_bovw20k.npz")
    is_query = arrays["is_query"].astype(bool)
    return as_counts(arrays), arrays["y"], is_query, arrays["words"]


def split_paris(is_query, seed):
    """Return training samples: four fifths of the samples that are not queries."""
    rest = np.random.default_rng(seed).permutation(np.flatnonzero(~is_query))
    return np.sort(rest[: 4 * len(rest) // 5])


def compare_on_paris(variants, n_seeds=5):
    """Print the mAP of the marked queries, in all images and in unseen images."""
    X, y, is_query, words = load_paris()
    scores = {name: [] for name in ["tf-idf", *variants]}
    for seed in range(n_seeds):
        train = split_paris(is_query, seed)
        unseen = np.setdiff1d(np.arange(len(y)), train)
        models = {"tf-idf": CosineSimilarity()}
        for name, parameters in variants.items():
            models[name] = SparseMahalanobisLearner.from_paper(
                **{"words": words, "n_jobs": 2, "random_state": seed} | parameters
            )
        for name, model in models.items():
            model.fit(X[train], y[train])
            scores[name].append(
                (
                    model.score(X, y, query_mask=is_query),
                    model.score(X[unseen], y[unseen], query_mask=is_query[unseen]),
                    getattr(model, "n_iter_", 0),
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


def stopping():
    """Compare the form of the paper with other hold-outs, with and without a pull."""
    compare_on_paris(
        {
            f"{name}, alpha {alpha}": {"holdout": holdout, "alpha": alpha}
            for name, holdout in (
                ("4 held out", 4),
                ("no hold-out", None),
                ("samples held out", "samples"),
            )
            for alpha in (0.0, 0.1)
        },
        n_seeds=3,
    )


def settings():
    """Compare other starts, triplets and regularisations."""
    variants = {
        "plain": {},
        "samples held out": {"holdout": "samples"},
        "hard triplets only": {"n_random_triplets": 0},
        "identity": {"init": "identity"},
        "neighbours by co-occurrence": {"words": None},
        "counts to the power 3/4": {"init": "auto"},
        "both": {"init": "auto", "words": None},
    }
    for alpha in (0.0, 0.01, 1.0, 10.0):
        variants[f"alpha {alpha}"] = {"alpha": alpha}
    for margin in (0.001, 0.003, 0.03, 0.1):
        variants[f"margin {margin}"] = {"margin": margin}
    compare_on_paris({name: PLAIN | change for name, change in variants.items()})


def ukbench():
    """Measure objects that are new at test time, on three splits."""
    arrays = load("ukbench1000_bovw20k.npz")
    X, y = as_counts(arrays), arrays["group"]
    splits = ObjectShuffleSplit(n_splits=3, test_size=0.5, random_state=0)
    models = {
        "cosine of tf-idf": CosineSimilarity(),
        "defaults": SparseMahalanobisLearner(),
        "no hold-out": SparseMahalanobisLearner(holdout=None),
        "no hold-out, from tf-idf": SparseMahalanobisLearner(
            init="tfidf", holdout=None
        ),
        "the same, alpha 0": SparseMahalanobisLearner(
            init="tfidf", holdout=None, alpha=0.0
        ),
    }
    scores = {name: [] for name in models}
    for seed, (train, test) in enumerate(splits.split(X, y)):
        for name, model in models.items():
            if name != "cosine of tf-idf":
                model.set_params(n_jobs=2, random_state=seed)
            model.fit(X[train], y[train])
            scores[name].append(model.score(X[test], y[test]))
    rows = [[name, f"{np.mean(values):.3f}"] for name, values in scores.items()]
    print_table(["UKbench, new objects", "mAP"], rows)
    print()


def make_oxford():
    """Return 5,000 images, 500,000 words, 2,500 of them in an image, 11 landmarks."""
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


def link_words(words, k):
    """Return the graph of the nearest words, which are in groups of 16."""
    n_words, n_dims = words.shape
    groups = words.reshape(-1, 16, n_dims).astype(np.float64)
    products = groups @ groups.transpose(0, 2, 1)
    own = products.diagonal(axis1=1, axis2=2)
    apart = own[:, :, None] + own[:, None] - 2 * products
    apart[:, np.arange(16), np.arange(16)] = np.inf
    nearest = np.argpartition(apart, k, axis=-1)[..., :k]
    column = (nearest + 16 * np.arange(len(groups))[:, None, None]).ravel()
    row = np.repeat(np.arange(n_words), k)
    ones = np.ones(len(row))
    return sparse.csr_array((ones, (row, column)), shape=(n_words, n_words))


def pose(X, y, graph):
    """Return the problem that a plain `fit` solves, with its triplets and margin."""
    learner = SparseMahalanobisLearner(
        words=graph, init="tfidf", holdout=None, n_random_triplets=0
    )
    problem, triplets, margin, _ = learner._pose(
        X,
        check_relevance(y),
        learner.queries_per_object,
        make_generator(0),
        init=learner.init,
        words=graph,
        advance=lambda name: False,
    )
    return problem, triplets, margin


def speed():
    """Compare an evaluation with SciPy's products, for any number of triplets."""
    X, y, words = make_oxford()
    problem, triplets, margin = pose(X, y, link_words(words, 2))
    m = problem.pairs.start + 0.1  # so that no entry of M is zero
    M = problem.pairs.matrix(m).astype(problem.X.dtype)
    queries = triplets.queries
    of_scipy = best_seconds(lambda: (problem.X[queries] @ M) @ problem.X.T)
    rows = [["SciPy: Q M X'", "", f"{of_scipy:.2f}", "1.00"]]
    of_index = best_seconds(lambda: products_with(problem.X)(problem.X[queries] @ M))
    rows.append(["inverted file: Q M X'", "", f"{of_index:.2f}"])
    rows[-1].append(f"{of_index / of_scipy:.2f}")
    for n_random in (0, 1_000_000, 20_000_000):
        drawn, weight = draw_queries(problem.relevance, 80, make_generator(0))
        start, rng = problem.pairs.start, make_generator(0)
        triplets, _ = problem.mine(start, drawn, weight, n_random, rng)
        for n_threads in (1, 2):
            problem.n_threads = n_threads
            seconds = best_seconds(
                lambda triplets=triplets: problem.evaluate(m, triplets, margin)
            )
            rows.append(
                [
                    f"evaluation, threads: {n_threads}",
                    f"{triplets.n_hard + n_random:,}",
                    f"{seconds:.2f}",
                    f"{seconds / of_scipy:.2f}",
                ]
            )
        problem.n_threads = 1
    print(f"{len(queries)} queries, {len(m):,} unknowns")
    print_table(["", "triplets", "seconds", "ratio"], rows)
    print()


def oxford():
    """Time 50 iterations at the size of the paper."""
    X, y, words = make_oxford()
    print(
        f"{len(y)} images, {X.shape[1]:,} words, {X.nnz / len(y):.0f} of them in an "
        f"image; {X.data.nbytes / 2**20:.0f} MiB of counts"
    )
    start = time.perf_counter()
    learner = SparseMahalanobisLearner(
        words=link_words(words, 3),
        init="tfidf",
        holdout=None,
        n_random_triplets=3_000_000,
        max_iter=50,
        tol=0,
        n_jobs=2,
        random_state=0,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        learner.fit(X, y)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{learner.n_iter_} iterations, {learner.n_hard_triplets_:,} hard and "
        f"{learner.n_random_triplets:,} random triplets, "
        f"{(learner.support_.nnz + X.shape[1]) // 2:,} unknowns: {seconds:.0f} s, peak "
        f"memory of the process {peak:.1f} GiB\n"
    )


PARTS = (stopping, settings, ukbench, speed, oxford)

if __name__ == "__main__":
    parts = {part.__name__: part for part in PARTS}
    for name in sys.argv[1:] or parts:
        parts[name]()
