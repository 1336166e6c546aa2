"""Candidates of the hold-out, and the chosen candidate."""

from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np

from sklearn_simlearn.display._base import LearnerDisplay
from sklearn_simlearn.display._style import (
    BLACK,
    COLORS,
    GREY,
    MARKERS,
    legend_next_to,
    new_axes,
)

# Number of learning curves in colour, the best first.
N_COLORED = 3

# Numbers of steps that are evenly spaced, with a tick each.
MAX_TICKS = 10


class HoldoutDisplay(LearnerDisplay):
    """Learning curves on the hold-out of a learner, and the chosen candidate.

    The x axis shows how far the learner moves away from its start: the number of steps,
    or the share of the start. Every combination of the other settings has a curve. For
    a :class:`~sklearn_simlearn.compose.SimilarityUnion`, the x axis shows the weight of
    a part, and the start is the best single part. Create a display with
    :meth:`from_estimator`, from a learner that was fitted with a `holdout`.

    Parameters
    ----------
    candidates : list of named tuple, dict or None
        Settings that were tried; None is the start.

    scores : ndarray of shape (n_candidates,)
        Scores of the candidates on the held-out samples.

    best_index : int
        Index of the candidate that was kept.

    measure : str, default="Mean average precision"
        Name of the scores.

    start_index : int, default=None
        Index of the start. If None, the index of the candidate None.

    error : ndarray of shape (n_candidates,), default=None
        Standard errors of the gains over the start. The error of the kept candidate is
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
        self,
        candidates: Sequence[Any],
        scores: np.ndarray,
        best_index: int,
        *,
        measure: str = "Mean average precision",
        start_index: int | None = None,
        error: np.ndarray | None = None,
        name: str | None = None,
    ):
        self.candidates = candidates
        self.scores = scores
        self.best_index = best_index
        self.measure = measure
        self.start_index = start_index
        self.error = error
        self.name = name

    @classmethod
    def _from_learner(cls, learner, name):
        results = getattr(learner, "holdout_results_", None)
        if results is None:
            raise ValueError(
                f"{learner!r} has no hold-out to show. Fit a learner with "
                'holdout="auto" or another kind of hold-out, on enough data.'
            )
        key, measure = "mean_average_precision", "Mean average precision"
        if key not in results:
            key, measure = "ndcg_at_10", "nDCG at 10"
        candidates, start = results["candidates"], None
        if None not in candidates:  # weights of the parts of a union
            parts = list(learner.weights_)
            alone = [i for i, weights in enumerate(candidates) if max(weights) == 1]
            start = max(alone, key=lambda i: results[key][i])
            # The last weight is 1 minus the others.
            candidates = [dict(zip(parts[:-1], w, strict=False)) for w in candidates]
        return cls(
            candidates,
            results[key],
            results["best_index"],
            measure=measure,
            start_index=start,
            error=results["error"],
            name=name,
        )

    def _draw(self, ax, options):
        ax = new_axes(self, ax, figsize=(7.4, 4.4))
        scores = np.asarray(self.scores)
        along, curves = _arrange(self.candidates, scores)
        values = sorted({x for points in curves.values() for x, _ in points})
        place = dict(zip(values, values, strict=True))
        # A few numbers of steps are 0 and powers of 2; many are every step.
        if along.startswith("n_") and len(values) <= MAX_TICKS:
            place = {value: i for i, value in enumerate(values)}
            ax.set_xticks(list(place.values()), [f"{value:,}" for value in values])
        self._draw_curves(ax, curves, place, options)
        place_of_start = self.start_index
        if place_of_start is None:
            place_of_start = self.candidates.index(None)
        start = scores[place_of_start]
        ax.axhline(start, color=BLACK, linestyle="--", label=f"the start ({start:.3f})")
        kept = self.candidates[self.best_index]
        x = min(place.values(), default=0)
        self._mark_kept(ax, x if kept is None else place[_settings(kept)[along]])
        ax.set(
            title=f"{self.name or 'A learner'} on its hold-out",
            xlabel=along,
            ylabel=self.measure,
        )
        legend_next_to(ax, ax.get_legend_handles_labels()[0])

    def _draw_curves(self, ax, curves, place, options):
        """Draw one curve per setting, the best ones in colour."""
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
        score = self.scores[self.best_index]
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
    """Return the setting of the x axis, and the curves of the others, best first."""
    tried = [_settings(candidate) for candidate in candidates if candidate is not None]
    if not tried:
        return "share", {}
    numbers = [
        field
        for field in tried[0]
        if all(isinstance(settings[field], Real) for settings in tried)
    ]
    along = next((field for field in numbers if field.startswith("n_")), numbers[-1])
    curves = {}
    for candidate, score in zip(candidates, scores, strict=True):
        if candidate is not None:
            label = _describe(candidate, without=along)
            point = _settings(candidate)[along], score
            curves.setdefault(label, []).append(point)
    best_first = sorted(curves, key=lambda label: -max(s for _, s in curves[label]))
    return along, {label: sorted(curves[label]) for label in best_first}


def _describe(candidate, without=None):
    if candidate is None:
        return "the start"
    return ", ".join(
        f"{field}={value:,}" if isinstance(value, Real) else f"{field}={value}"
        for field, value in _settings(candidate).items()
        if field != without
    )


def _settings(candidate):
    """Return the settings of a candidate by name."""
    return candidate if isinstance(candidate, dict) else candidate._asdict()
