"""Chechik, Sharma, Shalit and Bengio: measurements on Caltech-101 and MNIST."""

import time
from functools import cache

import numpy as np
from _common import as_counts, load, load_mnist
from bench_oasis import measure_scale
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.metrics import euclidean_distances
from sklearn.neighbors import NeighborhoodComponentsAnalysis
from sklearn.pipeline import make_pipeline

from benchmarks.papers._frame import Panel, Result, compare, effect
from benchmarks.papers._logdet import LogDetOASIS
from benchmarks.papers._measures import (
    MEASURES,
    cells_of,
    column,
    first_page,
    gain_text,
    measure,
    spread,
)
from benchmarks.papers.chechik import GAINS
from sklearn_simlearn import OASIS
from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.similarities import CosineSimilarity

# Per cent, Table 4: mAP, P@1, P@10, P@50.
PUBLISHED = {
    10: {"OASIS": "33 43 38 23", "Euclidean": "23 37 27 18"},
    20: {"OASIS": "21 29 24 15", "Euclidean": "14 25 18 12"},
    50: {"OASIS": "12 21 16 10", "Euclidean": "9 17 13 8"},
}
PUBLISHED[10] |= {"MCML": "29 39 33 22", "LEGO": "27 39 32 20", "LMNN": "24 38 29 18"}
PUBLISHED[20] |= {"MCML": "17 26 21 14", "LEGO": "16 26 20 13", "LMNN": "14 26 19 11"}
PUBLISHED[50] |= {"MCML": "over 5 days", "LEGO": "9 18 13 8", "LMNN": "8 18 12 7"}
# Minutes, Table 5: OASIS with its core in C, MCML, LEGO, the faster LMNN.
PUBLISHED_MINUTES = {
    10: "0.12, 1835, 143, 247",
    20: "0.15, 7425, 533, 365",
    50: "1.6, over 5 days, 711, 2109",
}
# Training and test images per class by the number of classes.
SIZES = {10: (40, 25), 20: (40, 25), 50: (34, 25), 101: (20, 11)}
CURVE = tuple(range(1, 51))


def class_numbers(quick):
    return (10,) if quick else (10, 20, 50)


@cache
def folds(n_classes, quick):
    """Return unit tf-idf rows of training and test samples with labels, by fold."""
    if quick:
        X, y = load_digit_words(return_X_y=True)
        n_train, n_test, n_folds, classes = 20, 15, 2, np.arange(10)
    else:
        arrays = load("caltech101_oasis_b32_1k.npz")
        X, y = as_counts(arrays), arrays["y"].astype(np.int64)
        n_train, n_test = SIZES[n_classes]
        n_folds = 5
        sizes = np.bincount(y[~arrays["is_background"]], minlength=y.max() + 1)
        classes = np.flatnonzero(sizes >= n_train + n_test)[:n_classes]
    found = []
    for fold in range(n_folds):
        rng = np.random.default_rng(fold)
        chosen = [rng.permutation(np.flatnonzero(y == c)) for c in classes]
        train = np.concatenate([rows[:n_train] for rows in chosen])
        test = np.concatenate([rows[n_train : n_train + n_test] for rows in chosen])
        tfidf = CosineSimilarity().fit(X[train])
        parts = tfidf.transform(X[train]), y[train], tfidf.transform(X[test]), y[test]
        found.append(parts)
    return found


def plain(**params):
    """Return OASIS in the form of the paper."""
    return OASIS.from_paper(**{"random_state": 0, **params})


@cache
def stopping_times(n_classes, quick):
    """Return the number of triplets that held-out images choose, by fold."""
    most = 20_000 if quick else 150_000
    return [
        max(1, plain(holdout=8, n_triplets=most).fit(X, y).n_triplets_)
        for X, y, _, _ in folds(n_classes, quick)
    ]


class ByDistance(TransformerMixin, BaseEstimator):
    """Similarity that falls with the distance between outputs of a transformer."""

    def __init__(self, learner):
        self.learner = learner

    def fit(self, X, y):
        self.learner_ = clone(self.learner).fit(X.toarray(), y)
        return self

    def similarity(self, X, Y):
        X, Y = (self.learner_.transform(Z.toarray()) for Z in (X, Y))
        return -euclidean_distances(X, Y, squared=True)


def measure_models(models, n_classes, quick, ranks=(1, 10, 50), stopped=False):
    """Return measures and processor seconds of each model by fold.

    Models that are `stopped` learn as many triplets as held-out images choose.
    """
    values = {name: [] for name in models}
    for fold, (X, y, X_test, y_test) in enumerate(folds(n_classes, quick)):
        for name, model in models.items():
            model = clone(model)
            if stopped and isinstance(model, OASIS):
                model.set_params(n_triplets=stopping_times(n_classes, quick)[fold])
            start = time.process_time()
            model.fit(X, y)
            seconds = time.process_time() - start
            found = {**measure(model, X_test, y_test, k=ranks), "seconds": seconds}
            if hasattr(model, "W_") and model.W_.shape[0] == model.W_.shape[1]:
                W = model.W_
                found["symmetry"] = np.linalg.norm((W + W.T) / 2) / np.linalg.norm(W)
            values[name].append(found)
    return values


EUCLIDEAN = CosineSimilarity(use_idf=False)


@cache
def compare_learners(quick, n_classes):
    """Return measures of OASIS and of baselines, with precision at 1 to 50."""
    models = {
        "Euclidean": EUCLIDEAN,
        "OASIS": plain(),
        "LDA": ByDistance(LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)),
    }
    if not quick and n_classes <= 20:  # 50 classes would take minutes
        models["NCA"] = ByDistance(NeighborhoodComponentsAnalysis(random_state=0))
    if not quick:
        small = NeighborhoodComponentsAnalysis(
            30, init="identity", max_iter=20, random_state=0
        )
        models["NCA, PCA to 100"] = ByDistance(
            make_pipeline(PCA(100, random_state=0), small)
        )
    return measure_models(models, n_classes, quick, CURVE, stopped=True)


def table_4(quick):
    rows, effects, notes = [], {}, []
    for n in class_numbers(quick):
        values = compare_learners(quick, n)
        for name, of_name in values.items():
            cells = [PUBLISHED[n].get(name, ""), *cells_of(of_name)]
            rows.append([f"{n} classes, {name}", *cells])
        rows += [
            [f"{n} classes, {name}", figures, "", "", "", ""]
            for name, figures in PUBLISHED[n].items()
            if name not in values
        ]
        for what in GAINS[n]:
            pair = (column(values[name], what) for name in ("OASIS", "Euclidean"))
            effects[f"{n} {what}"] = compare(*pair, "folds")
        times = ", ".join(f"{t:,}" for t in sorted(stopping_times(n, quick)))
        notes.append(f"{n} classes: held-out images stop OASIS at {times} triplets.")
        ahead = [
            name
            for name, of_name in values.items()
            if np.mean(column(of_name)) > np.mean(column(values["OASIS"]))
        ]
        if ahead:
            better = ", ".join(ahead)
            notes.append(f"{n} classes: {better} are better than OASIS in mAP.")
        notes += first_page(f"{n} classes: OASIS", values["OASIS"], values["Euclidean"])
    return Result(["", "published, %", *MEASURES], rows, effects, notes)


def table_5(quick):
    rows, ratios, notes = [], [], []
    learners = ["OASIS", "LDA", "NCA", "NCA, PCA to 100"]
    for n in class_numbers(quick):
        values = compare_learners(quick, n)
        seconds = {name: column(of, "seconds") for name, of in values.items()}
        rival = seconds.get("LDA" if quick else "NCA")
        if rival is not None:
            ratios += list(np.log10(np.divide(rival, seconds["OASIS"])))
        cells = [
            spread(seconds[name], 2) if name in seconds else "not run"
            for name in learners
        ]
        rows.append([f"{n}", PUBLISHED_MINUTES[n], *cells])
        oasis = np.mean(seconds["OASIS"])
        notes += [
            f"{n} classes: {name} takes {np.mean(of_name):.2f} s, less than OASIS with "
            f"{oasis:.2f} s."
            for name, of_name in seconds.items()
            if name != "Euclidean" and np.mean(of_name) < oasis
        ]
    return Result(
        ["classes", "published minutes: OASIS, MCML, LEGO, LMNN", *learners],
        rows,
        {"lmnn": effect(ratios, "folds")},
        [
            "Processor seconds up to early stopping. NCA has the defaults of "
            "scikit-learn and is not run for 50 classes. The other NCA learns 30 "
            "dimensions after PCA to 100, in at most 20 iterations.",
            *notes,
        ],
    )


def figure_6(quick):
    effects, panels, rows = {}, [], []
    for n in class_numbers(quick):
        values = compare_learners(quick, n)
        curves = {
            name: np.array([[of[f"P@{k}"] for k in CURVE] for of in of_name])
            for name, of_name in values.items()
        }
        gains = curves["OASIS"] - curves["Euclidean"]
        effects[f"{n}"] = effect(gains.min(axis=1), "folds")
        worst = int(gains.mean(axis=0).argmin())
        rows.append(
            [f"{n} classes", str(CURVE[worst]), spread(gains[:, worst])]
            + [spread(gains[:, k - 1]) for k in (1, 10, 50)]
        )
        points = {
            name: list(zip(CURVE, of.mean(axis=0), strict=True))
            for name, of in curves.items()
        }
        panels.append(Panel(f"{n} classes", "k", "precision at top k", points))
    header = ["", "k of the smallest gain", "smallest", "k = 1", "k = 10", "k = 50"]
    return Result(header, rows, effects, ["Gains over the Euclidean distance."], panels)


def saturation(model):
    """Return the first number of triplets with 99 % of the largest held-out gain."""
    results = model.holdout_results_
    gain = np.array(results["gain"])
    candidate = results["candidates"][np.argmax(gain >= 0.99 * gain.max())]
    return 1 if candidate is None else candidate.n_triplets  # None is the start


def figure_4(quick):
    sizes = (300, 600, 1200) if quick else (1000, 3000, 10_000, 30_000)
    most, runs = (20_000, 2) if quick else (400_000, 5)
    X, y = load_digits(return_X_y=True) if quick else load_mnist(60)
    found = {n: [] for n in sizes}
    for seed in range(runs):
        order = np.random.default_rng(seed).permutation(len(X))
        for n in sizes:
            rows = order[:n]
            model = plain(holdout=10, n_triplets=most, random_state=seed)
            n_triplets = saturation(model.fit(X[rows], y[rows]))
            start = time.process_time()
            plain(n_triplets=n_triplets, random_state=seed).fit(X[rows], y[rows])
            found[n].append((n_triplets, time.process_time() - start))
    powers = [
        np.polyfit(np.log(sizes), np.log([found[n][seed][1] for n in sizes]), 1)[0]
        for seed in range(runs)
    ]
    rows = [
        [f"{n:,}", f"{np.mean([t for t, _ in of]):,.0f}", spread([s for _, s in of], 2)]
        for n, of in found.items()
    ]
    points = [
        (np.log10(n), np.log10(np.mean(of, axis=0)[1])) for n, of in found.items()
    ]
    scale = measure_scale(
        *((3000, 1000, 30_000) if quick else (100_000, 10_000, 30_000))
    )
    minutes = 160e6 / scale["rate"] / 60
    return Result(
        ["training images", "triplets at early stopping", "s of processors"],
        rows,
        {
            "linear": effect(1.5 - np.array(powers)),
            "grows": effect(np.array(powers) - 0.5),
        },
        [
            f"Power of the number of images: {spread(powers, 2)}. Training stops at "
            "the first 10,000 triplets that reach 99 % of the largest gain of 10 "
            f"held-out images per class, of at most {most:,} triplets.",
            "Web images (section 5.2.1): the paper takes 4,000 minutes for 160 million "
            f"triplets. Made-up rows of the same kind give {scale['rate']:,.0f} "
            f"triplets per second, or {minutes:,.0f} minutes.",
        ],
        [Panel("", "log10 images", "log10 seconds", {"OASIS": points})],
    )


def figure_5(quick):
    steps = (
        (500, 2000, 8000) if quick else (2000, 8000, 16_000, 35_000, 70_000, 150_000)
    )
    stop = steps.index(2000 if quick else 35_000)
    rows, effects, panels = [], {}, []
    for n in (10,) if quick else (10, 20):
        models = {"Euclidean": EUCLIDEAN}
        models |= {s: plain(n_triplets=s) for s in steps}
        values = measure_models(models, n, quick)
        curve = np.array([column(values[s]) for s in steps])
        start = np.array(column(values["Euclidean"]))
        rows += [
            [f"{n} classes, {f'{name:,} steps' if name in steps else name}"]
            + cells_of(of_name)
            for name, of_name in values.items()
        ]
        gain, change = curve[stop] - start, curve[-1] - curve[stop]
        effects[f"{n} gain"] = compare(curve[stop], start, "folds")
        effects[f"{n} saturates"] = effect(gain / 2 - np.abs(change), "folds")
        effects[f"{n} falls"] = effect(-change, "folds")
        ends = [(s, start.mean()) for s in (steps[0], steps[-1])]
        points = list(zip(steps, curve.mean(axis=1), strict=True))
        curves = {"OASIS": points, "Euclidean": ends}
        panels.append(Panel(f"{n} classes", "steps", "mAP", curves))
    return Result(["", *MEASURES], rows, effects, panels=panels)


def figure_7(quick):
    steps = (500, 2000) if quick else (2000, 8000, 20_000)
    numbers = (1, 5, 10)
    n_classes = 10 if quick else 101
    models = {(m, s): plain(n_triplets=s, n_models=m) for m in numbers for s in steps}
    values = measure_models(models, n_classes, quick)
    curves = {m: np.array([column(values[m, s]) for s in steps]) for m in numbers}
    rows = [
        [f"{s:,}", *(spread(curves[m][i]) for m in numbers)]
        for i, s in enumerate(steps)
    ]
    points = {
        f"{m} ranker{'s' if m > 1 else ''}": list(
            zip(steps, of.mean(axis=1), strict=True)
        )
        for m, of in curves.items()
    }
    means = {m: of.mean(axis=0) for m, of in curves.items()}
    return Result(
        ["steps of each ranker", "one", "five", "ten"],
        rows,
        {
            "five": compare(means[5], means[1], "folds"),
            "ten": compare(means[10], means[1], "folds"),
        },
        [f"mAP, {n_classes} classes; the paper has 249."],
        [Panel("", "steps of each ranker", "mAP", points)],
    )


def figure_8(quick):
    models = {
        "OASIS": plain(),
        "Proj-OASIS": plain(symmetric="final"),
        "Online-Proj-OASIS": plain(symmetric="online"),
        "Dissim-OASIS": plain(symmetric="dissimilarity"),
    }
    rows, effects = [], {}
    for n in (10,) if quick else (10, 20):
        values = measure_models(models, n, quick, stopped=True)
        for name, of_name in values.items():
            cells = [*cells_of(of_name), spread(column(of_name, "seconds"), 2)]
            rows.append([f"{n} classes, {name}", *cells])
        ours = np.array(column(values["OASIS"]))
        for name in ("Online-Proj-OASIS", "Dissim-OASIS"):
            gain = ours - column(values[name])
            effects[f"{n} {name}"] = effect(gain + 0.01, "folds")
        gain = ours - column(values["Proj-OASIS"])
        effects[f"{n} Proj-OASIS"] = effect(0.01 - np.abs(gain), "folds")
        index = np.array(column(values["OASIS"], "symmetry"))
        effects[f"{n} symmetry"] = effect(index - 0.5**0.5, "folds")
        seconds = [column(values[m], "seconds") for m in ("Dissim-OASIS", "OASIS")]
        effects[f"{n} time"] = effect(np.divide(*seconds) - 1, "folds")
    return Result(["", *MEASURES, "s of processors"], rows, effects)


def describe_logdet(logdet, projected, n_triplets):
    """Return a note on the LogDet divergence, compared with projection at the end."""
    seconds = [np.mean(column(of, "seconds")) for of in (logdet, projected)]
    gain = gain_text(column(logdet), column(projected))
    return (
        "Section 6.2 suggests the LogDet divergence, without results. After "
        f"{n_triplets:,} steps it differs from projection at the end by {gain} and "
        f"takes {seconds[0] / seconds[1]:.0f} times as long, since each step changes "
        "all of W. Therefore OASIS does not have it. C is 0.03, the best of 0.01, "
        "0.03 and 0.1 on the first fold."
    )


def figure_9(quick):
    steps = (500, 1000, 2000) if quick else (8000, 30_000, 120_000)
    often = steps[0]
    schemes = {"none": None, f"every {often:,} steps": often, "at the end": "final"}
    models = {
        (name, s): plain(psd=psd, n_triplets=s)
        for name, psd in schemes.items()
        for s in steps
    }
    models["LogDet"] = LogDetOASIS(n_triplets=steps[1])
    values = measure_models(models, 20, quick)
    curves = {
        name: np.array([column(values[name, s]) for s in steps]) for name in schemes
    }
    rows = [
        [f"{s:,}", *(spread(of[i]) for of in curves.values())]
        for i, s in enumerate(steps)
    ]
    never, always, final = curves.values()
    points = {
        name: list(zip(steps, of.mean(axis=1), strict=True))
        for name, of in curves.items()
    }
    declines = [of[1] - of[-1] for of in (never, always)]
    return Result(
        ["steps", *(f"projected: {name}" for name in schemes)],
        rows,
        {
            "final": compare(final.mean(axis=0), always.mean(axis=0), "folds"),
            "decline": compare(*declines, "folds"),
        },
        [
            "mAP. The decline is that from the second number of steps to the last.",
            describe_logdet(values["LogDet"], values["at the end", steps[1]], steps[1]),
        ],
        [Panel("", "steps", "mAP", points)],
    )
