"""Yan and Yu: measurements on photographs of Paris and on synthetic words."""

import time
import warnings
from functools import cache

import numpy as np
from _common import as_counts, load
from bench_mahalanobis import link_words, make_oxford, split_paris
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import roc_auc_score

from benchmarks.papers._frame import Panel, Result, compare, effect
from benchmarks.papers._measures import (
    MEASURES,
    cells_of,
    column,
    first_page,
    gain_text,
    measure,
    spread,
)
from benchmarks.papers._yan_reranked import measure_pictures, search, seeds
from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.progress import FitCallback
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.similarities import CosineSimilarity

NEIGHBORS = (0, 1, 2, 3)
# Unknowns in thousands and hours by neighbours, Oxford5K.
PUBLISHED_UNKNOWNS = {0: (500, 2.2), 1: (934, 4.5), 2: (1308, 7.0), 3: (1687, 9.1)}

# mAP of tf-idf and learned, by words and steps.
PUBLISHED = {
    ("own", "plain"): "m: 0.693, 0.823",
    ("own", "SR, QE"): "n: 0.816, 0.908",
    ("background", "plain"): "o: 0.585, 0.654",
    ("background", "SR, QE"): "p: 0.693, 0.783",
}


@cache
def load_images(quick):
    """Return counts, labels, mask of the queries, and the positions of the words."""
    if not quick:
        arrays = load("paris_subset_bovw20k.npz")
        is_query = arrays["is_query"].astype(bool)
        return as_counts(arrays), arrays["y"], is_query, arrays["words"]
    data = make_visual_words(
        n_objects=5, n_images_per_object=16, n_words=1000, random_state=0
    )
    return data.data, data.target, np.arange(len(data.target)) % 8 == 0, data.words


@cache
def fit(quick, seed, k=2, share=1.0, **params):
    """Fit the form of the paper with k neighbours per word; tf-idf if k is None."""
    X, y, is_query, words = load_images(quick)
    train = take_share(split_paris(is_query, seed), y, share)
    if k is None:
        return CosineSimilarity().fit(X[train])
    if quick:
        params = {"holdout": 1, "max_iter": 5, **params}
    model = SparseMahalanobisLearner.from_paper(
        n_neighbors=k, words=words, n_jobs=2, random_state=seed, **params
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few iterations, or few held-out images
        return model.fit(X[train], y[train])


def take_share(rows, y, share):
    """Return the first rows of each label."""
    parts = [rows[y[rows] == label] for label in np.unique(y[rows])]
    return np.sort(np.concatenate([p[: max(2, int(share * len(p)))] for p in parts]))


def score(model, quick, among=None):
    """Measure the marked queries in the whole collection, or among some images."""
    X, y, is_query, _ = load_images(quick)
    rows = np.arange(len(y)) if among is None else among
    return measure(model, X[rows], y[rows], query_mask=is_query[rows])


def unseen_rows(quick, seed):
    """Return the images that are not in training, queries included."""
    _, y, is_query, _ = load_images(quick)
    return np.setdiff1d(np.arange(len(y)), split_paris(is_query, seed))


def measure_plain(quick):
    """Return measures of tf-idf and learned: all images, unseen ones, a third."""
    found = {}
    for name, k in (("tf-idf", None), ("learned", 2)):
        for seed in seeds(quick):
            unseen = unseen_rows(quick, seed)
            for kind, value in (
                ("all", score(fit(quick, seed, k), quick)),
                ("unseen", score(fit(quick, seed, k), quick, unseen)),
                # Oxford5K has a third of the positive images of Paris6K.
                ("third", score(fit(quick, seed, k, share=571 / 1791), quick)),
            ):
                found.setdefault((name, kind), []).append(value)
    return found


def describe_plain(quick):
    """Return rows, effects and notes of Table II without re-ranking."""
    found = measure_plain(quick)
    labels = {
        "all": "whole collection, as in the paper",
        "unseen": "images that were not in training",
        "third": "a third of the training images",
    }
    rows = [
        [f"{name}, {labels[kind]}", "", *cells_of(values)]
        for (name, kind), values in found.items()
    ]
    gains = {
        kind: np.subtract(column(found["learned", kind]), column(found["tf-idf", kind]))
        for kind in labels
    }
    effects = {
        "m": compare(column(found["learned", "all"]), column(found["tf-idf", "all"])),
        "positives": compare(gains["all"], gains["third"]),
    }
    unseen = [column(found[name, "unseen"]) for name in ("learned", "tf-idf")]
    notes = [
        "Row m searches a collection that holds the training images. Among images "
        f"that were not in training, the gain is {gain_text(*unseen)}.",
        *first_page(
            "Row m: the learned similarity",
            found["learned", "all"],
            found["tf-idf", "all"],
        ),
    ]
    return rows, effects, notes


def table_ii(quick):
    rows, effects, notes = describe_plain(quick)
    found = search(quick)
    for (place, chain), published in PUBLISHED.items():
        for model in ("tf-idf", "learned"):
            values = found[place, model, chain]
            name = f"{model}, {place} words" if place == "own" else f"{model}, {place}"
            rows.append([f"{name}, {chain}", published, *cells_of(values)])
        key = published[0]
        if key != "m":  # measured by `describe_plain`
            pair = (column(found[place, m, chain]) for m in ("learned", "tf-idf"))
            effects[key] = compare(*pair)
    gains = {
        chain: np.subtract(
            *(column(found["own", m, chain]) for m in ("learned", "tf-idf"))
        )
        for chain in ("plain", "SR, QE")
    }
    effects["reduced"] = compare(gains["plain"], gains["SR, QE"])
    for key, descriptor in (("i", "sift"), ("pictures", "rootsift")):
        values = measure_pictures(descriptor, quick)
        effects[key] = compare(column(values["learned"]), column(values["tf-idf"]))
        published = "i: 0.657, 0.790" if key == "i" else ""
        rows += [
            [f"{name}, 80 pictures, {descriptor}", published, *cells_of(of_name)]
            for name, of_name in values.items()
        ]
    return Result(["", "published mAP", *MEASURES], rows, effects, notes)


def table_iii(quick):
    found = search(quick)
    published = {
        ("own", "soft assignment", "SR, QE"): "a: 0.825 (Oxford5K)",
        ("own", "tf-idf", "k-reciprocal"): "b: 0.803",
        ("own", "learned", "SR, QE"): "g: 0.908",
        ("other", "learned", "SR, QE"): "i: 0.792",
    }
    rows = [
        [", ".join(key), figure, *cells_of(found[key])]
        for key, figure in published.items()
    ]
    soft, reciprocal, ours, independent = (column(found[key]) for key in published)
    return Result(
        ["words, model, steps", "published mAP", *MEASURES],
        rows,
        {
            "soft": compare(ours, soft),
            "reciprocal": compare(ours, reciprocal),
            "independent": compare(ours, independent),
        },
        ["All words are RootSIFT words; rows a to c of the paper are of SIFT words."],
    )


def figure_2(quick):
    X, y, is_query, _ = load_images(quick)
    labels = np.unique(y[is_query])
    found = {
        name: np.array(
            [
                [
                    measure(fit(quick, s, k), X, y, query_mask=is_query & (y == label))[
                        "mAP"
                    ]
                    for label in labels
                ]
                for s in seeds(quick)
            ]
        )
        for name, k in (("tf-idf", None), ("learned", 2))
    }
    gains = found["learned"] - found["tf-idf"]
    sizes = np.array([np.count_nonzero(y == label) for label in labels])
    rows = [
        [f"landmark {label}", str(sizes[i])]
        + [spread(of[:, i]) for of in (*found.values(), gains)]
        for i, label in enumerate(labels)
    ]
    effects = {"all": effect(gains.min(axis=1))}
    return Result(["", "images", "tf-idf", "learned", "gain"], rows, effects)


def figure_3(quick):
    X, y, _, _ = load_images(quick)
    rows, areas = [], {}
    for name, k in (("tf-idf", None), ("learned", 2)):
        matching, other = [], []
        for seed in seeds(quick):
            unseen = unseen_rows(quick, seed)
            S = fit(quick, seed, k).similarity(X[unseen])
            above = np.triu_indices(len(unseen), 1)
            match = (y[unseen][:, None] == y[unseen])[above]
            matching.append(S[above][match])
            other.append(S[above][~match])
        areas[name] = [
            roc_auc_score(np.repeat([1, 0], [len(m), len(o)]), np.concatenate([m, o]))
            for m, o in zip(matching, other, strict=True)
        ]
        for kind, parts in (("matching", matching), ("other", other)):
            quantiles = np.quantile(np.concatenate(parts), [0.08, 0.5, 0.92])
            cells = [f"{quantile:.3f}" for quantile in quantiles]
            rows.append([f"{name}, {kind} pairs", *cells, spread(areas[name])])
    return Result(
        ["similarity", "8 %", "50 %", "92 %", "area under ROC"],
        rows,
        {"overlap": compare(areas["learned"], areas["tf-idf"])},
        ["Pairs of images that were not in training."],
    )


def figure_4(quick):
    values = {
        k: [score(fit(quick, seed, k), quick) for seed in seeds(quick)]
        for k in (None, *NEIGHBORS)
    }
    rows = [
        ["tf-idf" if k is None else f"k = {k}", *cells_of(of_k)]
        for k, of_k in values.items()
    ]
    of = {k: np.array(column(of_k)) for k, of_k in values.items()}
    curve = [(k, of[k].mean()) for k in NEIGHBORS]
    return Result(
        ["", *MEASURES],
        rows,
        {
            "one": compare(of[1], of[0]),
            "saturates": effect((of[2] - of[0]) / 2 - (of[3] - of[2])),
        },
        panels=[Panel("", "neighbours per word", "mAP", {"learned": curve})],
    )


def make_large(quick, seed=0):
    """Return images, labels and words the size of Oxford5K, or small ones."""
    if not quick:
        return make_oxford()
    data = make_visual_words(
        n_objects=8,
        n_images_per_object=10,
        n_distractors=200,
        n_words=8000,
        group_size=16,
        n_dims=8,
        random_state=seed,
    )
    return data.data, data.target, data.words


def unevenness(steps):
    """Return half of the mean step minus the largest difference from it."""
    steps = np.asarray(steps, dtype=float)
    return steps.mean() / 2 - np.abs(steps - steps.mean()).max()


def figure_5(quick):
    X, y, words = make_large(quick)
    queries = np.flatnonzero(y >= 0)[:55]
    searches = []
    for k in NEIGHBORS:
        # One step changes all entries of the support, as learning does.
        model = SparseMahalanobisLearner.from_paper(
            words=link_words(words, k), holdout=None, max_iter=1
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model.fit(X[:800], y[:800])
        searches.append(
            (products_with(model.transform_database(X)), model.transform(X[queries]))
        )
    # A repeat is the shortest of many calls, all numbers of neighbours in turn: other
    # processes only lengthen a call.
    calls = np.zeros((5 if quick else 60, len(NEIGHBORS), 2 if quick else 6))
    for call, place, repeat in np.ndindex(calls.shape):
        products, Q = searches[place]
        start = time.process_time()
        products(Q)
        calls[call, place, repeat] = time.process_time() - start
    times = 1e3 * calls.min(axis=0) / len(queries)
    rows = [
        [f"k = {k}", f"{Q.nnz / len(queries):,.0f}", spread(of_k, 3)]
        for k, (_, Q), of_k in zip(NEIGHBORS, searches, times, strict=True)
    ]
    steps = np.diff(times, axis=0)
    curve = [(k, of_k.mean()) for k, of_k in zip(NEIGHBORS, times, strict=True)]
    return Result(
        ["", "words per query", "ms per query"],
        rows,
        {
            "grows": effect(steps.min(axis=0), "repeats"),
            "linear": effect([unevenness(s) for s in steps.T], "repeats"),
        },
        [
            "Processor time of 55 queries, the number in the paper, one thread; the "
            f"shortest of {len(calls)} calls."
        ],
        [Panel("", "neighbours per word", "ms per query", {"ours": curve})],
    )


class Trace(FitCallback):
    """Callback that measures the matrix after some of the iterations."""

    def __init__(self, quick, iterations):
        self.quick, self.iterations, self.n_iter = quick, iterations, 0
        self.scores = []

    def on_fit_task_end(self, estimator, context, *, fitted_estimator):
        if context.task_name == "iteration":
            self.n_iter += 1
            if self.n_iter in self.iterations:
                self.scores.append(score(fitted_estimator, self.quick)["mAP"])
        return False


def trace(quick, seed, iterations):
    """Return mAP at the start, after these iterations, and of the matrix that is kept.

    All of them learn without the held-out images, which choose the last one.
    """
    X, y, is_query, words = load_images(quick)
    train, seen = split_paris(is_query, seed), Trace(quick, iterations)
    params = {"holdout": 1} if quick else {}
    learner = SparseMahalanobisLearner.from_paper(
        words=words, max_iter=iterations[-1], tol=0, n_jobs=2, random_state=seed
    ).set_params(**params)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # few held-out images
        learner.set_callbacks(seen).fit(X[train], y[train])
    start = score(fit(quick, seed, None), quick)["mAP"]
    # The matrix no longer changes if the solver ends before the last iteration.
    rest = [seen.scores[-1]] * (len(iterations) - len(seen.scores))
    return [start, *seen.scores, *rest, score(learner, quick)["mAP"]]


def figure_6(quick):
    iterations = (1, 2, 5) if quick else (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100)
    values = np.array([trace(quick, seed, iterations) for seed in seeds(quick)])
    curves, kept = values[:, :-1], values[:, -1]
    total = curves.sum(axis=0)
    # The peak of the other runs.
    peaks = np.array([curve[np.argmax(total - curve)] for curve in curves])
    labels = [*map(str, (0, *iterations)), "chosen by held-out images"]
    rows = [[name, spread(of)] for name, of in zip(labels, values.T, strict=True)]
    points = list(zip((0, *iterations), curves.mean(axis=0), strict=True))
    return Result(
        ["iterations", "mAP"],
        rows,
        {
            "rises": compare(peaks, curves[:, 0]),
            "falls": compare(peaks, curves[:, -1]),
            "held_out": compare(kept, curves[:, -1]),
        },
        panels=[Panel("", "iterations", "mAP", {"learned": points})],
    )


def table_iv(quick):
    n_iterations, runs = (2, 2) if quick else (5, 6)
    unknowns, seconds = (np.zeros((runs, len(NEIGHBORS))) for _ in range(2))
    for seed in range(runs):
        data = make_visual_words(
            n_objects=11,
            n_images_per_object=20,
            n_distractors=200 if quick else 400,
            n_words=8000 if quick else 32_000,
            n_words_per_object=300 if quick else 1500,
            n_clutter=100 if quick else 400,
            group_size=16,
            n_dims=32,
            random_state=seed,
        )
        for place, k in enumerate(NEIGHBORS):
            model = SparseMahalanobisLearner.from_paper(
                words=link_words(data.words, k),
                holdout=None,
                max_iter=n_iterations,
                tol=0,
                random_state=seed,
            )
            start = time.process_time()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ConvergenceWarning)
                model.fit(data.data, data.target)
            seconds[seed, place] = time.process_time() - start
            n_words = data.data.shape[1]
            unknowns[seed, place] = (model.support_.nnz + n_words) / 2000
    rows = []
    for place, k in enumerate(NEIGHBORS):
        thousands, hours = PUBLISHED_UNKNOWNS[k]
        cells = [spread(unknowns[:, place], 1), spread(seconds[:, place], 2)]
        rows.append([f"k = {k}", f"{thousands}, {hours} h", *cells])
    return Result(
        ["", "published, Oxford5K", "unknowns, thousand", "s of processors"],
        rows,
        {
            "unknowns": effect([unevenness(np.diff(u)) for u in unknowns]),
            "time": effect([unevenness(np.diff(s)) for s in seconds]),
        },
        [
            f"{data.data.shape[0]} synthetic images, {n_words:,} words, {n_iterations} "
            "iterations."
        ],
    )
