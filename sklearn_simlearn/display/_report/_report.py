"""The report of a comparison: measured once, shown as a page."""

import os
import secrets
from html import escape
from pathlib import Path

import numpy as np
import scipy
import sklearn
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

import sklearn_simlearn
from sklearn_simlearn._measured import Measured, measure
from sklearn_simlearn._progress import progress, timed_fit
from sklearn_simlearn._relevance import PairwiseRelevance, check_relevance
from sklearn_simlearn._sklearn import num_samples
from sklearn_simlearn._statistics import (
    allow_for_several,
    mean_interval,
    paired_test,
)
from sklearn_simlearn.display._curves import check_baselines
from sklearn_simlearn.display._pictures import read_pictures
from sklearn_simlearn.display._report._page import make_page
from sklearn_simlearn.display._report._thumbnails import MAX_PIXEL_ART, encode_pictures
from sklearn_simlearn.display._search import find_neighbors


class RetrievalReport:
    """One HTML page that compares estimators, query by query.

    It has a table with confidence intervals and paired tests, curves, gains and losses
    of each query, the queries that are best, worst and most changed with what they
    found, and what was fitted. The page is one file that needs no network, and works
    without JavaScript; with it, tables sort and filter. In a notebook the report shows
    itself.

    Parameters
    ----------
    estimators : dict
        From names to learners, pipelines, searches or transformers. Those that are not
        fitted are cloned and fitted on `X_train` and `y_train`.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Samples that took no part in the fits. Each queries all the others.

    y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
            PairwiseRelevance
        Labels, relevance matrix or relevance by pairs.

    images : sequence of length n_samples, default=None
        Images of the samples: arrays of shape (height, width) or (height, width, 3), or
        Pillow images. They are made small enough for the page.

    texts : sequence of length n_samples, default=None
        Texts of the samples.

    baselines : collection of str, default=None
        Names of what is to be beaten: gains are over the best of them. The first
        estimator if None.

    X_train, y_train : default=None
        Samples for estimators that are not fitted.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that query; all that are relevant to something if None.

    n_shown : int, default=6
        Queries in each of four lists: those that gain most, lose most, rank best and
        rank worst.

    n_neighbors : int, default=8
        Results that are shown of a query.

    title : str, default="Retrieval report"
        Title of the page.

    Attributes
    ----------
    table_ : list of dict
        A line per estimator, as in the table of the page.

    gains_ : dict of ndarray of shape (n_queries,)
        Gain of each query in average precision over the baseline, by name.

    queries_ : ndarray of shape (n_queries,)
        Rows of `X` that query.

    baseline_, best_ : str
        Name of the best baseline, and of the best of all.

    estimators_ : dict
        The fitted estimators.

    See Also
    --------
    NeighborsDisplay : Queries with their results as a figure.
    sklearn_simlearn.metrics.retrieval_report : The measures alone.

    Notes
    -----
    All text that comes from data is escaped. While estimators are fitted and measured,
    progress is shown on a terminal and in notebooks, if rich is installed.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn import OASIS
    >>> from sklearn_simlearn.display import RetrievalReport
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_iris(return_X_y=True)
    >>> report = RetrievalReport(
    ...     {
    ...         "cosine": CosineSimilarity(use_idf=False),
    ...         "OASIS": OASIS(holdout="samples", random_state=0),
    ...     },
    ...     X[1::2],
    ...     y[1::2],
    ...     X_train=X[::2],
    ...     y_train=y[::2],
    ... )
    >>> report.best_
    'OASIS'
    >>> report.save("report.html")  # doctest: +SKIP
    """

    def __init__(
        self,
        estimators,
        X,
        y,
        images=None,
        texts=None,
        *,
        baselines=None,
        X_train=None,
        y_train=None,
        query_mask=None,
        n_shown=6,
        n_neighbors=8,
        title="Retrieval report",
    ):
        estimators = _check_estimators(estimators, X_train)
        measured = {}
        with progress(list(estimators)) as show:
            for name, estimator in estimators.items():
                show(name)
                seconds = None
                if not _is_fitted(estimator):
                    estimator = clone(estimator)
                    seconds = timed_fit(estimator, X_train, y_train, name, show)
                show(name, "search")
                measured[name] = measure(
                    estimator, X, y, query_mask=query_mask, fit_seconds=seconds
                )
        self._compile(
            measured,
            X,
            y,
            images=images,
            texts=texts,
            baselines=baselines,
            n_shown=n_shown,
            n_neighbors=n_neighbors,
            title=title,
        )

    @classmethod
    def _from_measured(cls, measured: dict[str, Measured], X, y, **options):
        """Of what was measured before, with the options of the constructor."""
        report = cls.__new__(cls)
        report._compile(measured, X, y, **options)
        return report

    def _compile(
        self,
        measured,
        X,
        y,
        *,
        images=None,
        texts=None,
        baselines=None,
        n_shown=6,
        n_neighbors=8,
        title="Retrieval report",
        advice=(),
        code="",
    ):
        self.title, self.advice, self.code = title, advice, code
        self.images, self.texts = images, texts
        self.n_samples_ = num_samples(X)
        for name, values in (("images", images), ("texts", texts)):
            if values is not None and num_samples(values) != self.n_samples_:
                raise ValueError(
                    f"{name} must have one entry for each of the {self.n_samples_} "
                    f"samples; got {num_samples(values)}."
                )
        for name, value in (("n_shown", n_shown), ("n_neighbors", n_neighbors)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}.")
        best_first = sorted(measured, key=lambda n: -measured[n].mean_average_precision)
        self.measured_ = {name: measured[name] for name in best_first}
        self.names = best_first
        self.baselines = check_baselines(
            list(measured)[:1] if baselines is None else baselines, measured
        )
        if not self.baselines:
            raise ValueError("baselines must name at least one of the estimators.")
        self.estimators_ = {name: m.estimator for name, m in measured.items()}
        self.best_ = best_first[0]
        self.baseline_ = next(n for n in best_first if n in self.baselines)
        self.rival_ = next((n for n in best_first if n not in self.baselines), None)
        first = measured[self.baseline_]
        self.queries_ = first.report.query
        self.n_queries_ = int(
            np.count_nonzero(~np.isnan(first.report.average_precision))
        )
        self.gains_ = {name: m.gains_over(first) for name, m in self.measured_.items()}
        self.table_ = self._tabulate()
        self._labels = _read_labels(y)
        self.shown_ = self._choose_queries(n_shown)
        self.found_ = self._search(X, y, n_neighbors)
        self.made_with = (
            f"{num_samples(X)} samples of {X.shape[1]} features. "
            if hasattr(X, "shape")
            else ""
        ) + (
            f"sklearn_simlearn {sklearn_simlearn.__version__}, scikit-learn "
            f"{sklearn.__version__}, NumPy {np.__version__}, SciPy {scipy.__version__}."
        )

    def _tabulate(self):
        others = [name for name in self.names if name != self.baseline_]
        p_values = allow_for_several(
            [paired_test(self.gains_[name]) for name in others]
        )
        p_values = dict(zip(others, p_values.tolist(), strict=True))
        table = []
        for name, measured in self.measured_.items():
            report, gains = measured.report, self.gains_[name]
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
        """Places of queries in `queries_`, by the title of their list."""
        name = self.baseline_ if self.rival_ is None else self.rival_
        scores = self.measured_[name].report.average_precision
        known = np.flatnonzero(~np.isnan(scores))
        lists = {}
        if self.rival_ is not None:
            gains = self.gains_[name]
            rising = known[np.argsort(gains[known], kind="stable")]
            gained, lost = rising[::-1][:n_shown], rising[:n_shown]
            lists["Gain most"] = gained[gains[gained] > 0]
            lists["Lose most"] = lost[gains[lost] < 0]
        rising = known[np.argsort(scores[known], kind="stable")]
        lists[f"Rank worst with {name}"] = rising[:n_shown]
        lists[f"Rank best with {name}"] = rising[::-1][:n_shown]
        return lists

    def _search(self, X, y, n_neighbors):
        """By name and place: the items found, as (row, similarity, relevance)."""
        places = np.unique(np.concatenate(list(self.shown_.values())))
        names = [self.baseline_] + ([self.rival_] if self.rival_ is not None else [])
        results = {}
        for name in names:
            found = find_neighbors(
                self.estimators_[name], X, y, self.queries_[places], n_neighbors
            )
            hits = [
                list(zip(*lines, strict=True)) for lines in zip(*found, strict=True)
            ]
            results[name] = dict(zip(places.tolist(), hits, strict=True))
        return results

    def label(self, row) -> str:
        """Label of a sample as text; empty if `y` is no labels."""
        return "" if self._labels is None else str(self._labels[row])

    def to_html(self) -> str:
        """The page.

        Returns
        -------
        page : str
            A whole HTML document.
        """
        if self.images is None:
            self.has_pixel_art = False
            return make_page(self, {})
        rows = {
            int(self.queries_[p]) for places in self.shown_.values() for p in places
        }
        for found in self.found_.values():
            rows.update(int(hit[0]) for hits in found.values() for hit in hits)
        pictures = read_pictures(self.images, sorted(rows))
        sides = [max(picture.shape[:2]) for picture in pictures.values()]
        self.has_pixel_art = max(sides) <= MAX_PIXEL_ART
        return make_page(self, encode_pictures(pictures))

    def save(self, path) -> None:
        """Write the page to a file, which is whole or not there.

        Parameters
        ----------
        path : str or path-like
            The file.
        """
        path, content = Path(path), self.to_html().encode()
        aside = path.with_name(f".{secrets.token_hex(8)}")
        try:
            aside.write_bytes(content)
            os.replace(aside, path)
        except BaseException:
            aside.unlink(missing_ok=True)
            raise

    def _repr_html_(self):
        """The page in a frame, so that its style stays its own."""
        return (
            '<iframe sandbox="allow-scripts" style="width:100%;height:40rem;border:0" '
            f'srcdoc="{escape(self.to_html())}"></iframe>'
        )

    def __repr__(self):
        return (
            f"RetrievalReport({self.names}, {self.n_queries_} queries, best: "
            f"{self.best_!r})"
        )


def _check_estimators(estimators, X_train):
    if not isinstance(estimators, dict) or not estimators:
        raise TypeError(
            "estimators must be a dict from names to estimators, with at least one; "
            f"got {estimators!r}."
        )
    for name, estimator in estimators.items():
        if X_train is None and not _is_fitted(estimator):
            raise NotFittedError(
                f"{name!r} is not fitted: fit it first, or give X_train and y_train."
            )
    return {str(name): estimator for name, estimator in estimators.items()}


def _is_fitted(estimator):
    try:
        check_is_fitted(estimator)
    except NotFittedError:
        return False
    return True


def _read_labels(y):
    """Labels as the user wrote them; None if `y` is something else."""
    if isinstance(y, PairwiseRelevance) or check_relevance(y).labels is None:
        return None
    return np.asarray(y)
