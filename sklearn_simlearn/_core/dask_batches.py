"""Random samples and shuffled batches of partitioned data, for learners.

A partition may hold only one class, and thus no triplet. Therefore, a few partitions at
a time are cut at random into batches, each with rows of all of them. A worker needs
memory for the pieces of one batch only.
"""

from copy import deepcopy
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from sklearn.base import clone

from sklearn_simlearn._core.dask import (
    matching_blocks,
    read_rows,
    row_blocks,
    settle,
    stack,
)
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import KEPT_ATTRIBUTES, num_samples, safe_indexing
from sklearn_simlearn._core.targets import DISTRACTOR

# Number of partitions that are shuffled together, and of the resulting batches. They
# must fit into the memory of the whole cluster.
TOGETHER = 16

# Number of samples in memory from which statistics are estimated.
SAMPLE = 20_000

# Smallest number of samples drawn from a class, so that most classes have pairs.
PER_CLASS = 50


class Batch:
    """Checked rows and targets, as one object that Dask does not inspect."""

    def __init__(self, X, y):
        self.X, self.y = X, y

    def take(self, rows) -> "Batch":
        return Batch(self.X[rows], self.y[rows])


class Partitions:
    """Samples and targets in partitions.

    Parameters
    ----------
    learner : SimilarityLearner
        Learner that receives the samples. Number and names of features are stored in
        it.

    X : Dask collection
        Samples.

    y : Dask collection or array-like
        Labels or relevance matrix, in the partitions of X or in memory.

    reset : bool, default=True
        True if the learner has not seen samples before.

    Attributes
    ----------
    example : ndarray or csr_array of shape (1, n_features)
        The first sample.
    """

    def __init__(self, learner, X, y, *, reset: bool = True):
        from dask import compute, delayed

        pairs = list(zip(row_blocks(X), matching_blocks(y, X, "y"), strict=True))
        found = compute(*[delayed(_look, pure=False)(*pair) for pair in pairs])
        filled = [i for i, part in enumerate(found) if part.n_rows > 0]
        if not filled:
            raise ValueError("X has no samples: all its partitions are empty.")
        self._pairs = [pairs[i] for i in filled]
        found = [found[i] for i in filled]
        self.n_samples = sum(part.n_rows for part in found)
        self.example = learner._check_rows(found[0].first, reset=reset)
        checker = clone(learner)
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(learner, name):
                setattr(checker, name, getattr(learner, name))
        self._reader = Reader(checker, [part.labels for part in found])

    def sample(self, rng: np.random.Generator) -> Batch:
        """Return at most about `SAMPLE` samples, in memory."""
        from dask import compute, delayed

        share = self._reader.shares(self.n_samples, rng)
        reader, draw = delayed(self._reader, pure=False), delayed(_draw, pure=False)
        streams = rng.spawn(len(self._pairs))
        batches = compute(
            *[
                draw(reader, share, stream, *pair)
                for pair, stream in zip(self._pairs, streams, strict=True)
            ]
        )
        return _join(*batches)

    def rounds(self, rng: np.random.Generator) -> list[list]:
        """Return rounds of batches, as delayed objects, that hold all samples once.

        A round has the partitions that are shuffled together. All rounds have the same
        number of batches.
        """
        from dask import delayed

        n_pairs = len(self._pairs)
        n_batches = min(n_pairs, TOGETHER)
        reader = delayed(self._reader, pure=False)
        split = delayed(_split, pure=False, nout=n_batches)
        join = delayed(_join, pure=False)
        rounds = []
        for group in np.array_split(rng.permutation(n_pairs), -(-n_pairs // TOGETHER)):
            pieces = [
                split(reader, n_batches, stream, *self._pairs[i])
                for i, stream in zip(group, rng.spawn(len(group)), strict=True)
            ]
            rounds.append(
                [join(*[piece[j] for piece in pieces]) for j in range(n_batches)]
            )
        return rounds


class Reader:
    """Reader of partitions, with the labels of all of them.

    Parameters
    ----------
    checker : SimilarityLearner
        Checks the rows.

    labels : list of tuple (values, sizes), or of None for relevance matrices
        Labels of each partition.
    """

    def __init__(self, checker, labels):
        self.checker, self.classes = checker, None
        if labels[0] is None:
            return
        values, sizes = (np.concatenate(parts) for parts in zip(*labels, strict=True))
        self.classes, index = np.unique(values, return_inverse=True)
        self.sizes = np.bincount(index, sizes).astype(np.int64)
        # Twice, since a single label would be too short to be read as labels.
        self.codes = check_relevance(np.tile(self.classes, 2)).labels[: len(self.sizes)]

    def read(self, X, y) -> Batch:
        X = self.checker._check_rows(read_rows(X))
        if num_samples(y) != X.shape[0]:
            raise ValueError(
                f"A partition has {X.shape[0]} samples in X and {num_samples(y)} in y: "
                "they must have the same partitions."
            )
        return Batch(X, self._read_targets(y))

    def _read_targets(self, y):
        if self.classes is not None:
            codes = self.codes[np.searchsorted(self.classes, np.asarray(y))]
            # From 2 on, since the labels -1 and 1 alone are ambiguous.
            return np.where(codes == DISTRACTOR, DISTRACTOR, codes + 2)
        return sparse.csr_array(y)

    def shares(self, n_samples, rng):
        """Return the share of each class to draw; of all samples without labels."""
        of_all = min(1, SAMPLE / n_samples)
        if self.classes is None:
            return of_all
        share = np.full(len(self.classes), of_all)
        classes = np.flatnonzero(self.codes != DISTRACTOR)
        if of_all < 1 and len(classes):
            size = self.sizes[classes]
            wanted = np.minimum(size, max(PER_CLASS, SAMPLE // len(classes)))
            order = rng.permutation(len(classes))
            first = order[np.cumsum(wanted[order]) <= SAMPLE]
            share[classes] = 0
            share[classes[first]] = (wanted / size)[first]
        return share


class _Look(NamedTuple):
    """Summary of a partition."""

    n_rows: int
    first: Any
    labels: tuple | None


def _look(X, y):
    X = read_rows(X)
    n_rows = num_samples(X)
    first = safe_indexing(X, slice(0, 1))
    if np.ndim(y) == 1 and not sparse.issparse(y):
        return _Look(n_rows, first, np.unique(np.asarray(y), return_counts=True))
    if not sparse.issparse(y) and n_rows > 0:
        y = np.asarray(y)
        if y.ndim != 2 or y.shape[1] == 1:
            check_relevance(y)  # raises with the reason
    return _Look(n_rows, first, None)


def _draw(reader, share, rng, X, y):
    """Draw some of the samples of a partition."""
    batch = reader.read(X, y)
    if reader.classes is not None:
        share = share[np.searchsorted(reader.classes, np.asarray(y))]
    return batch.take(np.flatnonzero(rng.random(batch.X.shape[0]) < share))


def _split(reader, n_pieces, rng, X, y):
    """Cut a partition into random pieces."""
    batch = reader.read(X, y)
    pieces = np.array_split(rng.permutation(batch.X.shape[0]), n_pieces)
    # Some pieces are longer by one row. The shift makes them differ between partitions.
    shift = rng.integers(n_pieces)
    return [batch.take(rows) for rows in pieces[shift:] + pieces[:shift]]


def _join(*batches):
    X = stack([batch.X for batch in batches])
    y = stack([batch.y for batch in batches])
    if sparse.issparse(y) and y.shape[0] == y.shape[1]:
        # A square matrix could be read as relevance by pairs.
        y = sparse.hstack([y, sparse.csr_array((y.shape[0], 1))], format="csr")
    return Batch(X, y)


def partial_fit_partitions(learner, X, y) -> dict:
    """Return the state of a learner after `partial_fit` on shuffled batches of X."""
    from dask import compute, delayed

    rng = make_generator(learner.random_state)
    partitions = Partitions(learner, X, y, reset=not hasattr(learner, "n_features_in_"))
    student = delayed(_Student(learner), pure=False)
    go_on = delayed(_go_on, pure=False)
    for batches in partitions.rounds(rng):
        for batch in batches:
            student = go_on(student, batch)
        (student,) = settle(student)
    (student,) = compute(student)
    if student.n_batches == 0:
        raise ValueError(
            "y holds no triplet in any of the batches that the partitions of X were "
            "shuffled into."
        )
    kept = KEPT_ATTRIBUTES | set(learner.get_params(deep=False))
    state = vars(student.learner).items()
    return {name: value for name, value in state if name not in kept}


class _Student:
    """Learner with the number of batches that it has seen."""

    def __init__(self, learner, n_batches=0):
        self.learner, self.n_batches = learner, n_batches


def _go_on(student, batch):
    if not check_relevance(batch.y).find_queries().any():
        return student
    learner = deepcopy(student.learner).partial_fit(batch.X, batch.y)
    return _Student(learner, student.n_batches + 1)
