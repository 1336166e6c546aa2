"""Measures of a ranking and their cells in a table."""

import numpy as np

from sklearn_simlearn.metrics import (
    average_precision,
    precision_at_k,
    retrieval_report,
)

RANKS = (1, 10, 50)
MEASURES = ("mAP", *(f"P@{k}" for k in RANKS))


def measure(estimator, X, y, *, k=RANKS, **options) -> dict[str, float]:
    """Return mAP and precision at several ranks of a fitted estimator."""
    report = retrieval_report(estimator, X, y, k=k, **options)
    values = {"mAP": np.nanmean(report["average_precision"])}
    values |= {f"P@{n}": np.nanmean(report[f"precision_at_{n}"]) for n in k}
    return {name: float(value) for name, value in values.items()}


def measure_scores(relevance, scores, **options) -> dict[str, float]:
    """Return mAP and precision at several ranks of a matrix of scores."""
    values = {"mAP": np.nanmean(average_precision(relevance, scores, **options))}
    for k in RANKS:
        values[f"P@{k}"] = np.nanmean(precision_at_k(relevance, scores, k, **options))
    return {name: float(value) for name, value in values.items()}


def column(values: list[dict], name: str = "mAP") -> list[float]:
    """Return one measure over the runs."""
    return [v[name] for v in values]


def spread(values, digits: int = 3) -> str:
    """Return mean and standard deviation as text."""
    values = np.asarray(values, dtype=float)
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def cells_of(values: list[dict], names=MEASURES, digits: int = 3) -> list[str]:
    """Return the cells of a table: these measures over the runs."""
    return [spread(column(values, name), digits) for name in names]


def gain_text(ours, reference, unit: str = "mAP") -> str:
    """Return the mean difference of paired values and its standard error as text."""
    difference = np.asarray(ours, dtype=float) - np.asarray(reference, dtype=float)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    return f"{difference.mean():+.3f} ± {error:.3f} {unit}"


def first_page(name: str, ours: list[dict], reference: list[dict]) -> list[str]:
    """Return notes on gains in mAP that cost precision at rank 1 or 10."""
    mean = {
        what: np.mean(column(ours, what)) - np.mean(column(reference, what))
        for what in ("mAP", "P@1", "P@10")
    }
    return [
        f"{name} gains {mean['mAP']:.3f} mAP but loses {-mean[k]:.3f} {k}."
        for k in ("P@1", "P@10")
        if mean["mAP"] > 0 and mean[k] < -0.005
    ]
