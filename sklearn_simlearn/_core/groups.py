"""Sets of samples that query together."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils.validation import column_or_1d

from sklearn_simlearn._core.relevance import Relevance, Rows
from sklearn_simlearn._core.rows import bounded_blocks, starts_run
from sklearn_simlearn._core.sklearn import (
    as_configured,
    get_output_config,
    num_samples,
)
from sklearn_simlearn._core.targets import DISTRACTOR
from sklearn_simlearn._core.typing import Matrix

# Number of members of small sets that are compared at a time.
SETS_TOGETHER = 256


class Sets(NamedTuple):
    """Sets of rows of the data.

    Attributes
    ----------
    rows : ndarray of int64
        The rows of the first set, of the second, and so on.

    offsets : ndarray of shape (n_sets + 1,), int64
        Set s has the slots ``offsets[s]`` to ``offsets[s + 1] - 1`` of `rows`.

    names : ndarray of shape (n_sets,) or None
        Names of the sets, as given by the user.
    """

    rows: np.ndarray
    offsets: np.ndarray
    names: np.ndarray | None = None

    @property
    def n_sets(self) -> int:
        return len(self.offsets) - 1

    @property
    def sizes(self) -> np.ndarray:
        return self.offsets[1:] - self.offsets[:-1]

    @property
    def of_row(self) -> np.ndarray:
        """Set of each slot of `rows`."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def block(self, start: int, stop: int) -> "Sets":
        """Return the sets `start` to ``stop - 1``."""
        offsets = self.offsets[start : stop + 1]
        return Sets(self.rows[offsets[0] : offsets[-1]], offsets - offsets[0])

    def blocks(self, cost: np.ndarray, limit: int) -> Iterator[tuple[int, "Sets"]]:
        """Yield consecutive sets of limited total cost, with the number of the first.

        A set whose cost alone exceeds the limit is yielded by itself.

        Parameters
        ----------
        cost : ndarray of shape (n_sets,)
        limit : int
        """
        for part in bounded_blocks(cost, limit):
            yield part.start, self.block(part.start, part.stop)


def sets_of_one(rows: np.ndarray) -> Sets:
    """Return each row as its own set."""
    return Sets(rows, np.arange(len(rows) + 1), rows)


def read_groups(groups: ArrayLike | None, n_samples: int) -> Sets:
    """Check `groups`, one per sample; each sample is its own set if None."""
    if groups is None:
        return sets_of_one(np.arange(n_samples))
    groups = _check_groups(groups, n_samples)
    if _is_missing(groups).any():
        raise ValueError("groups contains NaN or None: every query belongs to a set.")
    return _sort_into_sets(groups, np.arange(n_samples))


def name_sets(estimator: object, M: Matrix, groups: ArrayLike | None) -> Any:
    """Return encoded sets; as a frame with their names, if pandas output is set.

    Scikit-learn would use the index of `X`, which has other rows.

    Parameters
    ----------
    estimator : object
        Estimator with a `set_output`.

    M : ndarray or csr_array of shape (n_sets, n_features_out)
        Encoded sets.

    groups : array-like of shape (n_queries,) or None
        Set of each query.
    """
    wants_frame = get_output_config("transform", estimator)["dense"] == "pandas"
    if groups is None or not wants_frame or sparse.issparse(M):
        return as_configured(M)
    import pandas as pd

    names = read_groups(groups, num_samples(groups)).names
    return pd.DataFrame(M, index=pd.Index(names, name=getattr(groups, "name", None)))


def read_query_groups(groups: ArrayLike | None, can_query: np.ndarray) -> Sets:
    """Return the sets of samples that can query; -1, NaN and None are not in a set.

    Parameters
    ----------
    groups : array-like of shape (n_samples,) or None
        Set of each sample; each sample is its own set if None.

    can_query : ndarray of shape (n_samples,), dtype bool
        Samples that may be in a set.
    """
    if groups is None:
        return sets_of_one(np.flatnonzero(can_query))
    names = _check_groups(groups, len(can_query))
    in_set = can_query & ~_is_missing(names)
    if names.dtype.kind in "ifO":
        in_set &= names != DISTRACTOR
    rows = np.flatnonzero(in_set)
    return _sort_into_sets(names[rows], rows)


def set_relevance(
    relevance: Relevance, sets: Sets, items: Rows, *, graded: bool = False
) -> np.ndarray:
    """Return the relevance of items to sets: the minimum over the members.

    An item is relevant to a set if it is relevant to all members, and junk if it is
    junk for one of them.

    Parameters
    ----------
    relevance : Relevance
        Relevance of the samples to each other.

    sets : Sets
        Sets whose members are all compared with all items at once.

    items : slice or ndarray of int
        Samples that are ranked.

    graded : bool, default=False
        True for weights instead of 1.

    Returns
    -------
    block : ndarray of shape (n_sets, n_items)
    """
    find = relevance.graded_block if graded else relevance.block
    block = find(sets.rows, items)
    if (sets.sizes == 1).all():
        return block
    return np.minimum.reduceat(block, sets.offsets[:-1], axis=0)


def refuse_mixed_sets(relevance: Relevance, sets: Sets) -> None:
    """Raise if members of a set are not relevant to each other."""
    for _, block in sets.blocks(sets.sizes, SETS_TOGETHER):
        related = relevance.block(block.rows, block.rows) > 0
        if (~related & (block.of_row[:, None] == block.of_row)).any():
            raise ValueError(
                "groups puts samples into one set that are not relevant to each other "
                "by y. A set of queries shows one object."
            )


def draw_sets(
    relevance: Relevance,
    can_query: np.ndarray,
    size: int,
    rng: np.random.RandomState | np.random.Generator,
) -> Sets:
    """Draw disjoint sets of `size` samples to which the same samples are relevant."""
    kind = relevance.kinds()
    rows = rng.permutation(np.flatnonzero(can_query))
    kinds = _sort_into_sets(kind[rows], rows)

    # Keep at least one sample of each kind as an item. Incomplete sets do not query.
    n_of_kind = np.bincount(kind[relevance.can_query])[kinds.names]
    size = np.minimum(np.clip(n_of_kind - 1, 1, size), kinds.sizes)
    n_used = np.repeat(kinds.sizes // size * size, kinds.sizes)
    place = np.arange(len(rows)) - np.repeat(kinds.offsets[:-1], kinds.sizes)
    used = place < n_used
    starts_set = (place % np.repeat(size, kinds.sizes) == 0)[used]
    first = np.append(np.flatnonzero(starts_set), len(starts_set))
    return Sets(kinds.rows[used], first)


def _sort_into_sets(group: np.ndarray, rows: np.ndarray) -> Sets:
    """Return one set per group, in sorted order; rows keep their order in a set."""
    try:
        order = np.argsort(group, kind="stable")
    except TypeError:
        raise TypeError(
            "groups mixes labels of different types: use integers only, or strings "
            "only."
        ) from None
    group = group[order]
    first = np.flatnonzero(starts_run(group))
    return Sets(rows[order], np.append(first, len(rows)), group[first])


def _check_groups(groups: ArrayLike, n_samples: int) -> np.ndarray:
    names: np.ndarray = column_or_1d(groups)
    if len(names) != n_samples:
        raise ValueError(
            f"groups and X must have the same number of samples; got {len(names)} and "
            f"{n_samples}."
        )
    return names


def _is_missing(groups: np.ndarray) -> np.ndarray:
    if groups.dtype.kind not in "fO":
        return np.zeros(len(groups), dtype=bool)
    return np.array([group is None or group != group for group in groups], dtype=bool)
