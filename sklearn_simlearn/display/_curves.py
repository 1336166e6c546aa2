"""What curves of precision share: lines, their looks, the legend."""

import numpy as np

from sklearn_simlearn import metrics
from sklearn_simlearn.display._style import (
    BLACK,
    COLORS,
    GREY,
    MARKERS,
    legend_beside,
    new_axes,
)

# Markers on a curve.
N_MARKERS = 5

# What the lines of a plot are called, for the legend to group them by.
LEARNER, BASELINE = "Learners", "Baselines"


class CurveDisplay:
    """Curves of precision with names, on axes of their own or of another display.

    A subclass has `precision`, `name` and `is_baseline`, for one curve or several.
    """

    def _plot(self, x, score, x_label, ax, n_colored, line_options):
        """Plot the curves, the best first.

        Parameters
        ----------
        x : ndarray of shape (n_points,)
            Where the points of all curves are.

        score : ndarray of shape (n_curves,)
            What says which curves are the best.
        """
        ax = new_axes(self, ax, figsize=(7.4, 4.4))
        curves = np.atleast_2d(self.precision)
        labels = self._labels()
        baseline = np.broadcast_to(self.is_baseline, len(curves))
        lines = [None] * len(curves)
        for i in np.argsort(-score, kind="stable"):
            style = _choose_style(ax, bool(baseline[i]), n_colored, len(x))
            style = {"label": labels[i], **style, **line_options}
            (lines[i],) = ax.plot(x, curves[i], **style)
        self.line_ = lines if np.ndim(self.precision) > 1 else lines[0]
        ax.set(title=self._title(), xlabel=x_label, ylabel="Precision", ylim=(0, 1.02))
        if any(label is not None for label in labels):
            _add_legend(ax)
        return self

    def _labels(self):
        """What the legend calls the curves; None for those it leaves out."""
        return [self.name] if isinstance(self.name, str | None) else list(self.name)

    def _title(self):
        over = "" if self.n_queries is None else f", {self.n_queries} queries"
        return f"{self._what}{over}"


def _choose_style(ax, is_baseline, n_colored, n_points):
    """Learners solid and filled, baselines dashed and hollow; the first in colour."""
    place = len(ax.lines)
    kind = BASELINE if is_baseline else LEARNER
    n_before = sum(line.get_gid() == kind for line in ax.lines)
    step = max(1, n_points // N_MARKERS)
    style = {
        "gid": kind,
        "marker": MARKERS[place % len(MARKERS)],
        "markersize": 5,
        "markevery": (2 * place % step, step),  # not where those of others are
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
    """Name the curves, under headings if there are both learners and baselines."""
    from matplotlib.lines import Line2D

    named, _ = ax.get_legend_handles_labels()
    kinds = {
        kind: [line for line in named if line.get_gid() == kind]
        for kind in (LEARNER, BASELINE)
    }
    handles = [line for line in named if line.get_gid() not in kinds]
    for kind, lines in kinds.items():
        if all(kinds.values()):
            handles.append(Line2D([], [], linestyle="none", label=kind))
        handles += lines
    for text in legend_beside(ax, handles).get_texts():
        if text.get_text() in kinds:
            text.set_weight("bold")


def measure(estimators, X, y, query_mask, **options):
    """Reports of fitted estimators by name."""
    return {
        name: metrics.retrieval_report(
            estimator, X, y, query_mask=query_mask, **options
        )
        for name, estimator in estimators.items()
    }


def count_queries(report):
    return int(np.count_nonzero(~np.isnan(report.average_precision)))


def check_baselines(baselines, estimators):
    unknown = set(baselines) - set(estimators)
    if unknown:
        raise ValueError(
            f"baselines names {sorted(unknown)}, which are not among the estimators "
            f"{list(estimators)}."
        )
    return set(baselines)
