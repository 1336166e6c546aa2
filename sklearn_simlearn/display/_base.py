"""Base classes of the displays."""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, Self

from sklearn.base import BaseEstimator

from sklearn_simlearn._core.unwrap import find_model

if TYPE_CHECKING:
    from matplotlib.axes import Axes


class Display(ABC):
    """Base of plots on given or new axes."""

    @abstractmethod
    def _draw(self, ax: "Axes | None", options: dict[str, Any]) -> None:
        """Draw on given or new axes, with options of matplotlib."""

    def plot(self, *, ax: "Axes | None" = None, **options: Any) -> Self:
        """Plot on given or new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **options : dict
            Options for matplotlib: for `plot` if the display draws lines, for `imshow`
            if it draws images or tables, for `stairs` if it draws histograms.

        Returns
        -------
        self : object
            The display itself.
        """
        self._draw(ax, options)
        return self


class LearnerDisplay(Display):
    """Base of plots of the fitted attributes of a learner."""

    @classmethod
    @abstractmethod
    def _from_learner(cls, learner: BaseEstimator, name: str) -> Self:
        """Read the attributes of a fitted learner."""

    @classmethod
    def from_estimator(
        cls,
        estimator: BaseEstimator,
        *,
        name: str | None = None,
        ax: "Axes | None" = None,
        **options: Any,
    ) -> Self:
        """Plot fitted attributes of a learner.

        Parameters
        ----------
        estimator : object
            A fitted learner, or a pipeline or search that ends in one.

        name : str, default=None
            Name in the title or legend; the name of the class if None.

        ax : matplotlib Axes, default=None
            Axes to plot on; new axes if None.

        **options : dict
            Passed on to matplotlib, as in :meth:`plot`.

        Returns
        -------
        display : object
            The display.
        """
        learner = find_model(estimator).learner
        name = type(learner).__name__ if name is None else name
        return cls._from_learner(learner, name).plot(ax=ax, **options)


def require(learner, attribute, kind):
    """Raise unless a learner has a fitted attribute."""
    if not hasattr(learner, attribute):
        raise ValueError(
            f"{learner!r} has no `{attribute}`. Pass a fitted {kind}. If its hold-out "
            "kept the start, fit it with holdout=None."
        )
