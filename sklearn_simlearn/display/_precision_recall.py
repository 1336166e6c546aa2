"""Precision against recall."""

import numpy as np

from sklearn_simlearn import metrics
from sklearn_simlearn.display._curves import (
    CurveDisplay,
    check_baselines,
    count_queries,
    measure,
)


class MeanPrecisionRecallDisplay(CurveDisplay):
    """Precision against recall, averaged over the queries.

    Make one with :meth:`from_estimator`, with :meth:`from_estimators` to compare
    several, or with :meth:`from_predictions`.

    Parameters
    ----------
    precision : ndarray of shape (n_levels,) or (n_curves, n_levels)
        Mean interpolated precision.

    recall : ndarray of shape (n_levels,)
        Levels of recall.

    mean_average_precision : float or sequence of float, default=None
        Shown in the legend; the curves are ordered by it.

    name : str or sequence of str, default=None
        Shown in the legend.

    is_baseline : bool or sequence of bool, default=False
        Whether a curve is of a baseline: then it is dashed, with hollow markers.

    n_queries : int, default=None
        Shown in the title.

    Attributes
    ----------
    line_ : matplotlib Line2D or list of them
        The curve, or the curves.

    ax_, figure_ : matplotlib Axes and Figure
        Where it is.

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

    _what = "Precision against recall"

    def __init__(
        self,
        precision,
        recall,
        *,
        mean_average_precision=None,
        name=None,
        is_baseline=False,
        n_queries=None,
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
        estimator,
        X,
        y,
        *,
        query_mask=None,
        name=None,
        is_baseline=False,
        ax=None,
        **line_options,
    ):
        """Plot the curve of a fitted estimator, each sample querying the others.

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
            Name in the legend; that of the class if None.

        is_baseline : bool, default=False
            Whether to draw it as a baseline.

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        report = metrics.retrieval_report(estimator, X, y, query_mask=query_mask)
        display = cls(
            np.nanmean(report.precision_recall, axis=0),
            report.recall_levels,
            mean_average_precision=np.nanmean(report.average_precision),
            name=type(estimator).__name__ if name is None else name,
            is_baseline=is_baseline,
            n_queries=count_queries(report),
        )
        return display.plot(ax=ax, **line_options)

    @classmethod
    def from_estimators(
        cls,
        estimators,
        X,
        y,
        *,
        baselines=(),
        query_mask=None,
        n_colored=4,
        ax=None,
        **line_options,
    ):
        """Plot the curves of several fitted estimators, the best ones in colour.

        Parameters
        ----------
        estimators : dict
            From names to fitted learners, pipelines, searches or transformers.

        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples, each of which queries the others.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        baselines : collection of str, default=()
            Names of those to draw as baselines.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query.

        n_colored : int, default=4
            How many learners to show in colour, the best ones. The others are grey.

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        baselines = check_baselines(baselines, estimators)
        return cls.from_reports(
            measure(estimators, X, y, query_mask),
            baselines=baselines,
            n_colored=n_colored,
            ax=ax,
            **line_options,
        )

    @classmethod
    def from_predictions(
        cls,
        relevance,
        similarity,
        *,
        name=None,
        is_baseline=False,
        ax=None,
        **line_options,
    ):
        """Plot the curve of given similarities.

        Parameters
        ----------
        relevance : array-like of shape (n_queries, n_items)
            Positive where an item is relevant to a query, 0 where it is not, negative
            where it is to be ignored.

        similarity : array-like of shape (n_queries, n_items)
            Similarities, larger for items that come first.

        name : str, default=None
            Name in the legend.

        is_baseline : bool, default=False
            Whether to draw it as a baseline.

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        precision, recall = metrics.precision_recall_curve(relevance, similarity)
        per_query = metrics.average_precision(relevance, similarity)
        display = cls(
            precision,
            recall,
            mean_average_precision=np.nanmean(per_query),
            name=name,
            is_baseline=is_baseline,
            n_queries=np.count_nonzero(~np.isnan(per_query)),
        )
        return display.plot(ax=ax, **line_options)

    @classmethod
    def from_reports(
        cls, reports, *, baselines=(), n_colored=4, ax=None, **line_options
    ):
        """Plot the curves of reports that are there already.

        Parameters
        ----------
        reports : dict
            From names to what :func:`~sklearn_simlearn.metrics.retrieval_report`
            returns, all of the same queries.

        baselines : collection of str, default=()
            Names of those to draw as baselines.

        n_colored : int, default=4
            How many learners to show in colour, the best ones. The others are grey.

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        baselines = check_baselines(baselines, reports)
        measured = reports.values()
        display = cls(
            np.array([np.nanmean(r.precision_recall, axis=0) for r in measured]),
            next(iter(measured)).recall_levels,
            mean_average_precision=[np.nanmean(r.average_precision) for r in measured],
            name=list(reports),
            is_baseline=[name in baselines for name in reports],
            n_queries=count_queries(next(iter(measured))),
        )
        return display.plot(ax=ax, n_colored=n_colored, **line_options)

    def plot(self, *, ax=None, n_colored=4, **line_options):
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        n_colored : int, default=4
            How many learners to show in colour, the best ones. The others are grey.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        score = self.mean_average_precision
        if score is None:
            score = np.mean(self.precision, axis=-1)
        return self._plot(
            self.recall, np.atleast_1d(score), "Recall", ax, n_colored, line_options
        )

    def _labels(self):
        labels = super()._labels()
        if self.mean_average_precision is None:
            return labels
        scores = [f"mAP = {s:.3f}" for s in np.atleast_1d(self.mean_average_precision)]
        return [
            score if label is None else f"{label} ({score})"
            for label, score in zip(labels, scores, strict=True)
        ]
