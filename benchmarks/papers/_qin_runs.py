"""Qin, Chen, Guillaumin and Van Gool: measurements on UKbench and Paris."""

import warnings
from functools import cache

import numpy as np
from _common import as_counts, load
from scipy import stats
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

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
from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.metrics import RetrievalScorer, retrieval_report
from sklearn_simlearn.model_selection import ObjectKFold, ObjectShuffleSplit
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

HAND_MADE = {
    "cosine": CosineSimilarity(),
    "burstiness": BurstinessSimilarity(),
    "negative evidence": NegativeEvidenceSimilarity(),
    "asymmetric": AsymmetricSimilarity(),
}
# N-S on the whole of UKbench and mAP on Oxford5k.
PUBLISHED_WHOLE = {
    "cosine": (3.42, 0.769),
    "burstiness": (3.46, 0.777),
    "negative evidence": (3.35, 0.771),
    "asymmetric": (3.30, 0.793),
}
# N-S and mAP over ten splits, and the number of splits on which each is best.
PUBLISHED_SPLITS = {
    "cosine": ("3.51 (0)", "0.819 (0)"),
    "burstiness": ("3.54 (0)", "0.826 (0)"),
    "negative evidence": ("3.44 (0)", "0.830 (0)"),
    "asymmetric": ("3.38 (0)", "0.839 (1)"),
    "learned": ("3.70 (10)", "0.870 (9)"),
}
COLUMNS = ("N-S", *MEASURES)
ALPHAS = (0.1, 1.0, 10.0)
score_top4 = RetrievalScorer("top4")


def paper_form(truncation=4, **params):
    """Return the learner in the form of the paper, with its truncation for UKbench."""
    return HistogramRankSVM.from_paper(
        truncation=truncation, n_jobs=2, random_state=0, **params
    )


@cache
def load_ukbench(quick):
    """Return counts and objects."""
    if quick:
        data = make_visual_words(
            n_objects=40, n_images_per_object=4, n_words=1500, random_state=0
        )
        return data.data, data.target
    arrays = load("ukbench1000_bovw20k.npz")
    return as_counts(arrays), arrays["group"].astype(np.int64)


@cache
def load_paris(quick):
    """Return counts, landmarks, and the mask of the marked queries."""
    if quick:
        data = make_visual_words(
            n_objects=5, n_images_per_object=12, n_words=1000, random_state=0
        )
        return data.data, data.target, np.arange(60) % 6 == 0
    arrays = load("paris_subset_bovw20k.npz")
    is_query = arrays["is_query"].astype(bool)
    return as_counts(arrays), arrays["y"].astype(np.int64), is_query


def halves(X, y, quick, n_splits=10):
    """Return splits into halves of the objects, as in the paper."""
    n_splits = 2 if quick else n_splits
    splits = ObjectShuffleSplit(n_splits, test_size=0.5, random_state=0)
    return list(splits.split(X, y))


def fit(model, X, y):
    """Fit a copy of a model without warnings: it may stop before it converges."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(model).fit(X, y)


def fit_by_validation(model, X, y):
    """Fit a model with the alpha of a cross-validation by object, if there are many."""
    if len(np.unique(y)) <= 10:
        return fit(model, X, y)
    folds = ObjectKFold(3)
    search = GridSearchCV(model, {"alpha": ALPHAS}, scoring=score_top4, cv=folds)
    return fit(search, X, y).best_estimator_


def measure_all(model, X, y):
    return {"N-S": float(score_top4(model, X, y)), **measure(model, X, y)}


def table_1(quick):
    X, y = load_ukbench(quick)
    Z, places, is_query = load_paris(quick)
    rows, top4, ap = [], {}, {}
    for name, similarity in HAND_MADE.items():
        model = clone(similarity).fit(X)
        report = retrieval_report(model, X, y, k=(3,))
        # The query itself is the first of the four.
        top4[name] = 1 + 3 * report["precision_at_3"]
        model = clone(similarity).fit(Z)
        report = retrieval_report(model, Z, places, query_mask=is_query)
        ap[name] = report["average_precision"]
        n_s, published = PUBLISHED_WHOLE[name]
        cells = [f"{np.mean(top4[name]):.3f}", f"{published:.3f}"]
        rows.append([name, f"{n_s:.2f}", *cells, f"{np.mean(ap[name]):.3f}"])

    def pick(values, names, choose):
        return values[choose(names, key=lambda name: np.mean(values[name]))]

    low = pick(top4, ("cosine", "burstiness"), min)
    high = pick(top4, ("negative evidence", "asymmetric"), max)
    others = pick(ap, [n for n in ap if n != "asymmetric"], max)
    return Result(
        ["", "published N-S", "UKbench N-S", "published mAP, Oxford5k", "Paris mAP"],
        rows,
        {
            "ukbench": compare(low, high, "queries"),
            "burst": compare(top4["burstiness"], top4["cosine"], "queries"),
            "oxford": compare(ap["asymmetric"], others, "queries"),
        },
    )


def over_splits(X, y, quick, truncation):
    """Return measures of each split: hand-made of the searched half, and learned.

    Return also the measures of the learned similarity on its training half, and alpha.
    """
    values, training, alphas = {}, [], []
    for train, test in halves(X, y, quick):
        models = {n: clone(s).fit(X[test]) for n, s in HAND_MADE.items()}
        form = paper_form(truncation)
        learned = models["learned"] = fit_by_validation(form, X[train], y[train])
        training.append(measure_all(learned, X[train], y[train]))
        alphas.append(learned.alpha)
        form.set_params(penalty="shared")
        models["learned, our penalty"] = fit(form, X[train], y[train])
        models["default"] = fit(
            HistogramRankSVM(n_jobs=2, random_state=0), X[train], y[train]
        )
        for name, model in models.items():
            values.setdefault(name, []).append(measure_all(model, X[test], y[test]))
    return values, training, alphas


def table_2(quick):
    X, y = load_ukbench(quick)
    Z, places, _ = load_paris(quick)
    whole = [score_top4(clone(s).fit(X), X, y) for s in HAND_MADE.values()]
    rows, effects, notes = [], {}, []
    for place, (title, what, data) in enumerate(
        (("UKbench", "N-S", (X, y, quick, 4)), ("Paris", "mAP", (Z, places, quick, 2)))
    ):
        values, training, alphas = over_splits(*data)
        scores = {name: np.array(column(of, what)) for name, of in values.items()}
        best = np.max([scores[name] for name in PUBLISHED_SPLITS], axis=0)
        hand_made = np.array([scores[name] for name in HAND_MADE])
        for name, of_name in values.items():
            published = PUBLISHED_SPLITS.get(name, ("", ""))[place]
            n_best = np.count_nonzero(scores[name] >= best)
            count = f"{n_best}" if name in PUBLISHED_SPLITS else ""
            cells = [published, count, *cells_of(of_name, COLUMNS)]
            rows.append([f"{title}: {name}", *cells])
        # The best on average, as in the paper, not the best of each split.
        rival = hand_made[hand_made.mean(axis=1).argmax()]
        key = "best" if place == 0 else "oxford"
        effects[key] = compare(scores["learned"], rival, "splits")
        if place == 0:
            effects["cosine"] = compare(scores["learned"], scores["cosine"], "splits")
            effects["order"] = effect(
                [stats.kendalltau(whole, split).statistic for split in hand_made.T],
                "splits",
            )
        chosen = ", ".join(f"{alpha:g}" for alpha in sorted(set(alphas)))
        notes.append(
            f"{title}: alpha {chosen}. On its own training half the learned similarity "
            f"has {spread(column(training, what))} {what}, on the searched half "
            f"{spread(scores['learned'])}."
        )
        ours = gain_text(scores["learned, our penalty"], rival, what)
        notes.append(
            f"{title}: with our penalty, which the paper does not have, the gain over "
            f"the best hand-made similarity is {ours}."
        )
        notes += first_page(
            f"{title}: the learned similarity", values["learned"], values["cosine"]
        )
    return Result(
        ["", "published (best on)", "best on", *COLUMNS], rows, effects, notes
    )


def figure_1(quick):
    X, y = load_ukbench(quick)
    shares, panels, rows = [], [], []
    for number, (train, _) in enumerate(halves(X, y, quick)):
        model = fit(paper_form(max_iter=1), X[train], y[train])
        frequency = np.bincount(X[train].indices, minlength=X.shape[1])
        groups = model.word_groups_
        sizes = np.bincount(groups)
        shares.append(sizes[sizes > 0].min() / sizes.max() - 0.5)
        if number == 0:
            rows = [
                [str(g), f"{sizes[g]:,}"]
                + [f"{f(frequency[groups == g]):.0f}" for f in (np.min, np.max)]
                for g in np.flatnonzero(sizes)
            ]
            falling = np.sort(frequency)[::-1]
            ranks = np.unique(np.geomspace(1, len(falling), 60).astype(int))
            curve = [(np.log10(r), np.log10(1 + falling[r - 1])) for r in ranks]
            panels = [Panel("", "log10 rank of word", "log10 images", {"words": curve})]
    return Result(
        ["group", "words", "fewest images", "most images"],
        rows,
        {"even": effect(shares, "splits")},
        ["Words of equal frequency share a group, so sizes differ. First split."],
        panels,
    )


@cache
def measure_patterns(quick):
    """Return N-S by number of weights and split, and the patterns of the first."""
    X, y = load_ukbench(quick)
    truncation, sizes = (2, (6, 5)) if quick else (4, (15, 8))
    found, shown = {n: [] for n in sizes}, None
    for train, test in halves(X, y, quick, 5):
        learner = paper_form(weight_pattern="symmetric", truncation=truncation)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = learner.search_weight_pattern(X[train], y[train], n_bins=sizes[1])
        patterns = {int(pattern.max()) + 1: pattern for _, pattern in history}
        for n in sizes:
            model = fit(
                paper_form(weight_pattern=patterns[n], truncation=truncation),
                X[train],
                y[train],
            )
            found[n].append(float(score_top4(model, X[test], y[test])))
        if shown is None:
            shown = patterns[sizes[1]]
    return found, shown


def figure_2(quick):
    found, pattern = measure_patterns(quick)
    (many, all_weights), (few, shared) = found.items()
    rows = [[str(i), *map(str, row)] for i, row in enumerate(pattern)]
    values = np.subtract(shared, all_weights)
    return Result(
        ["query count", *(f"item {j}" for j in range(len(pattern)))],
        rows,
        {"enough": effect(values + 0.16 / 2, "splits")},
        [
            f"Pattern of the first split. N-S {spread(shared)} with {few} weights, "
            f"{spread(all_weights)} with all {many}."
        ],
    )


def figure_8(quick):
    found, _ = measure_patterns(quick)
    (_, all_weights), (_, shared) = found.items()
    rows = [[f"{n} weights", spread(of)] for n, of in found.items()]
    effects = {"overfitting": compare(shared, all_weights, "splits")}
    return Result(["", "N-S"], rows, effects, ["The pattern is that of Figure 2."])


def figure_3(quick):
    X, y = load_ukbench(quick)
    passes = (1, 2, 4) if quick else (1, 2, 3, 4, 6, 8, 12, 16, 24, 32)
    losses = ("max", "pairwise")
    curves = {loss: [] for loss in losses}
    for train, test in halves(X, y, quick):
        for loss in losses:
            scores = []
            for n in passes:
                model = fit(paper_form(loss=loss, max_iter=n), X[train], y[train])
                scores.append(float(score_top4(model, X[test], y[test])))
            curves[loss].append(scores)
    curves = {loss: np.array(of) for loss, of in curves.items()}
    rows = [
        [str(n), *(spread(curves[loss][:, i]) for loss in losses)]
        for i, n in enumerate(passes)
    ]
    points = {
        loss: list(zip(passes, of.mean(axis=0), strict=True))
        for loss, of in curves.items()
    }
    ours, pairs = curves["max"], curves["pairwise"]
    return Result(
        ["passes of the solver", *losses],
        rows,
        {
            "better": compare(ours[:, -1], pairs[:, -1], "splits"),
            "faster": compare(ours.mean(axis=1), pairs.mean(axis=1), "splits"),
        },
        [
            "The solver is a bundle method, whose passes go further than the "
            "subgradient steps of the paper, which needs about 200."
        ],
        [Panel("", "passes of the solver", "N-S", points)],
    )


def learned_weights(X, y, train, **params):
    """Return the weights relative to w00, rarest group of words first."""
    model = fit(paper_form(**params), X[train], y[train])
    frequency = np.bincount(X[train].indices, minlength=X.shape[1])
    groups = model.word_groups_
    means = [
        frequency[groups == g].mean() if (groups == g).any() else np.inf
        for g in range(len(model.weights_))
    ]
    weights = model.weights_ - model.weights_[:, :1, :1]
    return weights[np.argsort(means)]


def figure_4(quick):
    X, y = load_ukbench(quick)
    found = np.array(
        [
            learned_weights(X, y, train, weight_pattern="symmetric", truncation=4)
            for train, _ in halves(X, y, quick)
        ]
    )
    counts = np.arange(1, 5)
    diagonal = found[:, :, counts, counts]  # by split, group and count
    exclusion = found[:, :, 0, 1:]
    steps = np.diff(diagonal.mean(axis=1), axis=1, prepend=0)
    rows = [
        [f"group {g + 1}"]
        + [f"{100 * w:.3f}" for w in (*diagonal[:, g].mean(axis=0),)]
        + [f"{100 * w:.3f}" for w in exclusion[:, g].mean(axis=0)]
        for g in range(diagonal.shape[1])
    ]
    effects = {
        "diagonal": effect(100 * diagonal.min(axis=(1, 2)), "splits"),
        "exclusion": effect((exclusion < 0).mean(axis=(1, 2)) - 0.5, "splits"),
        "diminishing": effect(100 * (-np.diff(steps)).min(axis=1), "splits"),
    }
    for i in counts:
        w = 100 * diagonal[:, :, i - 1]
        effects[f"w{i}{i}"] = compare(w[:, 0], w[:, -1], "splits")
    header = [f"w{i}{i}" for i in counts] + [f"w0{i}" for i in counts]
    return Result(
        ["rarest words first", *header],
        rows,
        effects,
        ["Weights are in hundredths, relative to w00, means of the splits."],
    )


def figure_5(quick):
    X, y = load_ukbench(quick)
    values = {share: [] for share in (0.1, 0.25, 0.5, 1.0)}
    for train, test in halves(X, y, quick):
        objects = np.unique(y[train])
        for share, of_share in values.items():
            kept = objects[: max(5, int(share * len(objects)))]
            part = train[np.isin(y[train], kept)]
            model = fit(paper_form(), X[part], y[part])
            of_share.append(measure_all(model, X[test], y[test]))
    rows = [[f"{s:.0%}", *cells_of(of, COLUMNS)] for s, of in values.items()]
    scores = {share: column(of, "N-S") for share, of in values.items()}
    curve = [(100 * share, np.mean(of)) for share, of in scores.items()]
    return Result(
        ["objects of the training half", *COLUMNS],
        rows,
        {
            "more": compare(scores[1.0], scores[0.1], "splits"),
            "plateau": compare(scores[1.0], scores[0.5], "splits"),
        },
        panels=[
            Panel("", "objects of the training half, %", "N-S", {"learned": curve})
        ],
    )


def figure_6(quick):
    X, y, _ = load_paris(quick)
    values, rows = [], []
    for train, _ in halves(X, y, quick):
        learner = paper_form(truncation=2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            history = learner.search_weight_pattern(X[train], y[train], n_bins=5)
        pattern = history[-1][1]
        weights = learned_weights(
            X, y, train, truncation=2, weight_pattern=pattern
        ).mean(axis=0)
        values.append((weights[0, 1] - weights[1, 0]) / max(abs(weights[1, 0]), 1e-12))
        bins = "; ".join(" ".join(map(str, row)) for row in pattern)
        cells = [f"{100 * w:.3f}" for w in (weights[0, 1], weights[1, 0])]
        rows.append([f"split {len(rows) + 1}", bins, *cells])
    return Result(
        ["", "bins by counts of query and item", "w01", "w10"],
        rows,
        {"asymmetric": effect(values, "splits")},
        ["Weights are in hundredths, relative to w00, means of the groups of words."],
    )
