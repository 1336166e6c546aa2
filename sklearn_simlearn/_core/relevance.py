"""Relevance of samples to each other, read from `y`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.rows import (
    canonical_csr,
    count_per_row,
    number_patterns,
    one_hot,
)
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.targets import (
    DISTRACTOR,
    PairwiseRelevance,
    TargetLike,
    as_array,
    read_labels,
)
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.warn import warn_user

Rows: TypeAlias = slice | np.ndarray  # numbers of samples

# Products of weights outside these bounds exceed the range of a double.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-150, 1e150


class Relevance(ABC):
    """Relevance of samples to each other; :func:`check_relevance` reads it from `y`."""

    labels: np.ndarray | None = None  # class of each sample, if `y` holds labels

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @property
    @abstractmethod
    def can_query(self) -> np.ndarray:
        """Mask of the samples that may have relevant items; distractors have none."""

    @property
    @abstractmethod
    def memberships(self) -> sparse.csr_array:
        """Return the positive weight of each sample in each class, column or object."""

    @abstractmethod
    def block(self, queries: Rows, items: Rows) -> np.ndarray:
        """Return 1 for relevant items, 0 for irrelevant items and -1 for junk.

        Parameters
        ----------
        queries, items : slice or ndarray of int
            Samples along the rows and along the columns.

        Returns
        -------
        relevance : ndarray of shape (n_queries, n_items), dtype int8
            A sample that can query is relevant to itself.
        """

    @abstractmethod
    def graded_block(self, queries: Rows, items: Rows) -> np.ndarray:
        """Return `block` as float64, with weights instead of 1 if `y` has weights."""

    @abstractmethod
    def objects(self) -> np.ndarray:
        """Number the sets of samples that relevance links, directly or through others.

        Returns
        -------
        objects : ndarray of shape (n_samples,), dtype int64
            The same number, from 0, for all samples that are linked; `DISTRACTOR` for
            samples without a link.
        """

    @abstractmethod
    def kinds(self) -> np.ndarray:
        """Number the samples; those with the same relevant samples share a number."""

    @abstractmethod
    def take(self, rows: Rows) -> "Relevance":
        """Return the relevance among some of the samples."""

    def items_of(self, X: Matrix) -> Matrix:
        """Return the rows of `X` that are searched."""
        return X

    @abstractmethod
    def _judge_queries(self) -> tuple[np.ndarray, np.ndarray]:
        """Find samples that have both relevant and irrelevant others, in linear time.

        Returns two masks: of samples that certainly have both, and of samples for which
        a comparison with all others is necessary.
        """

    def find_queries(self, among: np.ndarray | None = None) -> np.ndarray:
        """Return the mask of samples that have both relevant and irrelevant items.

        Parameters
        ----------
        among : ndarray of shape (n_samples,), dtype bool, default=None
            Samples that may query; all if None.
        """
        is_query, in_doubt = self._judge_queries()
        if among is not None:
            is_query, in_doubt = is_query & among, in_doubt & among
        if in_doubt.any():
            # Samples of one kind have the same relevant samples.
            _, first, kind = np.unique(
                self.kinds()[in_doubt], return_index=True, return_inverse=True
            )
            asked = np.flatnonzero(in_doubt)[first]
            have_both = [_have_both(block) for _, _, block in self.batches(asked)]
            is_query[in_doubt] = np.concatenate(have_both)[kind]
        return is_query

    def require_triplets(self) -> None:
        """Raise if no query has both a relevant and an irrelevant sample."""
        if not (self._judge_queries()[0].any() or self.find_queries().any()):
            raise ValueError(
                f"y holds no triplet: none of the {len(self)} samples has both a "
                "relevant and an irrelevant one among the others. At least two samples "
                "of one class and one of another are necessary."
            )

    def batches(
        self, queries: np.ndarray, *, graded: bool = False, n_bytes: int = 32
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Yield the relevance of all samples to batches of queries.

        Parameters
        ----------
        queries : ndarray of int
            Samples that query.

        graded : bool, default=False
            True for weights instead of 1, if `y` has weights.

        n_bytes : int, default=32
            Memory that the caller and this method need per query and sample.
            scikit-learn's `working_memory` bounds the total.

        Yields
        ------
        batch : slice
            Slice of the queries.

        rows : ndarray of int
            ``queries[batch]``.

        relevance : ndarray of shape (n_rows, n_samples)
            Result of `block` or `graded_block`, with -1 for the query itself.
        """
        n_samples, n_queries = len(self), max(len(queries), 1)
        find = self.graded_block if graded and self.labels is None else self.block
        n_rows = get_chunk_n_rows(max(n_bytes * n_samples, 1), max_n_rows=n_queries)
        for batch in gen_batches(n_queries, n_rows):
            rows = queries[batch]
            relevance = find(rows, slice(0, n_samples))
            relevance[np.arange(len(rows)), rows] = -1
            yield batch, rows, relevance


class LabelRelevance(Relevance):
    """Samples with the same label are relevant to each other.

    Parameters
    ----------
    labels : ndarray of shape (n_samples,), dtype int64
        Classes from 0; `DISTRACTOR` for samples without a class.

    classes : ndarray of shape (n_classes,)
        Labels of the classes, as given by the user.
    """

    labels: np.ndarray

    def __init__(self, labels: np.ndarray, classes: np.ndarray):
        self.labels = labels
        self.classes = classes

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def can_query(self) -> np.ndarray:
        return self.labels != DISTRACTOR

    @cached_property
    def memberships(self) -> sparse.csr_array:
        return one_hot(self.labels)

    def block(self, queries: Rows, items: Rows) -> np.ndarray:
        query_labels = self.labels[queries, None]
        relevant = query_labels == self.labels[items]
        relevant &= query_labels != DISTRACTOR
        return relevant.view(np.int8)

    def graded_block(self, queries: Rows, items: Rows) -> np.ndarray:
        return self.block(queries, items).astype(np.float64)

    def objects(self) -> np.ndarray:
        return self.labels.copy()

    def kinds(self) -> np.ndarray:
        return self.labels

    def take(self, rows: Rows) -> "LabelRelevance":
        return LabelRelevance(self.labels[rows], self.classes)

    def _judge_queries(self) -> tuple[np.ndarray, np.ndarray]:
        # The count at place 0 is that of the distractors.
        size = np.bincount(self.labels + 1)[self.labels + 1]
        is_query = self.can_query & (size > 1) & (size < len(self))
        return is_query, np.zeros(len(self), dtype=bool)


class ColumnRelevance(Relevance):
    """Samples are relevant to each other if they share a column.

    Parameters
    ----------
    memberships : csr_array of shape (n_samples, n_columns)
        Weight of each sample in each object, topic or text query.

    junk : csr_array of shape (n_samples, n_columns) or None
        1 if a sample is junk for the queries of a column.
    """

    def __init__(self, memberships: sparse.csr_array, junk: sparse.csr_array | None):
        self._memberships = memberships
        self.junk = junk

    def __len__(self) -> int:
        return self.memberships.shape[0]

    @property
    def memberships(self) -> sparse.csr_array:
        return self._memberships

    @cached_property
    def _is_member(self) -> sparse.csr_array:
        """Memberships without weights, so that products cannot underflow."""
        return self.memberships.sign()

    @property
    def can_query(self) -> np.ndarray:
        return np.diff(self.memberships.indptr) > 0

    def block(self, queries: Rows, items: Rows) -> np.ndarray:
        members = self._is_member[queries]
        shared = (members @ self._is_member[items].T).toarray()
        relevance = (shared > 0).view(np.int8)
        if self.junk is not None:
            junk = (members @ self.junk[items].T).toarray() > 0
            relevance[junk & (relevance == 0)] = -1
        return relevance

    def graded_block(self, queries: Rows, items: Rows) -> np.ndarray:
        """Return `block` with the sum of products of weights over shared columns."""
        relevance = self.block(queries, items).astype(np.float64)
        shared = self.memberships[queries] @ self.memberships[items].T
        np.copyto(relevance, shared.toarray(), where=relevance > 0)
        return relevance

    def objects(self) -> np.ndarray:
        n_columns = self.memberships.shape[1]
        nothing = sparse.csr_array((n_columns, len(self)))
        graph = sparse.block_array([[None, self.memberships], [nothing, None]])
        return _number_components(graph, self.can_query)

    def kinds(self) -> np.ndarray:
        return number_patterns(self.memberships)

    def take(self, rows: Rows) -> "ColumnRelevance":
        return ColumnRelevance(
            self.memberships[rows], None if self.junk is None else self.junk[rows]
        )

    def _judge_queries(self) -> tuple[np.ndarray, np.ndarray]:
        n_samples, n_columns = self.memberships.shape
        members = np.bincount(self.memberships.indices, minlength=n_columns)
        largest = self._is_member.multiply(members).max(axis=1).toarray().ravel()
        # Others that are relevant or junk, counted once per shared column.
        others = members - 1
        if self.junk is not None:
            others = others + np.bincount(self.junk.indices, minlength=n_columns)
        at_most = self._is_member @ others
        has_relevant = largest > 1
        sure = has_relevant & (at_most < n_samples - 1)
        return sure, has_relevant & ~sure & (largest < n_samples)


class PairRelevance(Relevance):
    """Relevance by pairs.

    Parameters
    ----------
    pairs : csr_array of shape (n_samples, n_samples)
        Canonical, with an empty diagonal; see :class:`PairwiseRelevance`.
    """

    def __init__(self, pairs: sparse.csr_array):
        self.pairs = pairs

    def __len__(self) -> int:
        return self.pairs.shape[0]

    @cached_property
    def can_query(self) -> np.ndarray:
        return count_per_row(self.pairs, self.pairs.data > 0) > 0

    @cached_property
    def memberships(self) -> sparse.csr_array:
        return one_hot(self.objects())

    def block(self, queries: Rows, items: Rows) -> np.ndarray:
        return np.sign(self.graded_block(queries, items)).astype(np.int8)

    def graded_block(self, queries: Rows, items: Rows) -> np.ndarray:
        relevance = self.pairs[queries][:, items].toarray()
        relevance[relevance < 0] = -1
        samples = np.arange(len(self))
        query, item = samples[queries, None], samples[items]
        relevance[(query == item) & self.can_query[query]] = 1
        return relevance

    def objects(self) -> np.ndarray:
        links = self.pairs.maximum(0)
        linked = self.can_query.copy()
        linked[self.pairs.indices[self.pairs.data > 0]] = True
        return _number_components(links, linked)

    def kinds(self) -> np.ndarray:
        # The sample itself is included, since it is relevant to others of its kind.
        itself = sparse.diags_array(self.can_query.astype(np.float64))
        return number_patterns(canonical_csr(self.pairs.maximum(0) + itself))

    def take(self, rows: Rows) -> "PairRelevance":
        return PairRelevance(self.pairs[rows][:, rows])

    def _judge_queries(self) -> tuple[np.ndarray, np.ndarray]:
        n_listed = np.diff(self.pairs.indptr)  # relevant or junk
        is_query = self.can_query & (n_listed < len(self) - 1)
        return is_query, np.zeros(len(self), dtype=bool)


def check_relevance(
    y: TargetLike, *, n_samples: int | None = None, has_database: bool = False
) -> Relevance:
    """Check `y` and return the relevance of samples to each other.

    Parameters
    ----------
    y : array-like of shape (n_samples,), {array-like, sparse matrix} of shape \
            (n_samples, n_columns), or PairwiseRelevance
        Labels of any kind, where the integer -1 marks a distractor; or a relevance
        matrix, positive if a sample is relevant (the value is its weight), zero if not,
        negative if it is junk; or relevance by pairs.

    n_samples : int, default=None
        Required number of samples; any number if None.

    has_database : bool, default=False
        True if the samples query a database whose `y` has the same columns. The
        columns are then objects, even if `y` is square.

    Returns
    -------
    relevance : Relevance
    """
    if isinstance(y, Judgements):
        raise TypeError(
            "Judgements relate queries to documents, not samples to samples. Here, y "
            "must be labels, a relevance matrix or PairwiseRelevance. To split the "
            "queries, use KFold."
        )
    is_array = not (sparse.issparse(y) or isinstance(y, PairwiseRelevance))
    target: Any = as_array(y) if is_array else y
    if n_samples is not None and target.shape[0] != n_samples:
        raise ValueError(
            f"y and X must have the same number of samples; got {target.shape[0]} and "
            f"{n_samples}."
        )
    if isinstance(target, PairwiseRelevance):
        return PairRelevance(target.matrix)
    if target.ndim == 1:
        return LabelRelevance(*read_labels(target))
    return _read_matrix(target, has_database)


def stack_targets(first: TargetLike, second: TargetLike) -> Matrix:
    """Concatenate two targets: labels with labels, matrices with matrices."""
    if isinstance(first, Judgements) or isinstance(second, Judgements):
        raise ValueError("Judgements contain the documents to search in.")
    if isinstance(first, PairwiseRelevance) or isinstance(second, PairwiseRelevance):
        raise ValueError(
            "PairwiseRelevance relates the samples of one set only. Put the queries "
            "and the database into one X and one PairwiseRelevance, and choose the "
            "queries by query_mask."
        )
    is_sparse = sparse.issparse(first) or sparse.issparse(second)
    pair: list[Any] = [first, second]
    a, b = pair if is_sparse else map(as_array, pair)
    if a.ndim != b.ndim or a.shape[1:] != b.shape[1:]:
        raise ValueError(
            "The targets of the queries and of the database must be of one kind; got "
            f"shapes {a.shape} and {b.shape}. Give labels for both, or two relevance "
            "matrices with the same columns."
        )
    if is_sparse:
        return sparse.vstack([a, b], format="csr")
    if (a.dtype.kind in "OUS") != (b.dtype.kind in "OUS"):
        raise ValueError(
            "The labels of the queries and of the database must be of one type; got "
            f"{a.dtype} and {b.dtype}."
        )
    return np.concatenate([a, b])


# -- matrices --


def _read_matrix(y: Matrix, has_database: bool) -> ColumnRelevance:
    if not sparse.issparse(y) and y.shape[1] == 1:
        raise ValueError(
            "y has a single column, which is ambiguous: pass y.ravel() if it holds "
            "labels, or scipy.sparse.csr_array(y) if it is a relevance matrix with one "
            "object."
        )
    y = check_array(
        y, accept_sparse="csr", dtype=np.float64, input_name="y", ensure_min_features=1
    )
    y = canonical_csr(y)
    if y.shape[0] == y.shape[1] and not has_database:
        _question_square(y)
    memberships = canonical_csr(y.maximum(0))
    n_used = len(np.unique(memberships.indices))
    if n_used > y.shape[0] and not has_database:
        warn_user(
            f"y has {n_used} columns with relevant samples for {y.shape[0]} samples, "
            "and its columns are read as objects. If its columns are documents, pass "
            "sklearn_simlearn.metrics.Judgements(y, documents) as y instead."
        )
    if memberships.nnz:
        low, high = memberships.data.min(), memberships.data.max()
        if low < SMALLEST_WEIGHT or high > LARGEST_WEIGHT:
            raise ValueError(
                f"The weights in y reach from {low:.3g} to {high:.3g}, and their "
                f"products would be 0 or infinite: scale y to weights from "
                f"{SMALLEST_WEIGHT:.0e} to {LARGEST_WEIGHT:.0e}."
            )
    junk = canonical_csr((y < 0).astype(np.float64))
    return ColumnRelevance(memberships, junk if junk.nnz else None)


def _question_square(y: sparse.csr_array) -> None:
    """Raise if a matrix looks like pairs of samples; warn if it may be one."""
    looks_pairwise = (y != y.T).nnz == 0 or (y.diagonal() > 0).all()
    n_samples = y.shape[0]
    if looks_pairwise:
        raise ValueError(
            f"y is square ({n_samples} x {n_samples}), which is ambiguous: pass "
            "sklearn_simlearn.metrics.PairwiseRelevance(y) if it relates samples to "
            "samples, or append an empty column if its columns are objects."
        )
    warn_user(
        f"y is square ({n_samples} x {n_samples}) and its columns are read as objects; "
        "use sklearn_simlearn.metrics.PairwiseRelevance(y) if it relates samples to "
        "samples."
    )


# -- helpers --


def _have_both(relevance: np.ndarray) -> np.ndarray:
    return (relevance > 0).any(axis=1) & (relevance == 0).any(axis=1)


def _number_components(graph: sparse.csr_array, linked: np.ndarray) -> np.ndarray:
    """Number the connected components of the first nodes of a graph, without gaps."""
    _, component = connected_components(graph, directed=False)
    objects = np.full(len(linked), DISTRACTOR, dtype=np.int64)
    _, objects[linked] = np.unique(
        component[: len(linked)][linked], return_inverse=True
    )
    return objects
