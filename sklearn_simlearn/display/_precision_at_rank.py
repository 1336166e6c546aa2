"""Precision against rank."""

import numpy as np

from sklearn_simlearn import metrics
from sklearn_simlearn.display._curves import (
    CurveDisplay,
    check_baselines,
    count_queries,
    measure,
)


class PrecisionAtRankDisplay(CurveDisplay):
    """Share of relevant items among the first k, against k.

    Make one with :meth:`from_estimator`, with :meth:`from_estimators` to compare
    several, or with :meth:`from_predictions`.

    Parameters
    ----------
    precision : ndarray of shape (n_ranks,) or (n_curves, n_ranks)
        Mean precision at each rank.

    ranks : ndarray of shape (n_ranks,)
        The ranks.

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
    MeanPrecisionRecallDisplay : Precision against recall.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn_simlearn.display import PrecisionAtRankDisplay
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_iris(return_X_y=True)
    >>> cosine = CosineSimilarity(use_idf=False).fit(X)
    >>> PrecisionAtRankDisplay.from_estimator(cosine, X, y, max_rank=20)
    <...>
    """

    _what = "Precision among the first k"

    def __init__(
        self, precision, ranks, *, name=None, is_baseline=False, n_queries=None
    ):
        self.precision = precision
        self.ranks = ranks
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
        max_rank=50,
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

        max_rank : int, default=50
            Last rank to plot.

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
        display : PrecisionAtRankDisplay
        """
        name = type(estimator).__name__ if name is None else name
        display = cls._measure(
            {name: estimator}, X, y, max_rank, query_mask, {name} if is_baseline else ()
        )
        display.precision, display.name = display.precision[0], name
        return display.plot(ax=ax, **line_options)

    @classmethod
    def from_estimators(
        cls,
        estimators,
        X,
        y,
        *,
        max_rank=50,
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

        max_rank : int, default=50
            Last rank to plot.

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
        display : PrecisionAtRankDisplay
        """
        baselines = check_baselines(baselines, estimators)
        display = cls._measure(estimators, X, y, max_rank, query_mask, baselines)
        return display.plot(ax=ax, n_colored=n_colored, **line_options)

    @classmethod
    def from_predictions(
        cls,
        relevance,
        similarity,
        *,
        max_rank=50,
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

        max_rank : int, default=50
            Last rank to plot.

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
        display : PrecisionAtRankDisplay
        """
        ranks = np.arange(1, max_rank + 1)
        per_query = [metrics.precision_at_k(relevance, similarity, k) for k in ranks]
        display = cls(
            np.nanmean(per_query, axis=1),
            ranks,
            name=name,
            is_baseline=is_baseline,
            n_queries=np.count_nonzero(~np.isnan(per_query[0])),
        )
        return display.plot(ax=ax, **line_options)

    @classmethod
    def _measure(cls, estimators, X, y, max_rank, query_mask, baselines):
        ranks = np.arange(1, max_rank + 1)
        reports = measure(estimators, X, y, query_mask, k=ranks)
        precision = [
            [np.nanmean(report[f"precision_at_{k}"]) for k in ranks]
            for report in reports.values()
        ]
        return cls(
            np.array(precision),
            ranks,
            name=list(reports),
            is_baseline=[name in baselines for name in reports],
            n_queries=count_queries(next(iter(reports.values()))),
        )

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
        display : PrecisionAtRankDisplay
        """
        score = np.atleast_2d(self.precision).mean(axis=1)
        return self._plot(self.ranks, score, "Rank", ax, n_colored, line_options)
