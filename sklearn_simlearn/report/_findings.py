"""Content of a report: table, gains, and queries to show."""

from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import scipy
import sklearn

import sklearn_simlearn
from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn._core.statistics import (
    allow_for_several,
    mean_interval,
    paired_test,
    pool,
)
from sklearn_simlearn._core.targets import PairwiseRelevance
from sklearn_simlearn._core.typing import ImagesLike, TextsLike
from sklearn_simlearn.display._curves import count_queries
from sklearn_simlearn.display._pictures import as_sequence, find_texts
from sklearn_simlearn.display._search import find_neighbors
from sklearn_simlearn.report._measurement import Measured


class Findings:
    """Results of several estimators on the same queries.

    The parameters are those of :class:`RetrievalReport`, already checked. Further
    parameters are paragraphs of advice with lines of code, names of the samples and of
    their classes, by the name of an estimator, its samples if they are not `X`, and the
    unit of each query if the tests compare means over units.

    Attributes
    ----------
    measured : dict of Measured
        Measurements by name, the best first.

    best, baseline : str
        Names of the best estimator and of the best baseline.

    challenger : str or None
        Name of the best estimator that is not a baseline.

    queries : ndarray of shape (n_queries,)
        Rows of the samples that query.

    query_names : ndarray of shape (n_queries,)
        Names of the samples, or ids of the queries in judgements; otherwise the rows.

    gains : dict of ndarray of shape (n_queries,)
        Gains in average precision over the baseline, by name.

    table : list of dict
        A line per estimator, the best first.

    shown : dict of ndarray
        Indices of queries in `queries`, by the title of their list.

    found : dict of dict
        Items found, as (row, similarity, relevance), by name and by index in `queries`.
    """

    def __init__(
        self,
        measured: dict[str, Measured],
        X: Any,
        y: Any,
        *,
        images: ImagesLike | None = None,
        texts: TextsLike | None = None,
        document_texts: TextsLike | None = None,
        names: Sequence[str] | None = None,
        labels: Sequence[str] | None = None,
        samples: dict[str, Any] | None = None,
        baselines: Collection[str] | None = None,
        units: np.ndarray | None = None,
        n_shown: int = 6,
        n_neighbors: int = 8,
        title: str = "Retrieval report",
        advice: Sequence[str] = (),
        code: str = "",
    ):
        self.title, self.advice, self.code = title, advice, code
        self.units = units
        self.images = as_sequence(images)
        self.texts, self.item_texts = find_texts(X, y, texts, document_texts)
        self.n_samples = num_samples(X)
        self.baselines = list(measured)[:1] if baselines is None else set(baselines)
        ranked = sorted(measured, key=lambda n: -measured[n].mean_average_precision)
        self.measured = {name: measured[name] for name in ranked}
        self.best = ranked[0]
        self.baseline = next(name for name in ranked if name in self.baselines)
        others = [name for name in ranked if name not in self.baselines]
        self.challenger = others[0] if others else None
        first = measured[self.baseline]
        self.query_names = first.report.query
        self.queries = _find_rows(first.report.query, y)
        self.item_names = getattr(y, "document_ids", None)
        if names is not None:
            self.item_names, self.query_names = names, np.asarray(names)[self.queries]
        self.n_queries = count_queries(first.report.average_precision)
        self.gains = {name: m.gains_over(first) for name, m in self.measured.items()}
        self.table = self._tabulate()
        self.shown = self._choose_queries(n_shown)
        self.found = self._search(samples or dict.fromkeys(measured, X), y, n_neighbors)
        self._labels = _read_labels(y) if labels is None else labels
        self.made_with = (
            f"sklearn_simlearn {sklearn_simlearn.__version__}, scikit-learn "
            f"{sklearn.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}."
        )

    def _tabulate(self):
        others = [name for name in self.measured if name not in self.baselines]
        p_values = allow_for_several(
            [paired_test(pool(self.gains[name], self.units)) for name in others]
        )
        p_values = dict(zip(others, p_values.tolist(), strict=True))
        table = []
        for name, measured in self.measured.items():
            report, gains = measured.report, self.gains[name]
            score, gain = mean_interval(report.average_precision), mean_interval(gains)
            table.append(
                {
                    "similarity": name,
                    "mAP": score.value,
                    "mAP interval": (max(score.low, 0.0), min(score.high, 1.0)),
                    "P@1": float(np.nanmean(report.precision_at_1)),
                    "P@10": float(np.nanmean(report.precision_at_10)),
                    "gain": gain.value,
                    "gain interval": (max(gain.low, -1.0), min(gain.high, 1.0)),
                    "p": p_values.get(name),
                    "wins": int(np.count_nonzero(gains > 0)),
                    "losses": int(np.count_nonzero(gains < 0)),
                    "fit seconds": measured.fit_seconds,
                    "query seconds": measured.query_seconds,
                }
            )
        return table

    def _choose_queries(self, n_shown):
        """Return indices of queries in `queries`, by the title of their list."""
        name = self.baseline if self.challenger is None else self.challenger
        scores = self.measured[name].report.average_precision
        known = np.flatnonzero(~np.isnan(scores))
        lists = {}
        if self.challenger is not None:
            gains = self.gains[name]
            rising = known[np.argsort(gains[known], kind="stable")]
            gained, lost = rising[::-1][:n_shown], rising[:n_shown]
            lists["Gain most"] = gained[gains[gained] > 0]
            lists["Lose most"] = lost[gains[lost] < 0]
        rising = known[np.argsort(scores[known], kind="stable")]
        lists[f"Rank worst with {name}"] = rising[:n_shown]
        lists[f"Rank best with {name}"] = rising[::-1][:n_shown]
        return lists

    def _search(self, samples, y, n_neighbors):
        """Return items found, as (row, similarity, relevance), by name and query."""
        places = np.unique(np.concatenate(list(self.shown.values())))
        results = {}
        for name in (self.baseline, self.challenger):
            if name is None:
                continue
            found = find_neighbors(
                self.measured[name].estimator,
                samples[name],
                y,
                self.queries[places],
                n_neighbors,
            )
            hits = [
                list(zip(*lines, strict=True)) for lines in zip(*found, strict=True)
            ]
            results[name] = dict(zip(places.tolist(), hits, strict=True))
        return results

    def line(self, name: str) -> dict:
        """Return the line of an estimator in the table."""
        return next(line for line in self.table if line["similarity"] == name)

    def name_item(self, row: int) -> str:
        """Return the name of a sample, the id of a document, or the row of an item."""
        return f"row {row}" if self.item_names is None else str(self.item_names[row])

    def label(self, row: int) -> str:
        """Return the label of a sample as text; empty if `y` does not hold labels."""
        return "" if self._labels is None else str(self._labels[row])


def _read_labels(y):
    """Return the labels that the user passed; None if `y` does not hold labels."""
    if (
        isinstance(y, PairwiseRelevance | Judgements)
        or check_relevance(y).labels is None
    ):
        return None
    return np.asarray(y)


def _find_rows(names, y):
    """Return the rows of queries that a report lists by row or by id."""
    if not isinstance(y, Judgements) or y.query_ids is None:
        return names
    rows = {name: row for row, name in enumerate(y.query_ids.tolist())}
    return np.array([rows[name] for name in names.tolist()], dtype=np.intp)
