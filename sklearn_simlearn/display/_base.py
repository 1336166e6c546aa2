"""Base classes of the displays."""

from sklearn_simlearn._core.unwrap import find_model


class Display:
    """Plot on given or new axes. A subclass draws in ``_draw(ax, options)``."""

    def plot(self, *, ax=None, **options):
        """Plot on given or new axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to plot on; new ones if None.

        **options : dict
            Passed on to matplotlib: to `plot` for lines, to `imshow` for images and
            tables, to `stairs` for histograms.

        Returns
        -------
        self : object
            The display itself.
        """
        self._draw(ax, options)
        return self


class LearnerDisplay(Display):
    """Plot fitted attributes of a learner, which ``_from_learner`` reads."""

    @classmethod
    def from_estimator(cls, estimator, *, name=None, ax=None, **options):
        """Plot fitted attributes of a learner.

        Parameters
        ----------
        estimator : object
            A fitted learner, or a pipeline or search with one at its end.

        name : str, default=None
            Name in the title or legend; that of the class if None.

        ax : matplotlib Axes, default=None
            Axes to plot on; new ones if None.

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
            f"{learner!r} has no `{attribute}`: pass a fitted {kind}. If its hold-out "
            "kept the start, fit it with holdout=None."
        )
