"""What the hold-out looked at, and what was kept."""

from numbers import Real

import numpy as np

from sklearn_simlearn._core.unwrap import find_model
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


class HoldoutDisplay:
    """Learning curves on what a learner held out, and the point it kept.

    Along the axis is how far the learner went from its start, in steps or by the share
    of the start that is left. The other settings it tried have a curve each. Make one
    with :meth:`from_estimator`.

    Parameters
    ----------
    candidates : list of named tuple or None
        Settings that were tried; None for the start.

    mean_average_precision : ndarray of shape (n_candidates,)
        How they rank the held-out samples.

    best_index : int
        The candidate that was kept.

    error : ndarray of shape (n_candidates,), default=None
        Standard errors of the gains over the start, shown at what was kept.

    name : str, default=None
        Shown in the title.

    Attributes
    ----------
    lines_ : list of matplotlib Line2D
        The curves.

    kept_ : matplotlib Line2D
        The mark at what was kept.

    ax_, figure_ : matplotlib Axes and Figure
        Where it is.

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
    def from_estimator(cls, estimator, *, name=None, ax=None, **line_options):
        """Plot what a fitted learner has found on its hold-out.

        Parameters
        ----------
        estimator : object
            A learner that was fitted with a `holdout`, or a pipeline or search with one
            at its end.

        name : str, default=None
            Shown in the title; the name of the class if None.

        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : HoldoutDisplay
        """
        learner = find_model(estimator).learner
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
            name=type(learner).__name__ if name is None else name,
        ).plot(ax=ax, **line_options)

    def plot(self, *, ax=None, **line_options):
        """Plot the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to plot; new ones if None.

        **line_options : dict
            Passed on to matplotlib's `plot`.

        Returns
        -------
        display : HoldoutDisplay
        """
        ax = new_axes(self, ax, figsize=(7.4, 4.4))
        scores = np.asarray(self.mean_average_precision)
        along, curves = _arrange(self.candidates, scores)
        values = sorted({x for points in curves.values() for x, _ in points})
        place = dict(zip(values, values, strict=True))
        if along.startswith("n_"):  # numbers of steps, 0 and powers of 2
            place = {value: i for i, value in enumerate(values)}
            ax.set_xticks(list(place.values()), [f"{value:,}" for value in values])
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
            self.lines_ += ax.plot(*line, **style | line_options)

        start = scores[self.candidates.index(None)]
        ax.axhline(start, color=BLACK, linestyle="--", label=f"the start ({start:.3f})")
        kept, score = self.candidates[self.best_index], scores[self.best_index]
        x = min(place.values(), default=0)
        if kept is not None:
            x = place[getattr(kept, along)]
            if self.error is not None:
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
        ax.set(
            title=f"{self.name or 'A learner'} on what it held out",
            xlabel=along,
            ylabel="Mean average precision",
        )
        legend_beside(ax, ax.get_legend_handles_labels()[0])
        return self


def _arrange(candidates, scores):
    """The setting along the axis, and the curves of the others, the best first."""
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
