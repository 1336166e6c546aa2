"""The form of a learner that its paper describes."""

from typing import Any, Self


class PaperFormMixin:
    """Mixin for learners whose defaults differ from those of their paper.

    A learner lists the parameters of the paper in `_paper_parameters`, including those
    that are defaults.
    """

    _paper_parameters: dict[str, Any] = {}

    @classmethod
    def from_paper(cls, **parameters: Any) -> Self:
        """Return the estimator with the parameters of its paper.

        The result is an ordinary estimator. The page of the learner in the
        :ref:`User Guide <learners>` lists the parameters under "The form of the paper".

        Parameters
        ----------
        **parameters : dict
            Further parameters. They take precedence over those of the paper.

        Returns
        -------
        estimator : object
            The estimator, not fitted.

        Examples
        --------
        >>> from sklearn_simlearn import OASIS
        >>> OASIS.from_paper(n_triplets=30_000)
        OASIS(holdout=None, n_triplets=30000)
        """
        return cls(**{**cls._paper_parameters, **parameters})
