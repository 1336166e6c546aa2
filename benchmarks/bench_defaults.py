"""Compare every learner, with default parameters, with its alternatives.

    python benchmarks/bench_defaults.py [--sets NAME ...] [--rows NAME ...] [--seeds N]
                                        [--protocols NAME ...]

For each set and protocol ("samples": half of the samples of each class held out, "30 %
of samples", "objects": half of the classes), the script prints mean average precision,
precision at 1 and at 10, and the seconds of a fit, averaged over the seeds. Then it
prints the rows that break the claim of the documentation: with default parameters, no
learner is below the better cosine by more than 0.005 mAP or 0.015 precision at 1. It
also compares OASIS and the posteriors, with holdout="samples" on known classes, with
LDA and logistic regression. Each result is appended to a CSV file. An interrupted run
reads this file and continues. `--write doc/figures/defaults` writes the means to the
tables of the documentation.
"""

import argparse
import csv
import time
import warnings
from itertools import product
from pathlib import Path

import numpy as np
from _common import print_table, update_csv
from _sets import SPLITTERS, available_sets, load_set, split_set
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA, TruncatedSVD
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn._core.rows import are_counts, canonical_csr
from sklearn_simlearn.comparison._baselines import (
    Chosen,
    Dense,
    InnerProduct,
    WithinWhitening,
    centre_steps,
    choose_logistic,
)
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

# Wider data is reduced before LDA, whose covariance would not fit into memory.
LDA_FEATURES = 500

MAP_SLACK, PRECISION_SLACK = 0.005, 0.015


def _make_lda(start, n_features):
    lda = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5)
    grid = {"shrinkage": ["auto", 0.05, 0.2, 0.5, 0.9]}
    return make_pipeline(start, _narrow(n_features), *centre_steps(), Chosen(lda, grid))


def _narrow(n_features):
    if n_features > 2 * LDA_FEATURES:
        return TruncatedSVD(LDA_FEATURES, random_state=0)
    return Dense()


def _make_closed_forms(start, n_features):
    """Return closed-form baselines for new classes, all without a hold-out."""
    steps = [start, _narrow(n_features)]
    centre = StandardScaler(with_std=False)
    rows = {
        "centred": make_pipeline(*steps, centre),
        "whitened": make_pipeline(*steps, PCA(0.95, whiten=True)),
        "RCA": make_pipeline(*steps, WithinWhitening()),
        "LDA": make_pipeline(
            *steps, LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5), centre
        ),
    }
    for shrinkage in (0.1, 0.5):
        plda = TwoCovarianceSimilarity(shrinkage, holdout=None, random_state=0)
        rows[f"PLDA {shrinkage}"] = make_pipeline(start, plda)
    return rows


def _make_logistic(start, n_features):
    return make_pipeline(start, _narrow(n_features), *centre_steps(), choose_logistic())


def make_rows(X, protocol):
    """Return the estimators that suit the data by name, baselines first."""
    has_known_classes = protocol != "objects"
    counts, positive = are_counts(X), X.min() >= 0
    use_idf = bool(counts)
    rows = {"cosine": CosineSimilarity(use_idf=False)}
    if positive:
        rows["tf-idf"] = CosineSimilarity()
        rows["burstiness"] = BurstinessSimilarity()
    rows["negative evidence"] = NegativeEvidenceSimilarity(use_idf=use_idf)
    if counts:
        rows["asymmetric"] = AsymmetricSimilarity()
        rows["power tf-idf"] = CosineSimilarity(power=0.75)
    plain = CosineSimilarity(use_idf=use_idf, power=0.75 if counts else 1.0)
    if not has_known_classes:
        rows |= _make_closed_forms(plain, X.shape[1])
    else:
        rows["LDA"] = _make_lda(plain, X.shape[1])
        rows["logistic"] = _make_logistic(plain, X.shape[1])
        rows["logistic, product"] = make_pipeline(*rows["logistic"], InnerProduct())
    learners = {
        "OASIS": OASIS(random_state=0),
        "angular": AngularBilinearRanker(random_state=0),
        "two covariances": TwoCovarianceSimilarity(random_state=0),
    }
    if positive:
        learners["Mahalanobis"] = SparseMahalanobisLearner(random_state=0)
    if counts:
        learners["histogram"] = HistogramRankSVM(random_state=0)
    rows |= learners
    if has_known_classes:
        for name, learner in learners.items():
            rows[f"{name}, samples"] = clone(learner).set_params(holdout="samples")
        rows["posterior"] = ClassPosteriorSimilarity(random_state=0)
        rows["posterior of OASIS"] = ClassPosteriorSimilarity(
            OASIS(holdout="samples", random_state=0), random_state=0
        )
    return rows


BASELINES = ("cosine", "tf-idf", "burstiness", "negative evidence", "asymmetric")
BASELINES += ("power tf-idf", "LDA", "logistic", "logistic, product")
CLOSED_FORMS = ("centred", "whitened", "RCA", "LDA", "PLDA 0.1", "PLDA 0.5")
BASELINES += CLOSED_FORMS


def measure(estimator, X, y, train, test):
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = clone(estimator).fit(X[train], y[train])
    seconds = time.perf_counter() - start
    report = retrieval_report(estimator, X[test], y[test])
    names = ("average_precision", "precision_at_1", "precision_at_10")
    return [float(np.nanmean(report[name])) for name in names] + [seconds]


def run(options):
    """Measure the results that the file does not hold yet; return all results."""
    path = Path(options.output)
    results = {}
    if path.exists():
        with path.open(newline="") as file:
            for *key, ap, p1, p10, seconds in csv.reader(file):
                results[tuple(key)] = [float(v) for v in (ap, p1, p10, seconds)]
    with path.open("a", newline="") as file:
        writer = csv.writer(file)
        for name in options.sets:
            X, y = load_set(name)
            X = canonical_csr(X) if sparse.issparse(X) else X
            for protocol in options.protocols:
                for row, estimator in make_rows(X, protocol).items():
                    if options.rows and row not in options.rows:
                        continue
                    for seed in range(options.seeds):
                        key = (name, protocol, row, str(seed))
                        if key not in results:
                            halves = split_set(X, y, protocol, seed)
                            results[key] = measure(estimator, X, y, *halves)
                            writer.writerow([*key, *results[key]])
                            file.flush()
    return results


def summarise(results):
    """Return means over seeds: {(set, protocol): {row: (mAP, P@1, P@10, seconds)}}."""
    by_row = {}
    for (name, protocol, row, _), values in results.items():
        cell = by_row.setdefault((name, protocol), {})
        cell.setdefault(row, []).append(values)
    return {
        key: {row: np.mean(values, axis=0) for row, values in cell.items()}
        for key, cell in by_row.items()
    }


# Tables of the documentation by protocol.
TABLES = {
    "samples": ("known_default", "known_samples"),
    "30 % of samples": ("known_30",),
    "objects": ("new",),
}


def write_tables(cells, folder):
    """Write mean average precision and precision at 1 to CSV files."""
    for (name, protocol), cell in cells.items():
        for table, (i, measure) in product(TABLES[protocol], enumerate(("map", "p1"))):
            figures = {row: f"{values[i]:.3f}" for row, values in cell.items()}
            figures = {row: figure.removeprefix("0") for row, figure in figures.items()}
            path = Path(folder, f"{table}_{measure}.csv")
            update_csv(path, {"set": name, **figures})


def better_cosine(cell):
    return max((cell[row] for row in ("cosine", "tf-idf") if row in cell), key=tuple)


def judge(cells):
    """Return lines with the rows that break the claim, and with the comparisons."""
    lines = []
    for (name, protocol), cell in cells.items():
        if "cosine" not in cell:  # not measured
            continue
        reference = better_cosine(cell)
        for row, values in cell.items():
            if row in BASELINES or row.startswith("posterior"):
                continue
            lost, lost_at_1 = reference[:2] - values[:2]
            if lost > MAP_SLACK or lost_at_1 > PRECISION_SLACK:
                lines.append(
                    f"{name}, by {protocol}: {row} is below the better cosine by "
                    f"{lost:.3f} mAP, {lost_at_1:.3f} P@1"
                )
    if not lines:
        lines.append("No learner is below the better cosine in any cell.")
    for (name, protocol), cell in cells.items():
        rivals = [row for row in CLOSED_FORMS if row in cell]
        if protocol == "objects" and rivals and "two covariances" in cell:
            best = max(rivals, key=lambda row: cell[row][0])
            ahead = cell["two covariances"][0] - cell[best][0]
            lines.append(
                f"{name}, by objects: two covariances against the best closed form, "
                f"{best}: {ahead:+.3f} mAP"
            )
    rows = ("OASIS, samples", "posterior", "posterior of OASIS")
    rivals = ("LDA", "logistic", "logistic, product")
    for protocol, rival, row in product(SPLITTERS, rivals, rows):
        pairs = [
            (cell[row], cell[rival])
            for (_, of), cell in cells.items()
            if of == protocol and row in cell and rival in cell
        ]
        if pairs:
            ours, theirs = np.mean(pairs, axis=0)
            lines.append(
                f"By {protocol}, {row} against {rival}, mean of {len(pairs)} sets: "
                f"mAP {ours[0]:.3f} to {theirs[0]:.3f} ({ours[0] / theirs[0]:.2f}), "
                f"P@1 {ours[1]:.3f} to {theirs[1]:.3f}"
            )
    return lines


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--sets", nargs="*", default=available_sets())
    parser.add_argument(
        "--protocols", nargs="*", choices=SPLITTERS, default=["samples", "objects"]
    )
    parser.add_argument("--rows", nargs="*", help="rows of the table; all by default")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--output", default="bench_defaults.csv")
    parser.add_argument("--write", metavar="FOLDER", help="of the tables, as CSV files")
    options = parser.parse_args()
    cells = summarise(run(options))
    for (name, protocol), cell in cells.items():
        print(f"\n{name}, held out by {protocol}")
        print_table(
            ("", "mAP", "P@1", "P@10", "fit s"),
            [
                (row, *(f"{v:.3f}" for v in values[:3]), f"{values[3]:.1f}")
                for row, values in cell.items()
            ],
        )
    print()
    print("\n".join(judge(cells)))
    if options.write is not None:
        write_tables(cells, options.write)


if __name__ == "__main__":
    main()
