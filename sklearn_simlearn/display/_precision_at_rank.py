"""Precision against rank."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator

from sklearn_simlearn import metrics
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.display._curves import CurveDisplay, count_queries, measure
from sklearn_simlearn.metrics._queries import mean_over_queries


class PrecisionAtRankDisplay(CurveDisplay):
    """Share of relevant items among the first k, against k.

    Create a display with :meth:`from_estimator`, with :meth:`from_estimators` to
    compare several, or with :meth:`from_predictions`.

    Parameters
    ----------
    precision : ndarray of shape (n_ranks,) or (n_curves, n_ranks)
        Mean precision at each rank.

    ranks : ndarray of shape (n_ranks,)
        The ranks.

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

    _title, _x_label = "Precision among the first k", "Rank"

    def __init__(
        self,
        precision: np.ndarray,
        ranks: np.ndarray,
        *,
        name: str | Sequence[str] | None = None,
        is_baseline: bool | Sequence[bool] = False,
        n_queries: int | None = None,
    ):
        self.precision = precision
        self.ranks = ranks
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
        max_rank: int = 50,
        query_mask: ArrayLike | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Plot the curve of a fitted estimator. Each sample queries the others.

        Parameters
        ----------
        estimator : object
            A fitted learner, pipeline, search or transformer.

        X, y : samples and target
            As in :meth:`MeanPrecisionRecallDisplay.from_estimator`.

        max_rank : int, default=50
            Last rank to plot.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query.

        name : str, default=None
            Name in the legend; the name of the class if None.

        **options : dict
            `is_baseline` and `ax`, as in
            :meth:`MeanPrecisionRecallDisplay.from_estimator`; the others are passed on
            to matplotlib's `plot`.

        Returns
        -------
        display : PrecisionAtRankDisplay
            The display.
        """
        ranks = np.arange(1, max_rank + 1)
        report = metrics.retrieval_report(
            estimator, X, y, query_mask=query_mask, k=ranks
        )
        name = type(estimator).__name__ if name is None else name
        display = cls._from_report(report, name, options.pop("is_baseline", False))
        return display.plot(**options)

    @classmethod
    def from_estimators(
        cls,
        estimators: Mapping[str, BaseEstimator],
        X: MatrixLike,
        y: TargetLike,
        *,
        max_rank: int = 50,
        query_mask: ArrayLike | None = None,
        baselines: Collection[str] = (),
        **options: Any,
    ) -> Self:
        """Plot the curves of several fitted estimators, the best ones in colour.

        Parameters
        ----------
        estimators : dict
            Fitted learners, pipelines, searches or transformers by name.

        X, y : samples and target
            As in :meth:`MeanPrecisionRecallDisplay.from_estimators`.

        max_rank : int, default=50
            Last rank to plot.

        query_mask : array-like of shape (n_samples,), dtype bool, default=None
            Samples that query.

        baselines : collection of str, default=()
            Names of the baselines, which are drawn dashed.

        **options : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : PrecisionAtRankDisplay
            The display.
        """
        ranks = np.arange(1, max_rank + 1)
        reports = measure(estimators, X, y, query_mask, baselines, k=ranks)
        return cls.from_reports(reports, baselines=baselines, **options)

    @classmethod
    def from_predictions(
        cls,
        relevance: ArrayLike,
        similarity: ArrayLike,
        *,
        max_rank: int = 50,
        name: str | None = None,
        **options: Any,
    ) -> Self:
        """Plot the curve of given similarities.

        Parameters
        ----------
        relevance, similarity : array-like of shape (n_queries, n_items)
            As in :meth:`MeanPrecisionRecallDisplay.from_predictions`.

        max_rank : int, default=50
            Last rank to plot.

        name : str, default=None
            Name in the legend.

        **options : dict
            `is_baseline` and `ax`, as in
            :meth:`MeanPrecisionRecallDisplay.from_predictions`; the others are passed
            on to matplotlib's `plot`.

        Returns
        -------
        display : PrecisionAtRankDisplay
            The display.
        """
        ranks = np.arange(1, max_rank + 1)
        per_query = np.stack(
            [metrics.precision_at_k(relevance, similarity, int(k)) for k in ranks]
        )
        display = cls(
            np.array([mean_over_queries(of_rank) for of_rank in per_query]),
            ranks,
            name=name,
            is_baseline=options.pop("is_baseline", False),
            n_queries=count_queries(per_query[0]),
        )
        return display.plot(**options)

    @classmethod
    def _read(cls, reports):
        prefix = "precision_at_"
        ranks = sorted(
            int(entry.removeprefix(prefix))
            for entry in reports[0]
            if entry.startswith(prefix)
        )
        precision = [
            [mean_over_queries(report[f"{prefix}{rank}"]) for rank in ranks]
            for report in reports
        ]
        return {"precision": np.array(precision), "ranks": np.array(ranks)}

    def _points(self):
        return self.ranks

    def _scores(self):
        return np.atleast_2d(self.precision).mean(axis=1)
