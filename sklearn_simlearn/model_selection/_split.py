"""Splitters that keep the samples of an object together, and sets of queries."""

from collections.abc import Iterator
from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.model_selection import BaseShuffleSplit, GroupKFold, GroupShuffleSplit
from sklearn.utils import check_random_state

from sklearn_simlearn._core.groups import draw_sets
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import check_query_mask
from sklearn_simlearn._core.sklearn import Interval, num_samples, validate_params
from sklearn_simlearn._core.targets import DISTRACTOR, TargetLike
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._folds import shuffle_within


class _ByObject:
    """Mixin for splitters by group: the groups are the objects in `y`."""

    def split(
        self, X: MatrixLike, y: TargetLike, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Yield the training and test indices of each split.

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
        # Each distractor is a separate object.
        alone = np.flatnonzero(objects == DISTRACTOR)
        objects[alone] = objects.max(initial=-1) + 1 + np.arange(len(alone))
        return super().split(X, groups=objects)  # type: ignore[misc]


class ObjectKFold(_ByObject, GroupKFold):
    """K folds with all samples of an object in the same fold.

    Objects of the training samples are not in the test, as is necessary to judge a
    similarity for new objects. The objects are read from `y`, so ``cv=ObjectKFold()``
    is enough.

    Parameters
    ----------
    n_splits : int, default=5
        Number of folds.

    shuffle : bool, default=False
        Assign the objects to folds at random. Otherwise, they are assigned so that the
        folds have about the same size.

    random_state : int, RandomState instance or None, default=None
        Seed of the shuffle.

    Notes
    -----
    With a relevance matrix, samples that share a column, directly or through others,
    are one object. With relevance by pairs, samples that are linked by pairs are one
    object. Distractors (label -1, or a row of zeros) are assigned one by one.

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
    """Random splits that do not separate the samples of an object.

    Parameters
    ----------
    n_splits : int, default=5
        Number of splits.

    test_size : float, int or None, default=None
        Share or number of the objects in the test. None is 0.2, or the rest if
        `train_size` is given.

    train_size : float, int or None, default=None
        Share or number of the objects in training; the rest if None.

    random_state : int, RandomState instance or None, default=None
        Seed of the splits.

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

    This is the protocol of Yan and Yu [1]_: the queries of a benchmark are not in the
    training samples. The other samples of each object are split at random, and so are
    the distractors. Pass the same queries as `query_mask` to
    :class:`~sklearn_simlearn.metrics.RetrievalScorer`.

    Parameters
    ----------
    query_mask : array-like of shape (n_samples,), dtype bool
        True for the queries, among all samples to be split.

    n_splits : int, default=5
        Number of splits.

    test_size : float, default=0.2
        Share of the other samples of each object, and of the distractors, in the test.

    random_state : int, RandomState instance or None, default=None
        Seed of the splits.

    References
    ----------
    .. [1] Z. Yan and Y. Yu. "Sparse similarity matrix learning for visual object
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
        self, X: MatrixLike, y: TargetLike | None = None, groups: Any = None
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        n_samples = num_samples(X)
        query_mask = check_query_mask(self.query_mask, n_samples)
        if not 0 <= self.test_size < 1:
            raise ValueError(f"test_size must be in [0, 1); got {self.test_size}.")
        rest = np.flatnonzero(~query_mask)
        objects = check_relevance(y, n_samples=n_samples).objects()[rest]
        rng = check_random_state(self.random_state)
        for _ in range(self.n_splits):
            row, place, size = shuffle_within(objects, rng)
            in_test = place < np.rint(self.test_size * size)
            test = np.concatenate([np.flatnonzero(query_mask), rest[row[in_test]]])
            yield np.sort(rest[row[~in_test]]), np.sort(test)


@validate_params(
    {
        "size": [Interval(Integral, 1, None, closed="left")],
        "query_mask": ["array-like", None],
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_query_sets(
    y: TargetLike,
    size: int = 5,
    *,
    query_mask: ArrayLike | None = None,
    random_state: int | np.random.RandomState | None = None,
) -> np.ndarray:
    """Draw sets of samples of one class that query together.

    Pass the result as `groups` to a scorer, to
    :func:`~sklearn_simlearn.metrics.retrieval_report` or to
    :meth:`MemoryVectorQuery.score <sklearn_simlearn.MemoryVectorQuery.score>`.

    Parameters
    ----------
    y : array-like of shape (n_samples,) or (n_samples, n_columns), or \
            PairwiseRelevance
        Labels, relevance matrix or relevance by pairs. Samples are of one class if the
        same samples are relevant to them.

    size : int, default=5
        Number of samples per set. Sets do not overlap. A class with at most this number
        of samples makes one set, which leaves one sample to be found.

    query_mask : array-like of shape (n_samples,), dtype bool, default=None
        Samples that may be in a set; if None, every sample that has a relevant one.

    random_state : int, RandomState instance or None, default=None
        Seed of the assignment to sets.

    Returns
    -------
    groups : ndarray of shape (n_samples,), dtype int64
        Number of the set of each sample; -1 for samples that do not query.

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
