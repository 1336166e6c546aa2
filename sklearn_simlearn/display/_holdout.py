"""Candidates of the hold-out, and the one that was kept."""

from numbers import Real

import numpy as np

from sklearn_simlearn.display._base import LearnerDisplay
from sklearn_simlearn.display._style import (
    BLACK,
    COLORS,
    GREY,
    MARKERS,
    legend_beside,
    new_axes,
)

# Learning curves in colour, the best ones.
N_COLORED = 3


class HoldoutDisplay(LearnerDisplay):
    """Learning curves on the hold-out of a learner, and the point that was kept.

    The axis shows how far the learner went from its start: the number of steps, or the
    share of the start that is left. Every combination of the other settings has a
    curve. Make a display with :meth:`from_estimator`, from a learner that was fitted
    with `holdout`.

    Parameters
    ----------
    candidates : list of named tuple or None
        Settings that were tried; None is the start.

    mean_average_precision : ndarray of shape (n_candidates,)
        Mean average precision of the candidates on the held-out samples.

    best_index : int
        Index of the candidate that was kept.

    error : ndarray of shape (n_candidates,), default=None
        Standard errors of the gains over the start. That of the kept candidate is
        shown.

    name : str, default=None
        Name in the title.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The curves.

    kept_ : matplotlib Line2D
        Mark of the kept candidate.

    ax_, figure_ : matplotlib Axes and Figure
        Axes and figure of the plot.

    Examples
    --------
    >>> from sklearn_simlearn import OASIS
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.display import HoldoutDisplay
    >>> X, y = load_digit_words(return_X_y=True)
    >>> learner = OASIS(holdout="samples", random_state=0).fit(X[:600], y[:600])
    >>> HoldoutDisplay.from_estimator(learner)
    <...>
    """

    def __init__(
        self, candidates, mean_average_precision, best_index, *, error=None, name=None
    ):
        self.candidates = candidates
        self.mean_average_precision = mean_average_precision
        self.best_index = best_index
        self.error = error
        self.name = name

    @classmethod
    def _from_learner(cls, learner, name):
        results = getattr(learner, "holdout_results_", None)
        if results is None:
            raise ValueError(
                f"{learner!r} has no hold-out to show: fit a learner with "
                'holdout="objects" or holdout="samples" on enough data.'
            )
        return cls(
            results["candidates"],
            results["mean_average_precision"],
            results["best_index"],
            error=results["error"],
            name=name,
        )

    def _draw(self, ax, options):
        ax = new_axes(self, ax, figsize=(7.4, 4.4))
        scores = np.asarray(self.mean_average_precision)
        along, curves = _arrange(self.candidates, scores)
        values = sorted({x for points in curves.values() for x, _ in points})
        place = dict(zip(values, values, strict=True))
        if along.startswith("n_"):  # numbers of steps, 0 and powers of 2
            place = {value: i for i, value in enumerate(values)}
            ax.set_xticks(list(place.values()), [f"{value:,}" for value in values])
        self._draw_curves(ax, curves, place, options)
        start = scores[self.candidates.index(None)]
        ax.axhline(start, color=BLACK, linestyle="--", label=f"the start ({start:.3f})")
        kept = self.candidates[self.best_index]
        x = min(place.values(), default=0)
        self._mark_kept(ax, x if kept is None else place[getattr(kept, along)])
        ax.set(
            title=f"{self.name or 'A learner'} on its hold-out",
            xlabel=along,
            ylabel="Mean average precision",
        )
        legend_beside(ax, ax.get_legend_handles_labels()[0])

    def _draw_curves(self, ax, curves, place, options):
        """Draw a curve per setting, the best ones in colour."""
        self.lines_ = []
        for i, (label, points) in enumerate(curves.items()):
            style = {
                "label": label,
                "marker": MARKERS[i % len(MARKERS)],
                "markersize": 5,
                "color": COLORS[i] if i < N_COLORED else GREY,
                "linewidth": 2 if i < N_COLORED else 1,
                "zorder": 2.5 if i < N_COLORED else 2,
            }
            if i > N_COLORED:
                style["label"] = None
            elif i == N_COLORED:
                style["label"] = f"{len(curves) - N_COLORED} others"
            line = [place[x] for x, _ in points], [score for _, score in points]
            self.lines_ += ax.plot(*line, **style | options)

    def _mark_kept(self, ax, x):
        """Mark the candidate that was kept, with the error of its gain."""
        kept = self.candidates[self.best_index]
        score = self.mean_average_precision[self.best_index]
        if kept is not None and self.error is not None:
            error = self.error[self.best_index]
            ax.errorbar([x], [score], [error], color=BLACK, capsize=4, zorder=4)
        (self.kept_,) = ax.plot(
            [x],
            [score],
            label=f"kept ({score:.3f}):\n" + _describe(kept).replace(", ", "\n"),
            marker="o",
            markersize=15,
            markerfacecolor="none",
            markeredgewidth=2,
            color=BLACK,
            linestyle="none",
            zorder=4,
        )


def _arrange(candidates, scores):
    """Return the setting along the axis, and the curves of the others, best first."""
    tried = [candidate for candidate in candidates if candidate is not None]
    if not tried:
        return "shrinkage", {}
    numbers = [
        field
        for field in tried[0]._fields
        if all(isinstance(getattr(candidate, field), Real) for candidate in tried)
    ]
    along = next((field for field in numbers if field.startswith("n_")), numbers[-1])
    curves = {}
    for candidate, score in zip(candidates, scores, strict=True):
        if candidate is not None:
            label = _describe(candidate, without=along)
            curves.setdefault(label, []).append((getattr(candidate, along), score))
    best_first = sorted(curves, key=lambda label: -max(s for _, s in curves[label]))
    return along, {label: sorted(curves[label]) for label in best_first}


def _describe(candidate, without=None):
    if candidate is None:
        return "the start"
    return ", ".join(
        f"{field}={value:,}" if isinstance(value, Real) else f"{field}={value}"
        for field, value in zip(candidate._fields, candidate, strict=True)
        if field != without
    )
