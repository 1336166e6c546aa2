"""Splitters that keep the images of an object together, or apart as a paper does."""

import numpy as np
from sklearn.model_selection import BaseShuffleSplit, GroupKFold, GroupShuffleSplit
from sklearn.utils import check_random_state
from sklearn.utils.validation import _num_samples

from sklearn_simlearn._relevance import DISTRACTOR, check_relevance
from sklearn_simlearn.metrics._scorer import check_query_mask


class ObjectKFold(GroupKFold):
    """K folds with all samples of an object in the same one.

    Objects seen in training are never searched for in the test, which is how a
    similarity for new objects must be judged. They are read from `y` itself, so plain
    ``cv=ObjectKFold()`` works.

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
    are one object. Distractors (label -1, or a row of zeros) are dealt out one by one.

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

    def split(self, X, y, groups=None):
        """Training and test indices, fold by fold.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels or relevance matrix.

        groups : Ignored
            The objects in `y` are the groups.

        Yields
        ------
        train, test : ndarray
            Indices of the samples on each side.
        """
        return super().split(X, groups=_objects_as_groups(X, y))


class ObjectShuffleSplit(GroupShuffleSplit):
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

    def split(self, X, y, groups=None):
        """Training and test indices, split by split.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels or relevance matrix.

        groups : Ignored
            The objects in `y` are the groups.

        Yields
        ------
        train, test : ndarray
            Indices of the samples on each side.
        """
        return super().split(X, groups=_objects_as_groups(X, y))


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

    def __init__(self, query_mask, *, n_splits=5, test_size=0.2, random_state=None):
        super().__init__(
            n_splits=n_splits, test_size=test_size, random_state=random_state
        )
        self.query_mask = query_mask

    def _iter_indices(self, X, y=None, groups=None):
        n_samples = _num_samples(X)
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


def _objects_as_groups(X, y):
    """Group numbers of the samples, each distractor a group of its own."""
    groups = check_relevance(y, n_samples=_num_samples(X)).objects()
    distractors = np.flatnonzero(groups == DISTRACTOR)
    groups[distractors] = groups.max(initial=-1) + 1 + np.arange(len(distractors))
    return groups
