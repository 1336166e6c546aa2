"""Curves of precision: against recall, and against rank."""

import numpy as np

from sklearn_simlearn._sklearn import check_matplotlib_support
from sklearn_simlearn.metrics import retrieval_report


class _CurveDisplay:
    """A line with a name, on axes of its own or of another display."""

    def _plot(self, ax, x, y, x_label, label, **line_options):
        check_matplotlib_support(f"{type(self).__name__}.plot")
        import matplotlib.pyplot as plt

        if ax is None:
            _, ax = plt.subplots()
        (self.line_,) = ax.plot(x, y, label=label, **line_options)
        ax.set(xlabel=x_label, ylabel="Precision", ylim=(0, 1.02))
        if label is not None:
            ax.legend()
        self.ax_, self.figure_ = ax, ax.figure
        return self


class MeanPrecisionRecallDisplay(_CurveDisplay):
    """Precision against recall, averaged over the queries.

    Make one with :meth:`from_estimator`.

    Parameters
    ----------
    precision : ndarray of shape (n_levels,)
        Mean interpolated precision.

    recall : ndarray of shape (n_levels,)
        Levels of recall.

    mean_average_precision : float, default=None
        Shown in the legend.

    name : str, default=None
        Shown in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.

    ax_, figure_ : matplotlib Axes and Figure
        Where it is.

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

    def __init__(self, precision, recall, *, mean_average_precision=None, name=None):
        self.precision = precision
        self.recall = recall
        self.mean_average_precision = mean_average_precision
        self.name = name

    @classmethod
    def from_estimator(
        cls, estimator, X, y, *, query_mask=None, name=None, ax=None, **line_options
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

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        report = retrieval_report(estimator, X, y, query_mask=query_mask)
        display = cls(
            np.nanmean(report.precision_recall, axis=0),
            report.recall_levels,
            mean_average_precision=np.nanmean(report.average_precision),
            name=type(estimator).__name__ if name is None else name,
        )
        return display.plot(ax=ax, **line_options)

    def plot(self, *, ax=None, **line_options):
        """Plot the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : MeanPrecisionRecallDisplay
        """
        label = self.name
        if self.mean_average_precision is not None:
            score = f"mAP = {self.mean_average_precision:.3f}"
            label = score if label is None else f"{label} ({score})"
        return self._plot(
            ax, self.recall, self.precision, "Recall", label, **line_options
        )


class PrecisionAtRankDisplay(_CurveDisplay):
    """Share of relevant items among the first k, against k.

    Make one with :meth:`from_estimator`.

    Parameters
    ----------
    precision : ndarray of shape (n_ranks,)
        Mean precision at each rank.

    ranks : ndarray of shape (n_ranks,)
        The ranks.

    name : str, default=None
        Shown in the legend.

    Attributes
    ----------
    line_ : matplotlib Line2D
        The curve.

    ax_, figure_ : matplotlib Axes and Figure
        Where it is.

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

    def __init__(self, precision, ranks, *, name=None):
        self.precision = precision
        self.ranks = ranks
        self.name = name

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

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : PrecisionAtRankDisplay
        """
        ranks = np.arange(1, max_rank + 1)
        report = retrieval_report(estimator, X, y, query_mask=query_mask, k=ranks)
        precision = [np.nanmean(report[f"precision_at_{k}"]) for k in ranks]
        name = type(estimator).__name__ if name is None else name
        return cls(np.array(precision), ranks, name=name).plot(ax=ax, **line_options)

    def plot(self, *, ax=None, **line_options):
        """Plot the curve.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : PrecisionAtRankDisplay
        """
        return self._plot(
            ax, self.ranks, self.precision, "Rank", self.name, **line_options
        )
