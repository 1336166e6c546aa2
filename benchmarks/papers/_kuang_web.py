"""Kuang, Sun and Wong, Table 2 and Figure 8: many items in a static index."""

from functools import cache

import numpy as np
from sklearn.utils import gen_batches

from benchmarks.papers._frame import Panel, Result, compare
from benchmarks.papers._kuang_models import (
    LEVELS,
    find_medoids,
    grow_tree,
    learn,
    load_images,
)
from benchmarks.papers._measures import MEASURES, RANKS, cells_of, column, first_page
from benchmarks.papers.kuang import PROTOCOLS, WEB_PROTOCOLS
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn.metrics import (
    average_precision,
    precision_at_k,
    precision_recall_curve,
)

PROBES = (5, 10, 15, 20)
PUBLISHED_RECALL = {
    "angular": "0.371 0.451 0.506 0.545",
    "QD-RSVM": "0.221 0.275 0.321 0.350",
    "QI-RSVM": "0.311 0.409 0.474 0.518",
    "Euclidean": "0.328 0.412 0.468 0.511",
}
# mAP and P@50, Figure 8.
PUBLISHED_WEB = {
    "angular": "0.189, 0.551",
    "QD-RSVM": "0.117, 0.276",
    "QI-RSVM": "0.146, 0.456",
    "Euclidean": "0.139, 0.460",
}
METHODS = {
    "angular": {},
    "QD-RSVM": {"sigma": 0.0},
    "QI-RSVM": {"sigma": 0.0, "query_dependent": False},
}


def make_web(quick):
    """Return labelled images, then means of two of them as background."""
    X, y = load_images(quick, n_components=60)
    rng = np.random.default_rng(0)
    n_background = 3000 if quick else 230_000
    pairs = rng.integers(len(X), size=(2 * n_background, 2))
    pairs = pairs[y[pairs[:, 0]] != y[pairs[:, 1]]][:n_background]
    background = unit_rows(X[pairs[:, 0]] + X[pairs[:, 1]])
    items = np.concatenate([X, background]).astype(np.float32)
    return items, np.append(y, np.full(n_background, -1)), len(X)


@cache
def search_web(quick):
    """Return recall by lists probed and measures of each query, by method."""
    items, y, n_labelled = make_web(quick)
    order = np.random.default_rng(0).permutation(n_labelled)
    queries, rest = np.split(order, [50 if quick else 360])
    keep = np.ones(len(y), dtype=bool)
    keep[queries] = False
    Q, y_query, items, y = items[queries], y[queries], items[keep], y[keep]
    medoids = find_medoids(items[: len(rest)], 60 if quick else 2000, 0)
    trees = []
    for seed in range(3):
        tree = grow_tree(items, 30 if quick else 1000, seed)
        trees.append((tree, tree.search(items, 1)[1][:, 0]))
    found = {"Euclidean": (Q, y_query, items, y)}
    recall, ranked = {}, {}
    for protocol in WEB_PROTOCOLS:
        for name, params in METHODS.items():
            options = {**PROTOCOLS[protocol], **params}
            model = learn(items, y, medoids, 50, **options)
            found[protocol, name] = (model.transform(Q), y_query, items, y)
    for key, (surrogates, *_) in found.items():
        recall[key] = probe(trees, surrogates, y_query, y, len(rest))
        ranked[key] = rank(trees, surrogates, y_query, items, y)
    return recall, ranked


def find_lists(trees, surrogates, n_probes):
    """Yield for each tree the lists that each query probes, and the lists of items."""
    for tree, lists in trees:
        nearest = tree.search(np.ascontiguousarray(surrogates), n_probes)[1]
        is_probed = np.zeros((len(surrogates), tree.ntotal), dtype=bool)
        np.put_along_axis(is_probed, nearest, True, axis=1)
        yield is_probed, lists


def probe(trees, surrogates, y_query, y, n_labelled):
    """Return the share of relevant items in the probed lists, by probes and query."""
    relevant = y_query[:, None] == y[:n_labelled]
    recall = []
    for n_probes in PROBES:
        found = np.zeros(relevant.shape, dtype=bool)
        for is_probed, lists in find_lists(trees, surrogates, n_probes):
            found |= is_probed[:, lists[:n_labelled]]
        recall.append((found & relevant).sum(axis=1) / relevant.sum(axis=1))
    return np.array(recall)


def rank(trees, surrogates, y_query, items, y):
    """Return measures of each query over the items found, the others after them."""
    parts = []
    for block in gen_batches(len(surrogates), 40):
        S = surrogates[block] @ items.T
        found = np.zeros(S.shape, dtype=bool)
        for is_probed, lists in find_lists(trees, surrogates[block], PROBES[-1]):
            found |= is_probed[:, lists]
        S[~found] = -2.0  # below any cosine
        relevant = y_query[block, None] == y
        values = [average_precision(relevant, S, n_jobs=2)]
        values += [precision_at_k(relevant, S, k, n_jobs=2) for k in RANKS]
        curve, _ = precision_recall_curve(
            relevant, S, recall_levels=LEVELS, average=False, n_jobs=2
        )
        parts.append(np.column_stack([*values, curve]))
    found = np.concatenate(parts)
    values = dict(zip(MEASURES, found.T[: len(MEASURES)], strict=True))
    return values | {"curve": found[:, len(MEASURES) :]}


def by_method(found, protocol):
    """Return the values of a protocol by method, the Euclidean distance included."""
    values = {name: found[protocol, name] for name in METHODS}
    return {**values, "Euclidean": found["Euclidean"]}


def table_2(quick):
    recall, _ = search_web(quick)
    rows, effects = [], {}
    for protocol in WEB_PROTOCOLS:
        values = by_method(recall, protocol)
        for name, of_name in values.items():
            cells = [f"{r:.3f}" for r in of_name.mean(axis=1)]
            rows.append([f"{protocol}: {name}", PUBLISHED_RECALL[name], *cells])
        for place, k in ((0, 5), (-1, 20)):
            for name in ("Euclidean", "QD-RSVM", "QI-RSVM"):
                pair = values["angular"][place], values[name][place]
                effects[f"{protocol} {name} {k}"] = compare(*pair, "queries")
    header = ["", "published", *(f"{k} probes" for k in PROBES)]
    note = "An item is found if one of the trees has it in a list that is probed."
    return Result(header, rows, effects, [note])


def figure_8(quick):
    _, ranked = search_web(quick)
    rows, effects, notes, panels = [], {}, [], []
    for protocol in WEB_PROTOCOLS:
        values = by_method(ranked, protocol)
        means = {
            name: [{what: of.mean(axis=0) for what, of in of_name.items()}]
            for name, of_name in values.items()
        }
        for name in values:
            cells = [PUBLISHED_WEB[name], *cells_of(means[name])]
            rows.append([f"{protocol}: {name}", *cells])
        for what in ("mAP", "P@50"):
            for name in ("Euclidean", "QD-RSVM", "QI-RSVM"):
                pair = values["angular"][what], values[name][what]
                effects[f"{protocol} {name} {what}"] = compare(*pair, "queries")
        pair = values["Euclidean"]["mAP"], values["QD-RSVM"]["mAP"]
        effects[f"{protocol} worse"] = compare(*pair, "queries")
        pair = values["QD-RSVM"]["P@50"], values["QD-RSVM"]["P@1"]
        effects[f"{protocol} first"] = compare(*pair, "queries")
        ours, plain = means["angular"], means["Euclidean"]
        notes += first_page(f"{protocol}: the angular ranker", ours, plain)
        curves = {
            name: list(zip(LEVELS, column(of, "curve")[0], strict=True))
            for name, of in means.items()
        }
        panels.append(Panel(protocol, "recall", "precision", curves))
    return Result(["", "published mAP, P@50", *MEASURES], rows, effects, notes, panels)
