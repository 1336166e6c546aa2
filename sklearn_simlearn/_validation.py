"""Early stopping: held-out samples measure the model during learning."""

from collections.abc import Callable
from numbers import Integral
from typing import Any

import numpy as np

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._folds import Fold, shuffle_within
from sklearn_simlearn._holdout import HOLDOUT, START, Judge

# Values of `holdout` of a learner that can stop early.
HOLDOUT_OR_NUMBER = [*HOLDOUT, Interval(Integral, 1, None, closed="left")]
# The same values if the held-out samples query each other.
HOLDOUT_OR_SEVERAL = [*HOLDOUT, Interval(Integral, 2, None, closed="left")]

# Largest number of held-out samples, and of their pairs with searched samples.
MAX_QUERIES = 1000
MAX_PAIRS = 10**8


class Validation:
    """Held-out samples of each class, and the best model on them.

    A model is measured by the mean average precision of the held-out samples, which
    query the samples that it learns from, or each other. The start is measured first.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked samples.

    relevance : Relevance
        Relevance of the samples to each other.

    n_per_object : int
        Number of samples of each class or column to hold out. Classes that would keep
        fewer than two samples are not divided.

    rng : Generator
        Decides which samples are held out.

    among_themselves : bool, default=False
        Whether the held-out samples query each other.

    Attributes
    ----------
    train : ndarray of int
        Rows to learn from.

    best : object
        The model with the highest mean average precision so far.
    """

    def __init__(
        self,
        X: Matrix,
        relevance: Relevance,
        n_per_object: int,
        rng: np.random.Generator,
        *,
        among_themselves: bool = False,
    ):
        held_out = _hold_out(relevance, n_per_object, rng, among_themselves)
        self.train = np.setdiff1d(np.arange(len(relevance)), held_out)
        self.judge = Judge(X, relevance, by_class=False)
        items = held_out if among_themselves else self.train
        self.judge.open(Fold(self.train, held_out, items))
        learnable = relevance.take(self.train).find_queries()
        if not (len(self.judge.relevant) and learnable.any()):
            raise ValueError(
                f"holdout={n_per_object} holds out this number of samples of each "
                f"class with at least {n_per_object + 2}. y has too few such classes. "
                "Pass a smaller number, or None to hold out nothing."
            )
        self.best: Any = None
        self.highest_gain = -np.inf

    def record(self, candidate: Any, encoder: Encoder, copy: Callable[[], Any]) -> None:
        """Measure a model, and keep a copy if it is the best so far.

        The candidate is `START`, or a named tuple with the number of steps.
        """
        self.judge.record(candidate, encoder)
        measured = self.judge.measures[-1]
        gain = (measured[candidate].quality - measured[START].quality).mean()
        if gain > self.highest_gain:
            self.best, self.highest_gain = copy(), gain

    def attributes(self) -> dict[str, Any]:
        """Return `holdout_gain_`, `holdout_error_` and `holdout_results_`."""
        return self.judge.choose(caution=0.0, loss_at_1=0.0).attributes


def _hold_out(
    relevance: Relevance, n_per_object: int, rng: np.random.Generator, by_class: bool
) -> np.ndarray:
    """Return some samples of each class or column.

    If there are too many samples, fewer are held out per class. With `by_class`, none
    are held out of some classes instead.
    """
    if isinstance(relevance, JudgedRelevance):
        raise ValueError(
            f"holdout={n_per_object} holds out samples of each class and is not valid "
            "for judgements or triplets: pass 'queries', 'documents', None or 'auto'."
        )
    members = relevance.memberships
    row = np.repeat(np.arange(len(relevance)), np.diff(members.indptr))
    entry, place, size = shuffle_within(members.indices, rng)
    taken = rng.permutation(
        np.flatnonzero((place < n_per_object) & (size >= n_per_object + 2))
    )
    order = place
    if by_class:
        order = rng.permutation(members.shape[1])[members.indices[entry]]
    taken = taken[np.argsort(order[taken], kind="stable")]
    n_queries = min(MAX_QUERIES, max(1, MAX_PAIRS // max(len(relevance), 1)))
    return np.unique(row[entry[taken[:n_queries]]])
