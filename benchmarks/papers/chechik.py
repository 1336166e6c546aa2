"""Chechik, Sharma, Shalit and Bengio: OASIS."""

import time
from functools import cache, partial
from importlib.metadata import version

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

from benchmarks.papers._frame import (
    MEASURES,
    Claim,
    Experiment,
    Panel,
    Paper,
    Result,
    cells_of,
    claim_gain,
    column,
    measure,
    note_first_page,
    spread,
)
from sklearn_simlearn import OASIS
from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.similarities import CosineSimilarity

CALTECH_101, CALTECH_256 = "caltech101_oasis_b32_1k.npz", "caltech256_visterms_1k.npz"

# Per cent, Table 4: mAP, P@1, P@10, P@50.
PUBLISHED = {
    10: {
        "OASIS": "33 43 38 23",
        "cosine": "23 37 27 18",
        "MCML": "29 39 33 22",
        "LEGO": "27 39 32 20",
        "LMNN": "24 38 29 18",
    },
    20: {
        "OASIS": "21 29 24 15",
        "cosine": "14 25 18 12",
        "MCML": "17 26 21 14",
        "LEGO": "16 26 20 13",
        "LMNN": "14 26 19 11",
    },
    50: {
        "OASIS": "12 21 16 10",
        "cosine": "9 17 13 8",
        "MCML": "over 5 days",
        "LEGO": "9 18 13 8",
        "LMNN": "8 18 12 7",
    },
}
# Minutes, Table 5: OASIS with its core in C, MCML, LEGO, the faster LMNN.
PUBLISHED_MINUTES = {
    10: "0.12, 1835, 143, 247",
    20: "0.15, 7425, 533, 365",
    50: "1.6, over 5 days, 711, 2109",
}

CALTECH = (
    "Caltech-101 as bags of 1,000 visterms (blocks of 32 pixels) where the paper has "
    "Caltech-256 with 1,000 visterms of its own; 40 training and 25 test images per "
    "class, five folds. 50 classes have 34 training images each, and all 101 have 20 "
    "training and 11 test images, since no more are there."
)
DIGITS = "MNIST after PCA to 260 dimensions, where the paper has its own web images."
MADE_UP = (
    "300,000 made-up rows of 10,000 features with 70 non-zeros each, as the paper's "
    "2.3 million web images have, which were never published."
)

# Training and test images per class by the number of classes, five folds.
SIZES = {10: (40, 25), 20: (40, 25), 50: (34, 25), 101: (20, 11), 249: (40, 25)}


def plain(quick, **params):
    """OASIS as the paper has it."""
    n_triplets = 4000 if quick else 60_000
    return OASIS(
        **{"holdout": None, "n_triplets": n_triplets, "random_state": 0, **params}
    )


def folds(n_classes, quick, file=CALTECH_101):
    """Unit tf-idf rows: training and test samples with their labels, by fold."""
    if quick:
        X, y = load_digit_words(return_X_y=True)
        n_train, n_test, n_folds, classes = 20, 15, 2, np.arange(min(n_classes, 10))
    else:
        arrays = load(file)
        X, y = as_counts(arrays), arrays["y"].astype(np.int64)
        n_train, n_test = SIZES[n_classes]
        n_folds = 5
        sizes = np.bincount(y[~arrays["is_background"]], minlength=y.max() + 1)
        classes = np.flatnonzero(sizes >= n_train + n_test)[:n_classes]
    for fold in range(n_folds):
        rng = np.random.default_rng(fold)
        chosen = [rng.permutation(np.flatnonzero(y == c)) for c in classes]
        train = np.concatenate([rows[:n_train] for rows in chosen])
        test = np.concatenate([rows[n_train : n_train + n_test] for rows in chosen])
        tfidf = CosineSimilarity().fit(X[train])
        yield tfidf.transform(X[train]), y[train], tfidf.transform(X[test]), y[test]


class ByDistance(TransformerMixin, BaseEstimator):
    """Ranks by the Euclidean distance between the outputs of a transformer."""

    def __init__(self, learner):
        self.learner = learner

    def fit(self, X, y):
        self.learner_ = clone(self.learner).fit(X.toarray(), y)
        return self

    def similarity(self, X, Y):
        X, Y = (self.learner_.transform(Z.toarray()) for Z in (X, Y))
        return -euclidean_distances(X, Y, squared=True)


def compare(models, n_classes, quick, file=CALTECH_101):
    """Measures of each model on each fold, with the processor seconds of its fit."""
    values = {name: [] for name in models}
    for X_train, y_train, X_test, y_test in folds(n_classes, quick, file):
        for name, model in models.items():
            start = time.process_time()
            model.fit(X_train, y_train)
            seconds = time.process_time() - start
            values[name].append({**measure(model, X_test, y_test), "seconds": seconds})
    return values


def make_rows(values, prefix=""):
    """Rows of a table: our measures, and seconds."""
    return [
        [f"{prefix}{name}", *cells_of(of_name), f"{seconds_of(of_name):.2f}"]
        for name, of_name in values.items()
    ]


def seconds_of(of_name):
    return np.mean([of_fold["seconds"] for of_fold in of_name])


HEADER = ["", *MEASURES, "fit s"]
HELD_OUT = 'OASIS, holdout="samples"'


def check_metric_learn():
    """Why metric-learn cannot be compared with, or None if it runs."""
    rng = np.random.default_rng(0)
    try:
        from metric_learn import LMNN

        LMNN(n_neighbors=3, max_iter=2).fit(rng.random((30, 3)), np.arange(30) % 3)
    except ImportError:
        return "metric-learn, which has LMNN, is not installed."
    except TypeError as error:
        return (
            f"metric-learn {version('metric-learn')}, which has LMNN, does not run "
            f"with scikit-learn {version('scikit-learn')}: every one of its learners "
            f"ends in ``TypeError: {error}``."
        )
    return None


@cache
def table_4_values(quick, n_classes, file):
    to_100 = partial(PCA, 100, random_state=0)
    models = {
        "cosine": CosineSimilarity(use_idf=False),
        "OASIS": plain(quick),
        HELD_OUT: plain(quick, holdout="samples"),
        "LDA": ByDistance(LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)),
    }
    if not quick:
        nca = NeighborhoodComponentsAnalysis(
            30, init="identity", max_iter=20, random_state=0
        )
        models["NCA, PCA to 100"] = ByDistance(make_pipeline(to_100(), nca))
        if check_metric_learn() is None:
            from metric_learn import LMNN

            models["LMNN, PCA to 100"] = ByDistance(make_pipeline(to_100(), LMNN()))
    return compare(models, n_classes, quick, file)


def table_4(quick, file=CALTECH_101):
    rows, claims, notes, tried = [], [], [], []
    classes = (10, 20, 50) if file == CALTECH_101 else (10, 20, 50, 249)
    for n_classes in classes[:1] if quick else classes:
        values = table_4_values(quick, n_classes, file)
        published = PUBLISHED.get(n_classes, {})
        for row in make_rows(values, f"{n_classes} classes, "):
            name = row[0].partition(", ")[2]
            rows.append([row[0], published.get(name, ""), *row[1:]])
        rows += [
            [f"{n_classes} classes, {name}", figures, *[""] * (len(HEADER) - 1)]
            for name, figures in published.items()
            if name not in values
        ]
        for what, text in (
            ("mAP", "OASIS is ahead of the plain similarity"),
            ("P@1", "also at rank 1"),
        ):
            claims.append(
                claim_gain(
                    f"{n_classes} classes: {text}",
                    column(values["OASIS"], what),
                    column(values["cosine"], what),
                    what,
                )
            )
        if not claims[-1].holds and not quick:
            tried += try_rank_1(n_classes, values, file)
        ahead = [
            name
            for name in values
            if np.mean(column(values[name])) > np.mean(column(values["OASIS"]))
        ]
        if ahead:
            notes.append(
                f"Ahead of plain OASIS in mAP on {n_classes} classes, among what a "
                f"user has today: {', '.join(ahead)}."
            )
        notes += note_first_page(
            f"{n_classes} classes: OASIS", values["OASIS"], values["cosine"]
        )
    notes.append(
        "MCML and LEGO are to be had neither in scikit-learn nor in metric-learn. "
        + (check_metric_learn() or "")
    )
    return Result(["", "published, %", *HEADER[1:]], rows, claims, notes, tried)


def try_rank_1(n_classes, values, file):
    """Precision at 1 with other settings, where the plain one gains nothing."""
    models = {
        "C = 0.01": plain(False, C=0.01),
        "15,000 triplets": plain(False, n_triplets=15_000),
        "240,000 triplets": plain(False, n_triplets=240_000),
        "five rankers": plain(False, n_models=5),
    }
    found = {**compare(models, n_classes, False, file), HELD_OUT: values[HELD_OUT]}
    tried = [f"{name} {spread(column(found[name], 'P@1'))}" for name in found]
    return [
        f"{n_classes} classes, P@1 with other settings: {', '.join(tried)}; cosine "
        f"{spread(column(values['cosine'], 'P@1'))}"
    ]


def table_5(quick):
    rows, seconds = [], []
    for n_classes in (10,) if quick else (10, 20, 50):
        values = table_4_values(quick, n_classes, CALTECH_101)
        seconds.append(seconds_of(values["OASIS"]))
        ours = ", ".join(
            f"{name} {seconds_of(of_name):.2f}"
            for name, of_name in values.items()
            if name != "cosine"
        )
        rows.append([str(n_classes), PUBLISHED_MINUTES[n_classes], ours])
    return Result(
        ["classes", "published minutes: OASIS, MCML, LEGO, LMNN", "seconds"],
        rows,
        [
            Claim(
                "training takes seconds to minutes, not hours",
                max(seconds) < 120,
                f"at most {max(seconds):.1f} s for 60,000 triplets",
            )
        ],
        ["Processor time."],
    )


def figure_4(quick):
    """Time against the number of training samples."""
    if quick:
        X, y = load_digits(return_X_y=True)
        sizes = (200, 400, 800)
    else:
        X, y = load_mnist()
        sizes = (1000, 3000, 10_000, 30_000, 60_000)
    order = np.random.default_rng(0).permutation(len(X))
    test = order[-500 if quick else -2000 :]
    rows, seconds = [], {}
    models = {
        "OASIS": lambda: OASIS(holdout="samples", random_state=0),
        "NCA": lambda: NeighborhoodComponentsAnalysis(
            30, init="pca", max_iter=20, random_state=0
        ),
    }
    for name, make in models.items():
        # The pairs of all samples, which NCA compares, are soon too many.
        for n in sizes if name == "OASIS" else sizes[:2]:
            start = time.process_time()
            model = make().fit(X[order[:n]], y[order[:n]])
            seconds[name, n] = time.process_time() - start
            found = measure(model, X[test], y[test])
            steps = f"{model.n_triplets_:,}" if name == "OASIS" else ""
            cells = [f"{value:.3f}" for value in found.values()]
            rows.append([f"{name}, {n:,}", steps, f"{seconds[name, n]:.1f}", *cells])
    slope = np.polyfit(
        np.log(sizes[1:]), np.log([seconds["OASIS", n] for n in sizes[1:]]), 1
    )[0]
    return Result(
        ["training images", "triplets chosen", "fit s", *MEASURES],
        rows,
        [
            Claim(
                "the time with early stopping grows linearly with the number of "
                "images, or more slowly",
                slope < 1.1,
                f"as the power {slope:.2f} of the number, from {sizes[1]:,} images on",
            )
        ],
        ["Processor time; held-out samples choose the number of triplets."],
    )


def scale(quick):
    """The rate of training on sparse rows, and what it means for the paper's run."""
    found = measure_scale(
        *((3000, 1000, 30_000) if quick else (300_000, 10_000, 60_000))
    )
    minutes = 160e6 / found["rate"] / 60
    return Result(
        ["", "published", "ours"],
        [
            ["triplets per second", "667", f"{found['rate']:,.0f}"],
            ["minutes for 160 million triplets", "4,000", f"{minutes:,.0f}"],
            ["rate at the end over that at the start", "", f"{found['steady']:.2f}"],
        ],
        [
            Claim(
                "2.3 million images can be learned from in days on one processor",
                minutes < 3 * 24 * 60,
                f"{minutes:,.0f} minutes at the measured rate",
            )
        ],
        ["Extrapolated from the rate of one thread, in processor time."],
    )


def figure_5(quick):
    steps = (500, 4000) if quick else (2000, 8000, 30_000, 60_000, 150_000)
    rows, claims, panels = [], [], []
    for n_classes in (10,) if quick else (10, 20):
        models = {"cosine": CosineSimilarity(use_idf=False)}
        models |= {f"{n:,} steps": plain(quick, n_triplets=n) for n in steps}
        models[HELD_OUT] = plain(quick, holdout="samples")
        values = compare(models, n_classes, quick)
        rows += make_rows(values, f"{n_classes} classes, ")
        curve = [np.mean(column(values[f"{n:,} steps"])) for n in steps]
        best, held_out = max(curve), np.mean(column(values[HELD_OUT]))
        claims += [
            claim_gain(
                f"{n_classes} classes: {steps[1]:,} steps are ahead of the start "
                "already",
                column(values[f"{steps[1]:,} steps"]),
                column(values["cosine"]),
            ),
            Claim(
                f"{n_classes} classes: after its peak precision falls slowly, if at "
                "all",
                best - curve[-1] < 0.02,
                f"mAP {best:.3f} at best, {curve[-1]:.3f} after {steps[-1]:,} steps",
            ),
            Claim(
                f"{n_classes} classes: held-out samples stop it well",
                held_out > best - 0.01,
                f"mAP {held_out:.3f}, the best number of steps has {best:.3f}",
            ),
        ]
        start = np.mean(column(values["cosine"]))
        ends = [(n, start) for n in (steps[0], steps[-1])]
        points = list(zip(steps, curve, strict=True))
        panels.append(
            Panel(
                f"{n_classes} classes",
                "steps",
                "mAP",
                {"OASIS": points, "Euclidean": ends},
            )
        )
    return Result(
        HEADER,
        rows,
        claims,
        ["The paper: test precision saturates at about 30,000 steps with 10 classes."],
        panels=panels,
    )


def figure_7(quick):
    steps = (500, 2000) if quick else (2000, 8000, 30_000)
    models = {
        (n, m): plain(quick, n_triplets=n, n_models=m)
        for n in steps
        for m in (1, 5, 10)
    }
    n_classes = 10 if quick else 101
    values = compare(models, n_classes, quick)
    rows = [
        [f"{n:,} steps, {m} ranker{'s' if m > 1 else ''}", *cells_of(of_cell)]
        for (n, m), of_cell in values.items()
    ]
    last = steps[-1]
    means = {key: np.mean(column(values[key])) for key in values}
    claims = [
        claim_gain(
            f"{n:,} steps: five rankers averaged are ahead of one",
            column(values[n, 5]),
            column(values[n, 1]),
        )
        for n in steps
    ]
    claims.append(
        Claim(
            "ten are no worse than five",
            means[last, 10] > means[last, 5] - 0.002,
            f"mAP {means[last, 10]:.3f} against {means[last, 5]:.3f}",
        )
    )
    curves = {f"{m} rankers": [(n, means[n, m]) for n in steps] for m in (1, 5, 10)}
    return Result(
        HEADER[:-1],
        rows,
        claims,
        [f"{n_classes} classes; the paper has 249. Steps are those of each ranker."],
        panels=[Panel("", "steps of each ranker", "mAP", curves)],
    )


def figure_8(quick):
    models = {
        "OASIS": plain(quick),
        "Proj-OASIS": plain(quick, symmetric="final"),
        "Online-Proj-OASIS": plain(quick, symmetric="online"),
        "Dissim-OASIS": plain(quick, symmetric="dissimilarity"),
    }
    rows, claims = [], []
    for n_classes in (10,) if quick else (10, 20):
        values = compare(models, n_classes, quick)
        rows += make_rows(values, f"{n_classes} classes, ")
        means = {name: np.mean(column(values[name])) for name in models}
        claims.append(
            Claim(
                f"{n_classes} classes: symmetric variants are level with plain OASIS "
                "or a little below, within 0.05",
                all(abs(mean - means["OASIS"]) < 0.05 for mean in means.values()),
                ", ".join(f"{name} {mean:.3f}" for name, mean in means.items()),
            )
        )
    return Result(HEADER, rows, claims)


def figure_9(quick):
    steps = (500, 2000) if quick else (8000, 30_000, 60_000)
    often = 200 if quick else 4000
    schemes = {"none": None, f"every {often:,} steps": often, "at the end": "final"}
    models = {
        (name, n): plain(quick, psd=psd, n_triplets=n)
        for name, psd in schemes.items()
        for n in steps
    }
    values = compare(models, 20, quick)
    rows = [
        [f"{name}, {n:,} steps", *cells_of(of_cell)]
        for (name, n), of_cell in values.items()
    ]
    last = steps[-1]
    curves = {
        name: [(n, np.mean(column(values[name, n]))) for n in steps] for name in schemes
    }
    end = column(values["at the end", last])
    without = np.mean(column(values["none", last]))
    claim = claim_gain(
        "projection at the end is ahead of one every so many steps",
        end,
        column(values[f"every {often:,} steps", last]),
    )
    tried = []
    if not claim.holds and not quick:
        for psd in (2000, 15_000):
            found = compare({psd: plain(quick, psd=psd)}, 20, quick)[psd]
            tried.append(f"every {psd:,} steps: mAP {spread(column(found))}")
        tried.append(f"at the end: {spread(end)}")
    return Result(
        HEADER[:-1],
        rows,
        [
            claim,
            Claim(
                "it does not lose to no projection",
                np.mean(end) > without - 0.01,
                f"mAP {np.mean(end):.3f} against {without:.3f}",
            ),
        ],
        tried=tried,
        panels=[Panel("", "steps", "mAP", curves)],
    )


def components(quick):
    kept = (20, 5) if quick else (200, 100, 50, 20, 5)
    models = {"all": plain(quick)}
    models |= {str(n): plain(quick, n_components=n) for n in kept}
    values = compare(models, 20, quick)
    share = np.mean(column(values[str(kept[0])])) / np.mean(column(values["all"]))
    return Result(
        ["components", *HEADER[1:]],
        make_rows(values),
        [
            Claim(
                "W can be factorised into a projection, for serving",
                share > 0.98,
                f"{kept[0]} of the directions keep {share:.1%} of the mAP",
            )
        ],
    )


_FILE = (CALTECH_101,)

PAPER = Paper(
    "chechik",
    "Chechik, Sharma, Shalit, Bengio: Large Scale Online Learning of Image Similarity "
    "Through Ranking, JMLR 2010",
    "OASIS",
    "OASIS(holdout=None, C=0.1)",
    "The 2.3 million images of the Web data set (Tables 1 to 3, Figure 3) and their "
    "judgements by people were never published.",
    [
        Experiment("Table 4", "precision of OASIS and others", CALTECH, table_4, _FILE),
        Experiment("Table 5", "time to train", CALTECH, table_5, _FILE),
        Experiment(
            "Figure 4",
            "time by the size of the training set",
            DIGITS,
            figure_4,
            ("mnist.npz",),
        ),
        Experiment("Section 5.2", "training at the scale of the web", MADE_UP, scale),
        Experiment("Figure 5", "precision by training steps", CALTECH, figure_5, _FILE),
        Experiment("Figure 7", "rankers in parallel", CALTECH, figure_7, _FILE),
        Experiment("Figure 8", "symmetric variants", CALTECH, figure_8, _FILE),
        Experiment(
            "Figure 9", "positive variants, 20 classes", CALTECH, figure_9, _FILE
        ),
        Experiment(
            "Section 6",
            "how many directions W needs, 20 classes",
            CALTECH,
            components,
            _FILE,
        ),
        Experiment(
            "Table 4, Caltech-256",
            "precision of OASIS and others",
            "Caltech-256, as in the paper, as visterms of your own.",
            partial(table_4, file=CALTECH_256),
            (CALTECH_256,),
            has_quick=False,
        ),
    ],
)
