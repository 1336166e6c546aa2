"""The comparison a newcomer runs first: ``python -m sklearn_simlearn``."""

import argparse
import csv
import pickle
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer
from sklearn.utils import _safe_indexing

from sklearn_simlearn import OASIS
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn.datasets import load_digit_words, load_npz
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.model_selection import ObjectShuffleSplit, QuerySplit
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

COLUMNS = ("similarity", "mAP", "P@1", "P@10", "gain", "fit s", "query us", "model kB")


@dataclass
class Row:
    """A line of the table."""

    name: str
    estimator: object
    learned: bool = False
    needs: str = "numbers"  # or "non-negative numbers", or "counts"


ROWS = [
    Row("cosine", CosineSimilarity(use_idf=False)),
    Row("cosine of tf-idf", CosineSimilarity(), needs="non-negative numbers"),
    Row("negative evidence", NegativeEvidenceSimilarity()),
    Row("burstiness", BurstinessSimilarity(), needs="non-negative numbers"),
    Row("asymmetric", AsymmetricSimilarity(), needs="counts"),
    Row(
        "OASIS",
        make_pipeline(Normalizer(), OASIS(random_state=0)),
        learned=True,
    ),
    Row(
        "OASIS on tf-idf",
        make_pipeline(TfidfTransformer(), OASIS(random_state=0)),
        learned=True,
        needs="non-negative numbers",
    ),
]


def main(arguments=None):
    options = _parse(arguments)
    try:
        if options.data is None:
            X, y = load_digit_words(return_X_y=True)
            query_mask = None
        else:
            data = load_npz(options.data)
            X, y, query_mask = data.data, data.target, data.query_mask
        splitter = _choose_splitter(options, y, query_mask)
        train, test = next(splitter.split(X, y))
        results = _compare(X, y, query_mask, train, test)
    except (OSError, ValueError) as error:
        print(f"sklearn_simlearn: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    source = (
        "handwritten digits as visual words" if options.data is None else options.data
    )
    print(
        f"{source}: {X.shape[0]} samples of {X.shape[1]} features, "
        f"{len(train)} to fit, {len(test)} held out; each of these queries the others"
    )
    table = _tabulate(results)
    print(_align([COLUMNS, *table]))
    _write(options.output, table, results)
    return 0


def _parse(arguments):
    parser = _Parser(
        prog="python -m sklearn_simlearn",
        description=(
            "Compare hand-made similarities with learned ones on held-out samples: "
            "mean average precision, precision at 1 and 10, gain in mAP over the best "
            "hand-made similarity, seconds to fit, microseconds a query, size of the "
            "model. Without --data, on handwritten digits that come with the package."
        ),
    )
    parser.add_argument(
        "--data",
        metavar="FILE.npz",
        help="your own data: X dense, or CSR as data, indices, indptr and shape; y, "
        "labels or a relevance matrix; optionally query_mask",
    )
    parser.add_argument(
        "--split",
        choices=("samples", "objects"),
        default="samples",
        help="hold out half of the samples of each class (default), or half of the "
        "classes, to see how a similarity fares on objects it has never met",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="decides the split (default: 0)"
    )
    parser.add_argument(
        "--output",
        metavar="STEM",
        default="simlearn_comparison",
        help="write STEM.csv and the precision-recall curves STEM.png "
        "(default: simlearn_comparison)",
    )
    return parser.parse_args(arguments)


class _Parser(argparse.ArgumentParser):
    """One line for a bad call, without the usage around it."""

    def error(self, message):
        self.exit(2, f"sklearn_simlearn: {message} (see --help)\n")


def _choose_splitter(options, y, query_mask):
    if query_mask is not None:
        return QuerySplit(
            query_mask, n_splits=1, test_size=0.5, random_state=options.seed
        )
    half = {"n_splits": 1, "test_size": 0.5, "random_state": options.seed}
    if options.split == "objects":
        return ObjectShuffleSplit(**half)
    labels = check_relevance(y).labels
    if labels is not None and np.unique(labels, return_counts=True)[1].min() > 1:
        return StratifiedShuffleSplit(**half)
    return ShuffleSplit(**half)


def _compare(X, y, query_mask, train, test):
    """Fit every row that the data allows and measure it on the held-out samples."""
    X_train, y_train = _safe_indexing(X, train), _safe_indexing(y, train)
    X_test, y_test = _safe_indexing(X, test), _safe_indexing(y, test)
    mask = None if query_mask is None else query_mask[test]
    rows = [row for row in ROWS if row.needs in _kinds(X)]
    results = []
    with _progress(len(rows)) as step:
        for row in rows:
            step(row.name)
            start = time.perf_counter()
            estimator = clone(row.estimator).fit(X_train, y_train)
            seconds = time.perf_counter() - start
            report = retrieval_report(estimator, X_test, y_test, query_mask=mask)
            results.append(
                (row, estimator, seconds, _query_time(estimator, X_test), report)
            )
    return results


def _kinds(X):
    values = X.data if sparse.issparse(X) else X
    kinds = {"numbers"}
    if values.min(initial=0) >= 0:
        kinds.add("non-negative numbers")
        if np.array_equal(values, np.rint(values)):
            kinds.add("counts")
    return kinds


def _query_time(estimator, X, n_queries=100):
    """Seconds to encode one query and compare it with all items."""
    queries = _safe_indexing(X, np.arange(min(n_queries, X.shape[0])))
    *steps, learner = [
        step for _, step in getattr(estimator, "steps", [("", estimator)])
    ]
    for step in steps:
        X = step.transform(X)
    items = learner.transform_database(X)
    start = time.perf_counter()
    for step in steps:
        queries = step.transform(queries)
    learner.transform(queries) @ items.T
    return (time.perf_counter() - start) / queries.shape[0]


@contextmanager
def _progress(n_steps):
    """A progress bar on a terminal, silence in a pipe."""
    if not sys.stderr.isatty():
        yield lambda name: None
        return
    try:
        from rich.console import Console
        from rich.progress import Progress
    except ImportError:
        yield lambda name: print(f"fitting {name}", file=sys.stderr)
        return
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=n_steps)
        done = -1

        def step(name):
            nonlocal done
            done += 1
            bar.update(task, completed=done, description=f"fitting {name}")

        yield step


def _tabulate(results):
    scores = [np.nanmean(report.average_precision) for *_, report in results]
    best = max(
        score
        for (row, *_), score in zip(results, scores, strict=True)
        if not row.learned
    )
    return [
        (
            row.name,
            f"{score:.3f}",
            f"{np.nanmean(report.precision_at_1):.3f}",
            f"{np.nanmean(report.precision_at_10):.3f}",
            f"{score / best - 1:+.1%}",
            f"{seconds:.2f}",
            f"{1e6 * query_seconds:.0f}",
            f"{len(pickle.dumps(estimator)) / 1000:.1f}",
        )
        for (row, estimator, seconds, query_seconds, report), score in zip(
            results, scores, strict=True
        )
    ]


def _align(table):
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if i else cell.ljust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in table
    )


def _write(stem, table, results):
    with Path(f"{stem}.csv").open("w", newline="") as file:
        csv.writer(file).writerows([COLUMNS, *table])
    written = f"{stem}.csv"
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        print('no picture: pip install "sklearn-simlearn[display]"', file=sys.stderr)
    else:
        from sklearn_simlearn.display import MeanPrecisionRecallDisplay

        figure = Figure(figsize=(6.4, 4.8), layout="constrained")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot()
        for row, *_, report in results:
            MeanPrecisionRecallDisplay(
                np.nanmean(report.precision_recall, axis=0),
                report.recall_levels,
                mean_average_precision=np.nanmean(report.average_precision),
                name=row.name,
            ).plot(ax=ax, linestyle="-" if row.learned else "--")
        figure.savefig(f"{stem}.png", dpi=150)
        written += f" and {stem}.png"
    print(f"wrote {written}")


if __name__ == "__main__":
    sys.exit(main())
