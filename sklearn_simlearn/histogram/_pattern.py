"""Fewer weights for HistogramRankSVM: pairs of counts that share one."""

import warnings
from collections.abc import Iterator
from numbers import Integral

import numpy as np
from sklearn.base import clone
from sklearn.model_selection import cross_val_score

from sklearn_simlearn._core.sklearn import Interval, validate_params
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn.histogram._histogram import HistogramRankSVM
from sklearn_simlearn.histogram._table import make_pattern
from sklearn_simlearn.model_selection import ObjectKFold


@validate_params(
    {
        "estimator": [HistogramRankSVM],
        "n_bins": [Interval(Integral, 2, None, closed="left")],
        "cv": ["cv_object"],
    },
    prefer_skip_nested_validation=True,
)
def search_weight_pattern(
    estimator: HistogramRankSVM,
    X: MatrixLike,
    y: MatrixLike,
    *,
    n_bins: int,
    cv=None,
) -> list[tuple[float, np.ndarray]]:
    """Merge pairs of counts greedily until there are few weights per group.

    Adjacent bins are merged one by one, each time the two whose merger leaves the
    highest mean average precision of the learned similarity.

    Parameters
    ----------
    estimator : HistogramRankSVM
        The learner, with an integer `truncation`. The search goes on from its
        `weight_pattern`, and learns without a hold-out.

    X : {array-like, sparse matrix} of shape (n_samples, n_features)
        Counts.

    y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
        Labels or a relevance matrix, as for `fit`.

    n_bins : int
        Number of bins at which to stop.

    cv : int, cross-validation generator or iterable, default=None
        Folds to judge a merger by. An int is the number of folds of a
        :class:`~sklearn_simlearn.model_selection.ObjectKFold`. None judges it on the
        training data.

    Returns
    -------
    history : list of tuple (float, ndarray of shape (n + 1, n + 1))
        Mean average precision and pattern after each merger, the pattern it began with
        first. Any of them is a `weight_pattern`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn import HistogramRankSVM, search_weight_pattern
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(20), 3)
    >>> X = rng.poisson(rng.gamma(0.1, 1.0, size=(20, 100))[y] + 0.1)
    >>> learner = HistogramRankSVM(truncation=1, n_word_groups=1)
    >>> history = search_weight_pattern(learner, X, y, n_bins=2)
    >>> history[-1][1]
    array([[0, 0],
           [0, 1]])
    """
    if not isinstance(estimator.truncation, Integral):
        raise ValueError(
            "The search needs a truncation that is known before the data: set it to an "
            f"integer instead of {estimator.truncation!r}."
        )
    if isinstance(cv, Integral):
        cv = ObjectKFold(cv)

    def judge(pattern):
        learner = clone(estimator).set_params(weight_pattern=pattern, holdout=None)
        with warnings.catch_warnings():
            # A merger that leaves nothing to learn is just not chosen.
            warnings.filterwarnings("ignore", "No weights are better than 0")
            if cv is None:
                return learner.fit(X, y).score(X, y)
            values = cross_val_score(learner, X, y, cv=cv, error_score="raise")
        return float(np.mean(values))

    pattern = make_pattern(estimator.weight_pattern, estimator.truncation)
    history = [(judge(pattern), pattern)]
    while history[-1][1].max() >= n_bins:
        candidates = list(find_mergers(history[-1][1]))
        values = [judge(candidate) for candidate in candidates]
        best = int(np.argmax(values))
        history.append((values[best], candidates[best]))
    return history


def find_mergers(pattern: np.ndarray) -> Iterator[np.ndarray]:
    """Every pattern with two adjacent bins of this one made one."""
    pairs = np.concatenate(
        [
            np.column_stack([pattern[:-1].ravel(), pattern[1:].ravel()]),
            np.column_stack([pattern[:, :-1].ravel(), pattern[:, 1:].ravel()]),
        ]
    )
    for low, high in np.unique(np.sort(pairs, axis=1), axis=0):
        if low < high:
            merged = np.where(pattern == high, low, pattern)
            yield merged - (merged > high)
