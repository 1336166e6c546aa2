"""Fit times of the learners, compared with logistic regression in the same run.

    python benchmarks/bench_fits.py [--rows NAME ...] [--growth [FILE.csv]]

The table is the CPU time of a fit, divided by that of
``LogisticRegressionCV(Cs=3, cv=3, max_iter=200)`` on the same data: 4,000 samples of
128 features with 10 and with 100 classes, and 20,000 samples of 384 features with 77
classes, each with the default hold-out and with ``holdout="samples"``. MNIST, by PCA to
128 features, is added if its file is in the folder that `SIMLEARN_DATA` names.

``--growth`` measures fits from 1,000 to 60,000 samples and from 10 to 1,000 classes
instead, and prints the largest exponent between neighbouring sizes: 1 is linear, and
n log n is at most 1.15 in this range. With a file, it also writes the figures, which
``doc/plots/fit_growth.py`` draws.

Set OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1.
"""

import argparse
import csv
import os
import time
import warnings
from pathlib import Path

import numpy as np
from _common import load_mnist, print_table
from sklearn.base import clone
from sklearn.linear_model import LogisticRegressionCV

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
)

SIZES = (1000, 4000, 16_000, 60_000)
CLASSES = (10, 100, 1000)

# Seconds below which a fit is repeated more often.
SHORT = 0.5

LEARNERS = {
    "OASIS": OASIS(random_state=0),
    "angular": AngularBilinearRanker(random_state=0),
    "two covariances": TwoCovarianceSimilarity(random_state=0),
    "posterior": ClassPosteriorSimilarity(random_state=0),
    "Mahalanobis": SparseMahalanobisLearner(random_state=0),
}


def make_vectors(n_samples, n_features, n_classes, seed=0):
    """Return classes that differ in 32 directions, with noise of unequal variances."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(n_samples) % n_classes)
    means = rng.standard_normal((n_classes, 32)) @ rng.standard_normal((32, n_features))
    noise = np.geomspace(3, 0.3, n_features)
    X = means[y] / 64**0.5 + noise * rng.standard_normal((n_samples, n_features))
    return X.astype(np.float32), y


def make_rows(names, X):
    """Return the learners by row; those with a hold-out also with "samples"."""
    rows = {}
    for name in names:
        if name == "Mahalanobis" and X.min() < 0:
            continue
        rows[name] = LEARNERS[name]
        if "holdout" in LEARNERS[name].get_params():
            samples = clone(LEARNERS[name]).set_params(holdout="samples")
            rows[f"{name}, samples"] = samples
    return rows


def cpu_seconds(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        start = time.process_time()
        clone(estimator).fit(X, y)
    return time.process_time() - start


def fastest(estimator, X, y):
    """Return the least CPU time of some fits: two, or seven short ones."""
    seconds = cpu_seconds(estimator, X, y)
    n_more = 6 if seconds < SHORT else 1
    return min(seconds, *(cpu_seconds(estimator, X, y) for _ in range(n_more)))


def compare(names):
    """Print ratios to logistic regression."""
    sets = {
        "4,000 x 128, 10 classes": make_vectors(4000, 128, 10),
        "4,000 x 128, 100 classes": make_vectors(4000, 128, 100),
        "20,000 x 384, 77 classes": make_vectors(20_000, 384, 77),
    }
    if (Path(os.environ.get("SIMLEARN_DATA", ".")) / "mnist.npz").exists():
        X, y = load_mnist(128)
        sets["MNIST, 4,000 x 128"] = X[:4000], y[:4000]
    for title, (X, y) in sets.items():
        logistic = LogisticRegressionCV(Cs=3, cv=3, max_iter=200)
        reference = fastest(logistic, X, y)
        rows = []
        for name, learner in make_rows(names, X).items():
            seconds = fastest(learner, X, y)
            rows.append([name, f"{seconds:.2f}", f"{seconds / reference:.2f}"])
        print(f"\n{title}: LogisticRegressionCV {reference:.2f} s")
        print_table(["", "CPU s", "ratio"], rows)


def measure_growth(names):
    """Return {(row, along): [(size, seconds), ...]} and print it."""
    times = {}
    grids = {
        "samples": [(n, 100) for n in SIZES],
        "classes": [(20_000, n) for n in CLASSES],
    }
    for along, grid in grids.items():
        for n_samples, n_classes in grid:
            X, y = make_vectors(n_samples, 128, n_classes)
            for name, learner in make_rows(names, X).items():
                size = n_samples if along == "samples" else n_classes
                times.setdefault((name, along), []).append(
                    (size, cpu_seconds(learner, X, y))
                )
    for along, grid in grids.items():
        rows = []
        for (name, of), points in times.items():
            if of == along:
                size, seconds = np.log(points).T
                steepest = (np.diff(seconds) / np.diff(size)).max()
                cells = [f"{second:.2f}" for _, second in points]
                rows.append([name, *cells, f"{steepest:.2f}"])
        sizes = [f"{point[along == 'classes']:,}" for point in grid]
        print(f"\nCPU seconds by number of {along}")
        print_table(["", *sizes, "exponent"], rows)
    return times


def write(times, path):
    """Write a line per learner and size."""
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["along", "row", "size", "seconds"])
        for (name, along), points in times.items():
            for size, seconds in points:
                writer.writerow([along, name, size, f"{seconds:.3f}"])


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", nargs="*", choices=LEARNERS, default=[*LEARNERS])
    parser.add_argument("--growth", nargs="?", const="", metavar="FILE.csv")
    options = parser.parse_args()
    if options.growth is not None:
        times = measure_growth(options.rows)
        if options.growth:
            write(times, options.growth)
    else:
        compare(options.rows)


if __name__ == "__main__":
    main()
