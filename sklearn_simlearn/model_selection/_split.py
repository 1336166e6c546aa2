"""Splitters that know which samples show one object, and sets of such samples."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseShuffleSplit, GroupKFold, GroupShuffleSplit
from sklearn.utils import check_random_state

from sklearn_simlearn._core.groups import draw_sets
from sklearn_simlearn._core.relevance import (
    DISTRACTOR,
    check_query_mask,
    check_relevance,
)
from sklearn_simlearn._core.sklearn import Interval, num_samples, validate_params
from sklearn_simlearn._core.typing import MatrixLike


class _ByObject:
    """Mixin for splitters by group: the groups are the objects in `y`."""

    def split(
        self, X: MatrixLike, y: Any, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Training and test indices, split by split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
                PairwiseRelevance
            Labels, relevance matrix or relevance by pairs.

        groups : Ignored
            The objects in `y` are the groups.

        Yields
        ------
        train, test : ndarray
            Indices of the samples on each side.
        """
        objects = check_relevance(y, n_samples=num_samples(X)).objects()
        # Each distractor is an object of its own.
        alone = np.flatnonzero(objects == DISTRACTOR)
        objects[alone] = objects.max(initial=-1) + 1 + np.arange(len(alone))
        return super().split(X, groups=objects)  # type: ignore[misc]


class ObjectKFold(_ByObject, GroupKFold):
    """K folds with all samples of an object in the same one.

    Objects seen in training are never searched for in the test, which is how a
    similarity for new objects must be judged. The objects are read from `y`, so
    ``cv=ObjectKFold()`` is all it takes.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.

    shuffle : bool, default=False
        Deal the objects out at random. Otherwise they are dealt out so that the folds
        are of even size.

    random_state : int, RandomState instance or None, default=None
        Decides the shuffle.

    Notes
    -----
    With a relevance matrix, samples that share a column, directly or through others,
    are one object; with relevance by pairs, those that are linked by pairs. Distractors
    (label -1, or a row of zeros) are dealt out one by one.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.model_selection import ObjectKFold
    >>> y = np.array([0, 0, 1, 1, 2, 2, -1, -1])
    >>> for train, test in ObjectKFold(n_splits=2).split(np.zeros((8, 1)), y):
    ...     print(y[train], y[test])
    [ 1  1 -1 -1] [0 0 2 2]
    [0 0 2 2] [ 1  1 -1 -1]
    """


class ObjectShuffleSplit(_ByObject, GroupShuffleSplit):
    """Random splits with all samples of an object on one side.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits.

    test_size : float, int or None, default=None
        Share, or number, of the objects in the test; 0.2 if None and `train_size` is
        None too.

    train_size : float, int or None, default=None
        Share, or number, of the objects in training; the rest if None.

    random_state : int, RandomState instance or None, default=None
        Decides the splits.

    Notes
    -----
    Objects and distractors are read from `y` as in :class:`ObjectKFold`.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.model_selection import ObjectShuffleSplit
    >>> y = np.array(["cat", "dog", "cat", "emu", "dog", "emu"])
    >>> split = ObjectShuffleSplit(n_splits=1, test_size=1, random_state=0)
    >>> train, test = next(split.split(np.zeros((6, 1)), y))
    >>> print(y[train], y[test])
    ['cat' 'dog' 'cat' 'dog'] ['emu' 'emu']
    """


class QuerySplit(BaseShuffleSplit):
    """Random splits with given queries always in the test.

    The protocol of Yan and Yu [1]_: the queries of a benchmark are never trained on,
    the other samples of each object are split at random, and so are the distractors.
    Score with the same queries, by the `query_mask` of
    :class:`~sklearn_simlearn.metrics.RetrievalScorer`.

    Parameters
    ----------
    query_mask : array-like of shape (n_samples,), dtype bool
        True for the queries, of all the samples that will be split.

    n_splits : int, default=5
        Number of splits.

    test_size : float, default=0.2
        Share of the other samples of each object, and of the distractors, that goes
        into the test.

    random_state : int, RandomState instance or None, default=None
        Decides the splits.

    References
    ----------
    .. [1] J. Yan and Y. Yu. "Sparse similarity matrix learning for visual object
       retrieval". IJCNN, 2013.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.model_selection import QuerySplit
    >>> y = np.repeat([0, 1], 5)
    >>> is_query = np.arange(10) % 5 == 0
    >>> split = QuerySplit(is_query, n_splits=1, test_size=0.5, random_state=0)
    >>> train, test = next(split.split(np.zeros((10, 1)), y))
    >>> print(y[train], y[test], is_query[test].sum())
    [0 0 1 1] [0 0 0 1 1 1] 2
    """

    def __init__(
        self,
        query_mask: ArrayLike,
        *,
        n_splits: int = 5,
        test_size: float = 0.2,
        random_state: int | np.random.RandomState | None = None,
    ) -> None:
        super().__init__(
            n_splits=n_splits, test_size=test_size, random_state=random_state
        )
        self.query_mask = query_mask

    def _iter_indices(
        self, X: MatrixLike, y: Any = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        n_samples = num_samples(X)
        query_mask = check_query_mask(self.query_mask, n_samples)
        if not 0 <= self.test_size < 1:
            raise ValueError(f"test_size must be in [0, 1); got {self.test_size}.")
        rest = np.flatnonzero(~query_mask)
        objects = check_relevance(y, n_samples=n_samples).objects()[rest]
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            # Shuffle, bring the samples of each object together, cut each run.
            shuffled = rng.permutation(len(rest))
            shuffled = shuffled[np.argsort(objects[shuffled], kind="stable")]
            _, start, size = np.unique(
                objects[shuffled], return_index=True, return_counts=True
            )
            place = np.arange(len(rest)) - np.repeat(start, size)
            in_test = place < np.repeat(np.rint(self.test_size * size), size)
            test = np.concatenate([np.flatnonzero(query_mask), rest[shuffled[in_test]]])
            yield np.sort(rest[shuffled[~in_test]]), np.sort(test)


@validate_params(
    {
        "size": [Interval(Integral, 1, None, closed="left")],
        "query_mask": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_query_sets(
    y: Any,
    size: int = 5,
    *,
    query_mask: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> np.ndarray:
    """Draw sets of samples of one class that query together.

    The result goes into the `groups` of a scorer, of
    :func:`~sklearn_simlearn.metrics.retrieval_report` or of
    :meth:`MemoryVectorQuery.score <sklearn_simlearn.MemoryVectorQuery.score>`.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
            PairwiseRelevance
        Labels, relevance matrix or relevance by pairs. Samples are of one class if the
        same samples are relevant to them.

    size : int, default=5
        Number of samples per set. A class makes as many sets as it can without overlap.
        One that has no more samples than that makes one set and leaves a sample to be
        found.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that may be in a set; all that are relevant to something if None.

    random_state : int, RandomState instance or None, default=None
        Decides which samples come together.

    Returns
    -------
    groups : ndarray of shape (n_samples,), dtype int64
        Number of the set of each sample, -1 for those that do not query.

    Examples
    --------
    >>> from sklearn_simlearn.model_selection import make_query_sets
    >>> make_query_sets([7, 7, 7, 7, 7, 8, 8, 8, -1], size=2, random_state=0)
    array([ 1,  0,  0,  1, -1, -1,  2,  2, -1])
    """
    relevance = check_relevance(y)
    can_query = relevance.can_query
    if query_mask is not None:
        can_query = can_query & check_query_mask(query_mask, len(relevance))
    groups = np.full(len(relevance), DISTRACTOR, dtype=np.int64)
    if can_query.any():
        rng = check_random_state(random_state)
        sets = draw_sets(relevance, can_query, size, rng)
        groups[sets.rows] = sets.of_row
    return groups
