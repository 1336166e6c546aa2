"""Base of the displays of precision curves: lines, styles, legend."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn import metrics
from sklearn_simlearn.display._style import (
    BLACK,
    COLORS,
    GREY,
    MARKERS,
    legend_next_to,
    new_axes,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Number of markers on a curve.
N_MARKERS = 5

# Headings of the two groups of curves in the legend. A candidate need not be a learner.
CANDIDATE, BASELINE = "Candidates", "Baselines"


class CurveDisplay(ABC):
    """Named curves of precision, on new axes or on those of another display.

    A subclass sets these attributes, for one or several curves, and the class
    attributes `_title` and `_x_label`.
    """

    _title: str
    _x_label: str
    precision: np.ndarray
    name: str | Sequence[str] | None
    is_baseline: bool | Sequence[bool]
    n_queries: int | None

    @abstractmethod
    def _points(self) -> np.ndarray:
        """Return the positions of the points of a curve on the x axis."""

    @abstractmethod
    def _scores(self) -> np.ndarray:
        """Return the scores by which curves are ordered."""

    @classmethod
    @abstractmethod
    def _read(cls, reports: Sequence[Bunch]) -> dict[str, Any]:
        """Return the points of the curves as arguments of the constructor."""

    @classmethod
    def from_reports(
        cls,
        reports: Mapping[str, Bunch],
        *,
        baselines: Collection[str] = (),
        **options: Any,
    ) -> Self:
        """Plot the curves of given reports.

        Parameters
        ----------
        reports : dict
            Results of :func:`~sklearn_simlearn.metrics.retrieval_report` by name, all
            with the same queries and options.

        baselines : collection of str, default=()
            Names of the baselines, which are drawn dashed.

        **options : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : object
            The display.
        """
        check_baselines(baselines, reports)
        curves = cls._read(list(reports.values()))
        curves["name"] = list(reports)
        curves["is_baseline"] = [name in baselines for name in reports]
        first = next(iter(reports.values()))
        curves["n_queries"] = count_queries(first.average_precision)
        return cls(**curves).plot(**options)

    @classmethod
    def _from_report(cls, report: Bunch, name: str, is_baseline: bool) -> Self:
        """Return the display of one curve."""
        curves = cls._read([report])
        curves["precision"] = curves["precision"][0]
        curves |= {"name": name, "is_baseline": is_baseline}
        curves["n_queries"] = count_queries(report.average_precision)
        return cls(**curves)

    def plot(
        self, *, ax: "Axes | None" = None, n_colored: int = 4, **line_options: Any
    ) -> Self:
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        n_colored : int, default=4
            Number of candidates in colour, the best first. All others are grey.

        **line_options : dict
            Options for `plot` of matplotlib.

        Returns
        -------
        self : object
            The display itself.
        """
        ax = new_axes(self, ax, figsize=(7.4, 4.4))
        curves, x = np.atleast_2d(self.precision), self._points()
        labels = self._labels()
        baseline = np.broadcast_to(self.is_baseline, len(curves))
        lines: list[Any] = [None] * len(curves)
        for i in np.argsort(-self._scores(), kind="stable"):
            style = _choose_style(ax, bool(baseline[i]), n_colored, len(x))
            style = {"label": labels[i], **style, **line_options}
            (lines[i],) = ax.plot(x, curves[i], **style)
        self.line_ = lines if np.ndim(self.precision) > 1 else lines[0]
        over = "" if self.n_queries is None else f", {self.n_queries} queries"
        ax.set(
            title=f"{self._title}{over}",
            xlabel=self._x_label,
            ylabel="Precision",
            ylim=(0, 1.02),
        )
        if any(label is not None for label in labels):
            _add_legend(ax)
        return self

    def _labels(self):
        """Return the names of the curves in the legend; None for unnamed curves."""
        return [self.name] if isinstance(self.name, str | None) else list(self.name)


def _choose_style(ax, is_baseline, n_colored, n_points):
    """Return a solid, filled or a dashed, hollow style; the first ones in colour."""
    place = len(ax.lines)
    kind = BASELINE if is_baseline else CANDIDATE
    n_before = sum(line.get_gid() == kind for line in ax.lines)
    step = max(1, n_points // N_MARKERS)
    style = {
        "gid": kind,
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 5,
        "markevery": (2 * place % step, step),  # separates the markers of curves
    }
    if is_baseline:
        style |= {"linestyle": "--", "markerfacecolor": "white", "linewidth": 1.3}
        n_colored, colors = 1, [BLACK]
    else:
        style |= {"linestyle": "-", "linewidth": 2}
        colors = COLORS
    if n_before < n_colored:
        return style | {"color": colors[n_before % len(colors)], "zorder": 3}
    return style | {"color": GREY, "linewidth": 1}


def _add_legend(ax):
    """Name the curves, under headings if there are both candidates and baselines."""
    from matplotlib.lines import Line2D

    named, _ = ax.get_legend_handles_labels()
    kinds = {
        kind: [line for line in named if line.get_gid() == kind]
        for kind in (CANDIDATE, BASELINE)
    }
    handles = [line for line in named if line.get_gid() not in kinds]
    for kind, lines in kinds.items():
        if all(kinds.values()):
            handles.append(Line2D([], [], linestyle="none", label=kind))
        handles += lines
    for text in legend_next_to(ax, handles).get_texts():
        if text.get_text() in kinds:
            text.set_weight("bold")


def measure(estimators, X, y, query_mask, baselines=(), **options):
    """Return reports of fitted estimators by name."""
    check_baselines(baselines, estimators)
    return {
        name: metrics.retrieval_report(
            estimator, X, y, query_mask=query_mask, **options
        )
        for name, estimator in estimators.items()
    }


def count_queries(values):
    """Return the number of queries with relevant items: values that are not NaN."""
    return int(np.count_nonzero(~np.isnan(values)))


def check_baselines(baselines, estimators):
    """Return the names of the baselines as a set; raise if one is unknown."""
    unknown = set(baselines) - set(estimators)
    if unknown:
        raise ValueError(
            f"baselines contains {sorted(unknown)}, which are not among the estimators "
            f"{list(estimators)}."
        )
    return set(baselines)
