"""Precision against recall."""

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_simlearn import metrics
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.display._curves import CurveDisplay, count_queries, measure
from sklearn_simlearn.metrics._queries import mean_over_queries

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class MeanPrecisionRecallDisplay(CurveDisplay):
    """Precision against recall, averaged over the queries.

    Create a display with :meth:`from_estimator`, with :meth:`from_estimators` to
    compare several, or with :meth:`from_predictions`.

    Parameters
    ----------
    precision : ndarray of shape (n_levels,) or (n_curves, n_levels)
        Mean interpolated precision.

    recall : ndarray of shape (n_levels,)
        Levels of recall.

    mean_average_precision : float or sequence of float, default=None
        Score in the legend, by which the curves are ordered.

    name : str or sequence of str, default=None
        Name in the legend.

    is_baseline : bool or sequence of bool, default=False
        Whether a curve is a baseline, drawn dashed with hollow markers.

    n_queries : int, default=None
        Number of queries in the title.

    Attributes
    ----------
    line_ : matplotlib Line2D or list of them
        The curve, or the curves.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    See Also
    --------
    PrecisionAtRankDisplay : Precision among the first k.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn.display import MeanPrecisionRecallDisplay
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_iris(return_X_y=True)
    >>> cosine = CosineSimilarity(use_idf=False).fit(X)
    >>> MeanPrecisionRecallDisplay.from_estimator(cosine, X, y)
    <...>
    """

    _title, _x_label = "Precision against recall", "Recall"

    def __init__(
        self,
        precision: np.ndarray,
        recall: np.ndarray,
        *,
        mean_average_precision: float | Sequence[float] | None = None,
        name: str | Sequence[str] | None = None,
        is_baseline: bool | Sequence[bool] = False,
        n_queries: int | None = None,
    ):
        self.precision = precision
        self.recall = recall
        self.mean_average_precision = mean_average_precision
        self.name = name
        self.is_baseline = is_baseline
        self.n_queries = n_queries

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        X: MatrixLike,
        y: TargetLike,
        *,
        query_mask: ArrayLike | None = None,
        name: str | None = None,
        is_baseline: bool = False,
        ax: "Axes | None" = None,
        **line_options: Any,
    ) -> Self:
        """Plot the curve of a fitted estimator. Each sample queries the others.

        Parameters
        ----------
        estimator : object
            A fitted learner, pipeline, search or transformer.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query.

        name : str, default=None
            Name in the legend; the name of the class if None.

        is_baseline : bool, default=False
            Whether to draw the curve as a baseline.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **line_options : dict
            Options for `plot` of matplotlib.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
            The display.
        """
        report = metrics.retrieval_report(estimator, X, y, query_mask=query_mask)
        name = type(estimator).__name__ if name is None else name
        display = cls._from_report(report, name, is_baseline)
        return display.plot(ax=ax, **line_options)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, BaseEstimator],
        X: MatrixLike,
        y: TargetLike,
        *,
        query_mask: ArrayLike | None = None,
        baselines: Collection[str] = (),
        **options: Any,
    ) -> Self:
        """Plot the curves of several fitted estimators, the best ones in colour.

        Parameters
        ----------
        estimators : dict
            Fitted learners, pipelines, searches or transformers by name.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, each of which queries the others.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query.

        baselines : collection of str, default=()
            Names of the baselines, which are drawn dashed.

        **options : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
            The display.
        """
        reports = measure(estimators, X, y, query_mask, baselines)
        return cls.from_reports(reports, baselines=baselines, **options)

    @classmethod
    def from_predictions(
        cls,
        relevance: ArrayLike,
        similarity: ArrayLike,
        *,
        name: str | None = None,
        is_baseline: bool = False,
        ax: "Axes | None" = None,
        **line_options: Any,
    ) -> Self:
        """Plot the curve of given similarities.

        Parameters
        ----------
        relevance : array-like of shape (n_queries, n_items)
            Positive for relevant items, 0 for others, negative for items to ignore.

        similarity : array-like of shape (n_queries, n_items)
            Similarities, larger for items that come first.

        name : str, default=None
            Name in the legend.

        is_baseline : bool, default=False
            Whether to draw the curve as a baseline.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **line_options : dict
            Options for `plot` of matplotlib.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
            The display.
        """
        precision, recall = metrics.precision_recall_curve(relevance, similarity)
        per_query = np.asarray(metrics.average_precision(relevance, similarity))
        display = cls(
            precision,
            recall,
            mean_average_precision=mean_over_queries(per_query),
            name=name,
            is_baseline=is_baseline,
            n_queries=count_queries(per_query),
        )
        return display.plot(ax=ax, **line_options)

    @classmethod
    def _read(cls, reports):
        scores = [mean_over_queries(report.average_precision) for report in reports]
        return {
            "precision": np.array(
                [np.nanmean(report.precision_recall, axis=0) for report in reports]
            ),
            "recall": reports[0].recall_levels,
            "mean_average_precision": scores,
        }

    def _points(self):
        return self.recall

    def _scores(self):
        if self.mean_average_precision is None:
            return np.atleast_2d(self.precision).mean(axis=1)
        return np.atleast_1d(self.mean_average_precision)

    def _labels(self):
        labels = super()._labels()
        if self.mean_average_precision is None:
            return labels
        scores = [f"mAP = {s:.3f}" for s in np.atleast_1d(self.mean_average_precision)]
        return [
            score if label is None else f"{label} ({score})"
            for label, score in zip(labels, scores, strict=True)
        ]
