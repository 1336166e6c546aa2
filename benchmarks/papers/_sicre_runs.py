"""Sicre and Jegou: measurements on photographs of Paris and on UKbench."""

from functools import cache

import numpy as np
from _common import as_counts, load
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from benchmarks.papers._frame import Panel, Result, compare, effect
from benchmarks.papers._measures import MEASURES, RANKS, first_page
from benchmarks.papers._pictures import load_pictures
from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn._core.rows import power, unit_rows
from sklearn_simlearn.feature_extraction import (
    VLAD,
    LocalDescriptors,
    TriangulationEmbedding,
)
from sklearn_simlearn.metrics import (
    average_precision,
    precision_at_k,
    precision_recall_curve,
)
from sklearn_simlearn.model_selection import make_query_sets

METHODS = {
    "average": MemoryVectorQuery(method="sum"),
    "memory": MemoryVectorQuery.from_paper(),
    "default": MemoryVectorQuery(),
}
DIMS = (64, 128, 256, 512)
SHORT = DIMS[1:]
LEVELS = np.linspace(0, 1, 41)

# mAP of averaging and of memory vectors, Oxford5k / Oxford105k.
PUBLISHED_FULL = {
    "VLAD 256c": "0.721, 0.727 / 0.685, 0.691",
    "CNN full": "0.603, 0.619 / 0.581, 0.589",
}
PUBLISHED_TRIDD = "0.792, 0.792 / 0.768, 0.769"
# The same for Paris6k / Paris106k.
PUBLISHED_PARIS = {
    "VLAD 256c": "0.654, 0.661 / 0.521, 0.529",
    "VLAD-3c 128": "0.565, 0.569 / 0.544, 0.543",
    "VLAD-3c 256": "0.598, 0.607 / 0.574, 0.577",
    "VLAD-3c 512": "0.629, 0.640 / 0.606, 0.615",
    "CNN full": "0.689, 0.689 / 0.608, 0.605",
    "CNN 128": "0.749, 0.752 / 0.658, 0.658",
    "CNN 256": "0.763, 0.769 / 0.680, 0.685",
    "CNN 512": "0.767, 0.775 / 0.685, 0.692",
}
HEADER = ["", "published", *(f"{m}: mAP P@1 P@10 P@50" for m in METHODS), "gain"]


def reduce(name, X):
    """Return X after PCA to several numbers of dimensions."""
    return {
        f"{name} {d}": PCA(d, random_state=0).fit_transform(X)
        for d in DIMS
        if d <= min(X.shape)
    }


def root(X):
    """Return power-normalised rows, as in the paper."""
    return power(X.astype(np.float64), 0.5)


def word_descriptors(arrays, words):
    """Return the word vectors of each image, repeated by the counts."""
    X, words = as_counts(arrays, np.int64), words.astype(np.float32)
    rows = (slice(*X.indptr[i : i + 2]) for i in range(X.shape[0]))
    return [words[np.repeat(X.indices[row], X.data[row])] for row in rows]


def load_small(y):
    """Return digits as a replacement for all representations."""
    X, _ = load_digits(return_X_y=True)
    X = X[: len(y)]
    names = [f"{name} {d}" for name in ("CNN", "VLAD", "VLAD-3c") for d in DIMS]
    return dict.fromkeys(("CNN full", "VLAD 256c", *names), X)


@cache
def load_paris(quick):
    """Return objects, mask of queries, and vectors by name; background is -1."""
    if quick:
        y = np.where(np.arange(400) < 300, load_digits().target[:400], -1)
        return y, np.arange(400) < 50, load_small(y)
    paris, other = load("paris_subset_cnn.npz"), load("ukbench1000_cnn.npz")
    y = np.append(paris["y"].astype(np.int64), np.full(len(other["feat"]), -1))
    is_query = np.append(paris["is_query"], np.zeros(len(other["feat"]), dtype=bool))
    X = root(np.concatenate([paris["feat"], other["feat"]]))
    vectors = {"CNN full": X, **reduce("CNN", X)}
    words = load("ukbench1000_codebook20k.npz")["centroids"]
    other = word_descriptors(load("ukbench1000_bovw20k.npz"), words)
    paris = load("paris_subset_bovw20k.npz")
    images = word_descriptors(paris, paris["words"]) + other
    parts = [
        VLAD(n, power=1, intra_normalize=False, n_jobs=2, random_state=0)
        .fit(other[::4])
        .transform(images)
        for n in (16, 64, 256)
    ]
    vectors["VLAD 256c"] = root(parts[-1])
    vectors |= reduce("VLAD-3c", root(np.concatenate(parts, axis=1)))
    return y, is_query, vectors


@cache
def load_ukbench(quick):
    """Return objects and vectors by name."""
    if quick:
        y = np.arange(400) // 4
        return y, load_small(y)
    cnn, vlad = load("ukbench1000_cnn.npz"), load("ukbench1000_vlad64.npz")
    X, Z = root(cnn["feat"]), vlad["pca512"].astype(np.float64)
    vectors = {"CNN full": X, **reduce("CNN", X), **reduce("VLAD", Z)}
    return cnn["group"].astype(np.int64), vectors


@cache
def load_tridd(quick):
    """Return objects, and tridD and CNN vectors of the pictures of UKbench."""
    if quick:
        X, y = load_digits().data[:80], np.arange(80) // 4
        return y, {"tridD": X, "CNN": X}
    pictures, y = load_pictures()
    features = LocalDescriptors(n_jobs=2).fit_transform(pictures)
    tridd = TriangulationEmbedding(16, n_jobs=2, random_state=0).fit_transform(features)
    cnn = root(load("ukbench1000_cnn.npz")["feat"][: len(y)])
    return y, {"tridD": tridd.astype(np.float64), "CNN": cnn}


def measure_sets(relevant, S):
    """Return AP and precision at 1, 10 and 50 of each set."""
    return np.stack(
        [average_precision(relevant, S)]
        + [precision_at_k(relevant, S, k) for k in RANKS]
    )


def rank_sets(memory, X, y, groups, in_set, measured=measure_sets):
    """Measure each set, which searches the images outside of it."""
    S = memory.similarity(X[in_set], X, groups[in_set])
    _, first, number = np.unique(groups[in_set], return_index=True, return_inverse=True)
    relevant = (y[in_set][first, None] == y).astype(np.int8)
    relevant[number, np.flatnonzero(in_set)] = -1
    return measured(relevant, S)


def compare_methods(X, y, groups, in_set):
    """Return the measures of each set by method."""
    return {
        name: rank_sets(clone(memory).fit(X), X, y, groups, in_set)
        for name, memory in METHODS.items()
    }


def by_turns(X, y):
    """Return measures where three images of an object query for the fourth."""
    turns = [
        compare_methods(X, y, y, np.arange(len(y)) % 4 != left) for left in range(4)
    ]
    return {m: np.mean([turn[m] for turn in turns], axis=0) for m in METHODS}


@cache
def on_paris(quick, name, background):
    """Return measures of random sets of five photographs."""
    y, _, vectors = load_paris(quick)
    kept = (y >= 0) | background
    groups = make_query_sets(y[kept], 5, random_state=0)
    return compare_methods(vectors[name][kept], y[kept], groups, groups >= 0)


def gain_of(values):
    """Return the gain of the memory vector over the average, by set."""
    return values["memory"][0] - values["average"][0]


def row_of(name, published, values):
    cells = [
        " ".join(f"{value:.3f}" for value in np.nanmean(of, axis=1))
        for of in values.values()
    ]
    return [name, published, *cells, f"{gain_of(values).mean():+.4f}"]


def note_first_page(found):
    """Return notes on gains that cost precision at rank 1 or 10."""
    notes = []
    for name, values in found.items():
        means = {
            m: [dict(zip(MEASURES, np.nanmean(values[m], axis=1), strict=True))]
            for m in ("memory", "average")
        }
        notes += first_page(name, means["memory"], means["average"])
    return notes


def figure_1(quick):
    y, _, vectors = load_paris(quick)
    sets = make_query_sets(y, 5, random_state=0)
    objects, of_pictures = load_tridd(quick)
    shown = {
        "cnn": ("CNN 512", vectors["CNN 512"], sets),
        "vlad": ("VLAD-3c 512", vectors["VLAD-3c 512"], sets),
        "tridd": ("tridD", of_pictures["tridD"], objects),
    }
    rows, effects = [], {}
    for key, (name, X, groups) in shown.items():
        X, correlations = unit_rows(X), []
        for group in np.unique(groups[groups >= 0]):
            gram = X[groups == group] @ X[groups == group].T
            weights = np.linalg.lstsq(gram, np.ones(len(gram)), rcond=None)[0]
            others = (gram.sum(axis=1) - 1) / (len(gram) - 1)
            correlations.append(-stats.spearmanr(weights, others).statistic)
            if group == groups[groups >= 0].min():
                rows += [
                    [name, f"{weight:.2f}", " ".join(f"{g:.2f}" for g in row)]
                    for weight, row in zip(weights, gram, strict=True)
                ]
        effects[key] = effect(correlations, "sets")
    return Result(["first set", "weight", "row of the Gram matrix"], rows, effects)


def by_recall(curve):
    return list(zip(LEVELS, curve, strict=True))


def figure_2(quick):
    y, is_query, vectors = load_paris(quick)
    X = vectors["CNN 512"]

    def curves_of(relevant, S):
        curve, _ = precision_recall_curve(
            relevant, S, recall_levels=LEVELS, average=False
        )
        return measure_sets(relevant, S), curve

    values = {
        name: rank_sets(clone(memory).fit(X), X, y, y, is_query, curves_of)
        for name, memory in METHODS.items()
    }
    rows, panels, single_ap = [], [], []
    unit = unit_rows(X)
    for place, label in enumerate(np.unique(y[is_query])):
        own = np.flatnonzero(is_query & (y == label))
        # A single query searches what the set of them searches.
        relevant = np.tile(y == label, (len(own), 1)).astype(np.int8)
        relevant[:, own] = -1
        single, single_curves = curves_of(relevant, unit[own] @ unit.T)
        single_ap.append(single[0].mean())
        cells = [single_ap[-1], *(of[0][place] for of, _ in values.values())]
        rows.append([f"object {label}", *(f"{cell:.3f}" for cell in cells)])
        panels.append(
            Panel(
                f"object {label}",
                "recall",
                "precision",
                {m: by_recall(values[m][1][place]) for m in ("average", "memory")},
                {"single queries": [by_recall(curve) for curve in single_curves]},
            )
        )
    memory, average = (values[m][0][0] for m in ("memory", "average"))
    return Result(
        ["object", "one query, mean", *METHODS],
        rows,
        {"sum": compare(memory, average, "objects")},
        [
            f"Both are better than single queries, whose mean AP is "
            f"{np.mean(single_ap):.3f}; the paper claims a gain over the sum."
        ],
        panels[:6],
    )


def mean_gains(quick, names, background):
    """Return the mean gain over several representations, by set."""
    found = [gain_of(on_paris(quick, name, background)) for name in names]
    return np.mean(found, axis=0)


def table_1(quick):
    found = {
        f"{name}, with background" if background else name: on_paris(
            quick, name, background
        )
        for background in (False, True)
        for name in PUBLISHED_FULL
    }
    rows = [row_of(n, PUBLISHED_FULL.get(n, ""), v) for n, v in found.items()]
    gains = {name: gain_of(values) for name, values in found.items()}
    names = {"cnn": "CNN full", "vlad": "VLAD 256c"}
    effects = {k: effect(gains[n], "sets") for k, n in names.items()}
    effects |= {
        f"{k}_background": effect(gains[f"{n}, with background"], "sets")
        for k, n in names.items()
    }
    effects["largest"] = compare(gains["CNN full"], gains["VLAD 256c"], "sets")
    y, vectors = load_tridd(quick)
    pictures = {name: by_turns(X, y) for name, X in vectors.items()}
    rows += [
        row_of(f"{n}, 80 pictures", PUBLISHED_TRIDD if n == "tridD" else "", values)
        for n, values in pictures.items()
    ]
    memory, average = (pictures["tridD"][m][0] for m in ("memory", "average"))
    effects["tridd"] = compare(memory, average, "objects")
    return Result(HEADER, rows, effects, note_first_page(found))


def table_2(quick):
    y, vectors = load_ukbench(quick)
    names = ["CNN full", *(f"{n} {d}" for n in ("CNN", "VLAD") for d in SHORT)]
    found = {name: by_turns(vectors[name], y) for name in names}
    rows = [row_of(name, "", values) for name, values in found.items()]
    gains = {name: gain_of(values) for name, values in found.items()}
    cnn, vlad = (
        np.mean([gains[f"{name} {d}"] for d in SHORT], axis=0)
        for name in ("CNN", "VLAD")
    )
    return Result(
        HEADER,
        rows,
        {
            "cnn": effect(cnn, "objects"),
            "vlad": effect(vlad, "objects"),
            "short": compare(cnn, gains["CNN full"], "objects"),
            "especially": compare(cnn, vlad, "objects"),
        },
        note_first_page(found),
    )


def figure_3(quick):
    y, vectors = load_ukbench(quick)
    found = {
        "Paris": {d: on_paris(quick, f"CNN {d}", False) for d in DIMS},
        "Paris, background": {d: on_paris(quick, f"CNN {d}", True) for d in DIMS},
        "UKbench": {d: by_turns(vectors[f"CNN {d}"], y) for d in DIMS},
    }
    rows, panels = [], []
    for title, of_dims in found.items():
        rows += [row_of(f"{title}, {d}", "", v) for d, v in of_dims.items()]
        curves = {
            m: [(d, np.nanmean(v[m][0])) for d, v in of_dims.items()]
            for m in ("average", "memory")
        }
        panels.append(Panel(title, "dimensions", "mAP", curves))
    gains = {
        d: np.concatenate([gain_of(of_dims[d]) for of_dims in found.values()])
        for d in DIMS
    }
    return Result(
        HEADER,
        rows,
        {
            "more": compare(gains[512], gains[64], "sets"),
            "effective": effect(np.mean([gains[d] for d in SHORT], axis=0), "sets"),
        },
        [describe_ratio()],
        panels,
    )


def describe_ratio(d=64, cosine=0.5):
    """Return the share of unrelated items above a related one, by queries per set."""
    rng = np.random.default_rng(0)
    parts = []
    for n in (5, 20, 64):
        n_sets = 200
        X = unit_rows(rng.standard_normal((n_sets * n, d)))
        groups = np.repeat(np.arange(n_sets), n)
        z = unit_rows(rng.standard_normal((n_sets, d)))
        related = unit_rows(cosine * X[::n] + np.sqrt(1 - cosine**2) * z)
        unrelated = unit_rows(rng.standard_normal((2000, d)))
        above = {}
        for name, memory in METHODS.items():
            M = clone(memory).fit_transform(X, groups=groups)
            own = np.einsum("ij,ij->i", M, related)
            above[name] = np.mean(own[:, None] < M @ unrelated.T)
        shares = " and ".join(f"{above[m]:.3f}" for m in ("average", "memory"))
        parts.append(f"{shares} with n = {n}")
    return (
        "The paper explains 64 dimensions by the ratio of n queries to d dimensions. "
        "Random directions, d = 64, an item at cosine 0.5 to one of n queries: share "
        f"of unrelated items above it, average and memory, {'; '.join(parts)}."
    )


def table_3(quick):
    rows, effects, found = [], {}, {}
    groups = {
        "cnn": [f"CNN {d}" for d in SHORT],
        "vlad3c": [f"VLAD-3c {d}" for d in SHORT],
        "vlad": ["VLAD 256c"],
    }
    for background in (False, True):
        for name, published in PUBLISHED_PARIS.items():
            label = f"{name}, with background" if background else name
            found[label] = on_paris(quick, name, background)
            rows.append(row_of(label, "" if background else published, found[label]))
        for key, names in groups.items():
            key = f"{key}_background" if background else key
            effects[key] = effect(mean_gains(quick, names, background), "sets")
    short = mean_gains(quick, groups["cnn"], False)
    effects["short"] = compare(short, gain_of(found["CNN full"]), "sets")
    return Result(HEADER, rows, effects, note_first_page(found))
