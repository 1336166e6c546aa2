"""The comparison a newcomer runs first: ``python -m sklearn_simlearn``."""

import argparse
import csv
import os
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
from sklearn.utils import Bunch, _safe_indexing

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    MemoryVectorQuery,
    SparseMahalanobisLearner,
    metrics,
)
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
    baseline: bool = False
    needs: str = "numbers"  # or "non-negative numbers", or "counts"
    set_size: int = 1  # samples of one class that query together


ROWS = [
    Row("cosine", CosineSimilarity(use_idf=False), baseline=True),
    Row("cosine of tf-idf", CosineSimilarity(), True, "non-negative numbers"),
    Row("negative evidence", NegativeEvidenceSimilarity(), True),
    Row("burstiness", BurstinessSimilarity(), True, "non-negative numbers"),
    Row("asymmetric", AsymmetricSimilarity(), True, "counts"),
    Row("OASIS", make_pipeline(Normalizer(), OASIS(random_state=0))),
    Row(
        "OASIS on tf-idf",
        make_pipeline(TfidfTransformer(), OASIS(random_state=0)),
        needs="non-negative numbers",
    ),
    Row("angular", AngularBilinearRanker(matrix="full", random_state=0)),
    Row("histogram", HistogramRankSVM(loss="pairwise"), needs="counts"),
    Row(
        "sparse Mahalanobis",
        SparseMahalanobisLearner(random_state=0),
        needs="non-negative numbers",
    ),
    Row("5 queries: average", MemoryVectorQuery(method="average"), set_size=5),
    Row("5 queries: memory vector", MemoryVectorQuery(alpha=1.0), set_size=5),
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
    table = _tabulate(results)
    written = _write(options.output, table, results)
    source = (
        "handwritten digits as visual words" if options.data is None else options.data
    )
    print(
        f"{source}: {X.shape[0]} samples of {X.shape[1]} features, "
        f"{len(train)} to fit, {len(test)} held out; each of these queries the others"
    )
    print(_align([COLUMNS, *table]))
    print(f"wrote {written}")
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
    labels = check_relevance(y_test).labels
    largest = 0 if labels is None else np.bincount(labels + 1)[1:].max(initial=0)
    rows = [row for row in rows if row.set_size == 1 or row.set_size < largest]
    results = []
    with _progress(len(rows)) as step:
        for row in rows:
            step(row.name)
            start = time.perf_counter()
            estimator = clone(row.estimator).fit(X_train, y_train)
            seconds = time.perf_counter() - start
            if row.set_size == 1:
                report = retrieval_report(estimator, X_test, y_test, query_mask=mask)
            else:
                report = _report_sets(estimator, X_test, y_test, row.set_size)
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


def _report_sets(estimator, X, y, size):
    """What `retrieval_report` says, for sets of samples of one class as queries."""
    labels = check_relevance(y).labels
    order = np.argsort(labels, kind="stable")
    _, start, n_members = np.unique(
        labels[order], return_index=True, return_counts=True
    )
    place = np.arange(len(order)) - np.repeat(start, n_members)
    # A class makes whole sets only, and none of all its samples.
    n_used = np.repeat((n_members - 1) // size * size, n_members)
    used = order[(place < n_used) & (labels[order] >= 0)]
    sets = np.repeat(np.arange(len(used) // size), size)
    similarity = estimator.similarity(_safe_indexing(X, used), X, groups=sets)
    relevance = (labels[used[::size], None] == labels).astype(np.int8)
    relevance[sets, used] = -1
    pair = relevance, similarity
    curve, levels = metrics.precision_recall_curve(*pair, average=False)
    return Bunch(
        average_precision=metrics.average_precision(*pair),
        precision_at_1=metrics.precision_at_k(*pair, 1),
        precision_at_10=metrics.precision_at_k(*pair, 10),
        precision_recall=curve,
        recall_levels=levels,
    )


def _query_time(estimator, X, n_queries=100):
    """Seconds to encode one query and compare it with all items; best of five."""
    X_queries = _safe_indexing(X, np.arange(min(n_queries, X.shape[0])))
    *steps, learner = (s for _, s in getattr(estimator, "steps", [("", estimator)]))
    for step in steps:
        X = step.transform(X)
    items = learner.transform_database(X)
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        queries = X_queries
        for step in steps:
            queries = step.transform(queries)
        learner.transform(queries) @ items.T
        seconds.append(time.perf_counter() - start)
    return min(seconds) / X_queries.shape[0]


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
        score for (row, *_), score in zip(results, scores, strict=True) if row.baseline
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
    """Write the table and the curves; returns the names of the files."""
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
            ).plot(ax=ax, linestyle="--" if row.baseline else "-")
        figure.savefig(f"{stem}.png", dpi=150)
        written += f" and {stem}.png"
    return written


if __name__ == "__main__":
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        # A reader like `head` has seen enough. Python would flush once more and fail.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        status = 0
    sys.exit(status)
