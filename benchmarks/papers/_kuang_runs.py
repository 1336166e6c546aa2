"""Kuang, Sun and Wong: measurements on MNIST."""

from functools import cache

import numpy as np

from benchmarks.papers._frame import Panel, Result, compare, effect
from benchmarks.papers._kuang_models import (
    LEVELS,
    find_medoids,
    learn,
    load_cifar,
    load_images,
)
from benchmarks.papers._kuang_web import figure_8, table_2  # noqa: F401
from benchmarks.papers._measures import (
    MEASURES,
    RANKS,
    cells_of,
    column,
    first_page,
    spread,
)
from benchmarks.papers.kuang import KINDS, PROTOCOLS, PUBLISHED, RANDOM, SIZES
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.similarities import CosineSimilarity

SIGMAS = (0.0, 0.6, 0.9, 0.95, 0.97, 0.99)


def seeds(quick):
    return range(2 if quick else 5)


@cache
def draw(quick, seed, cifar=False):
    """Return queries and database with labels, and the references."""
    X, y = load_cifar() if cifar and not quick else load_images(quick)
    n_queries, n_items = (100, 900) if quick else (500, 20_000)
    order = np.random.default_rng(seed).permutation(len(X))
    queries, items = np.split(order[: n_queries + n_items], [n_queries])
    references = find_medoids(X[items], 60 if quick else 2250 if cifar else 1000, seed)
    return X[queries], y[queries], X[items], y[items], references


def ranks_of(quick):
    """Return the ranks of the precision; the last is the 1,000 of the paper."""
    return (*RANKS, 300, 500) if quick else (*RANKS, 300, 1000)


@cache
def measured(quick, seed, n, cifar=False, **params):
    """Return measures of one setting, or of the Euclidean distance if n is None."""
    Q, y_query, X, y, references = draw(quick, seed, cifar)
    if n is None:
        model = CosineSimilarity(use_idf=False).fit(X[:2])
    else:
        model = learn(X, y, references, n, **params)
    report = retrieval_report(
        model,
        Q,
        y_query,
        X_database=X,
        y_database=y,
        k=ranks_of(quick),
        recall_levels=LEVELS,
        n_jobs=2,
    )
    values = {"mAP": report["average_precision"].mean()}
    values |= {f"P@{k}": report[f"precision_at_{k}"].mean() for k in ranks_of(quick)}
    return values | {"curve": report["precision_recall"].mean(axis=0)}


def over_seeds(quick, name, n, protocol, cifar=False):
    """Return measures of a method in a protocol for each draw."""
    options = {**PROTOCOLS, **RANDOM}[protocol].copy()
    if name == "Euclidean":
        n, options = None, {}
    elif name != "angular":
        options["sigma"] = 0.0
    if name == "QI-RSVM":
        options["query_dependent"] = False
    return [measured(quick, seed, n, cifar, **options) for seed in seeds(quick)]


def table_1(quick):
    sizes = SIZES[::3] if quick else SIZES
    rows, effects, notes = [], {}, []
    names = (*MEASURES, f"P@{ranks_of(quick)[-1]}")
    for protocol in (*PROTOCOLS, *RANDOM):
        values = {
            (name, n): over_seeds(quick, name, n, protocol)
            for name in PUBLISHED
            for n in sizes
        }
        near = []
        for (name, n), of_cell in values.items():
            if name == "Euclidean" and n != sizes[-1]:
                continue
            published = PUBLISHED[name][SIZES.index(n)]
            label = name if name == "Euclidean" else f"{name}, N = {n}"
            cells = [f"{published:.3f}", *cells_of(of_cell, names)]
            rows.append([f"{protocol}: {label}", *cells])
            if abs(np.mean(column(of_cell)) - published) < 0.02:
                near.append(label)
        found = "; ".join(near) or "none"
        notes.append(f"{protocol}, within 0.02 of the published mAP: {found}.")
        notes += first_page(
            f"{protocol}, N = 50: the angular ranker against Euclidean",
            values["angular", sizes[-1]],
            values["Euclidean", sizes[-1]],
        )
        if protocol in RANDOM:
            continue
        scores = {key: np.array(column(of)) for key, of in values.items()}
        for n in sizes:
            pair = scores["angular", n], scores["QD-RSVM", n]
            effects[f"{protocol} QD {n}"] = compare(*pair)
        for name in ("Euclidean", "QI-RSVM"):
            pair = scores["angular", sizes[-1]], scores[name, sizes[-1]]
            effects[f"{protocol} {name}"] = compare(*pair)
        if "0.99" not in protocol:
            pair = scores["Euclidean", sizes[0]], scores["QD-RSVM", sizes[0]]
            effects[f"{protocol} over-fits"] = compare(*pair)
    return Result(["", "published mAP", *names], rows, effects, notes)


def figure_4(quick):
    Q, y_query, X, y, references = draw(quick, 0)
    published = {0.0: "0.724, 1.339", 0.6: "0.818, 0.959", 0.95: "3.397, 0.209"}
    rows, effects = [], {}
    for kind in KINDS:
        angles, lengths, top = [], [], []
        for sigma, figures in published.items():
            model = learn(X, y, references, 10, candidates=kind, sigma=sigma)
            report = retrieval_report(
                model, Q, y_query, X_database=X, y_database=y, k=(10,)
            )
            angles.append(model.angles_)
            lengths.append(model.norms_)
            top.append(report["precision_at_10"])
            # A reference whose samples are all of one kind has no triplets.
            learned = model.n_triplets_ > 0
            cells = [np.median(v[learned]) for v in (model.norms_, model.angles_)]
            cells.append(np.mean(top[-1]))
            rows.append(
                [f"{kind}, sigma {sigma}", figures, *(f"{c:.3f}" for c in cells)]
            )
        angles, lengths = (np.array(v)[:, learned] for v in (angles, lengths))
        for step in (0, 1):
            pair = angles[step], angles[step + 1]
            effects[f"{kind} angle {step}"] = compare(*pair, "references")
            pair = lengths[step + 1], lengths[step]
            effects[f"{kind} length {step}"] = compare(*pair, "references")
        effects[f"{kind} top"] = compare(top[2], top[0], "queries")
    return Result(
        [
            "10 labels",
            "published length, angle of one query",
            "length",
            "angle",
            "P@10",
        ],
        rows,
        effects,
        ["First draw; medians over the references that learned."],
    )


def figure_5(quick):
    sizes, sigmas = (SIZES[::3], SIGMAS[::3]) if quick else (SIZES, SIGMAS)
    last = f"P@{ranks_of(quick)[-1]}"
    rows, effects, panels = [], {}, []
    for kind in KINDS:
        values = {
            (n, s): [
                measured(quick, seed, n, candidates=kind, sigma=s)
                for seed in seeds(quick)
            ]
            for n in sizes
            for s in sigmas
        }
        scores = {
            (what, n): np.array([column(values[n, s], what) for s in sigmas])
            for what in ("mAP", last)
            for n in sizes
        }
        rows += [
            [f"{kind}, N = {n}, {what}", *(spread(of) for of in scores[what, n])]
            for what in ("mAP", last)
            for n in sizes
        ]
        few, many = sizes[0], sizes[-1]
        high = sigmas.index(0.95)
        gains = {n: scores["mAP", n][high] - scores["mAP", n][0] for n in sizes}
        effects[f"{kind} fewer"] = compare(gains[few], gains[many])
        effects[f"{kind} works"] = effect(np.mean(list(gains.values()), axis=0))
        best = {key: np.array(sigmas)[of.argmax(axis=0)] for key, of in scores.items()}
        effects[f"{kind} best"] = compare(best["mAP", few], best["mAP", many])
        effects[f"{kind} best P@1000"] = compare(best[last, many], best[last, few])
        panels += [
            Panel(
                kind,
                "sigma",
                what,
                {
                    f"N = {n}": list(
                        zip(sigmas, scores[what, n].mean(axis=1), strict=True)
                    )
                    for n in sizes
                },
            )
            for what in ("mAP", last)
        ]
    header = ["", *(f"sigma = {sigma}" for sigma in sigmas)]
    return Result(header, rows, effects, panels=panels)


def figure_6(quick):
    rows, effects, notes, panels = [], {}, [], []
    columns = (*MEASURES, *(f"P@{k}" for k in ranks_of(quick)[-2:]))
    for protocol in PROTOCOLS:
        values = {n: over_seeds(quick, n, 50, protocol) for n in PUBLISHED}
        ours, plain = values["angular"], values["Euclidean"]
        rows += [
            [f"{protocol}: {name}", *cells_of(of_name, columns)]
            for name, of_name in values.items()
        ]
        for name in ("Euclidean", "QI-RSVM", "QD-RSVM"):
            ratio = np.divide(column(ours, "P@300"), column(values[name], "P@300"))
            effects[f"{protocol} {name}"] = effect(ratio - 1)
        for k in (1, 10, 50, 1000):
            what = f"P@{ranks_of(quick)[-1] if k == 1000 else k}"
            pair = column(ours, what), column(plain, what)
            effects[f"{protocol} P@{k}"] = compare(*pair)
        notes += first_page(f"{protocol}: the angular ranker", ours, plain)
        panels += curves_panels(protocol, values, ranks_of(quick))
    return Result(["50 labels", *columns], rows, effects, notes, panels)


def figure_7(quick):
    published = dict(zip(PUBLISHED, (0.205, 0.194, 0.193, 0.189), strict=True))
    rows, effects, panels = [], {}, []
    for protocol in PROTOCOLS:
        values = {
            name: over_seeds(quick, name, 50, protocol, cifar=True)
            for name in published
        }
        rows += [
            [f"{protocol}: {name}", f"{published[name]:.3f}", *cells_of(of_name)]
            for name, of_name in values.items()
        ]
        for name in ("Euclidean", "QI-RSVM", "QD-RSVM"):
            pair = column(values["angular"]), column(values[name])
            effects[f"{protocol} {name}"] = compare(*pair)
        panels += curves_panels(protocol, values, ranks_of(quick))[:1]
    return Result(["", "published mAP", *MEASURES], rows, effects, panels=panels)


def curves_panels(title, values, ranks):
    """Return recall and precision, and precision by rank, as the paper draws them."""
    by_recall = {
        name: list(zip(LEVELS, np.mean(column(v, "curve"), axis=0), strict=True))
        for name, v in values.items()
    }
    by_rank = {
        name: [(k, np.mean(column(v, f"P@{k}"))) for k in ranks]
        for name, v in values.items()
    }
    return [
        Panel(title, "recall", "precision", by_recall),
        Panel(title, "rank R", "precision at R", by_rank),
    ]
