"""One reading of `y`, shared by every learner, splitter and scorer."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.sparse.csgraph import connected_components
from sklearn.utils import check_array, gen_batches

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.targets import (
    DISTRACTOR,
    PairwiseRelevance,
    as_array,
    read_labels,
)
from sklearn_simlearn._core.warn import warn_user

# Weights outside these bounds have products that leave the range of a double.
SMALLEST_WEIGHT, LARGEST_WEIGHT = 1e-150, 1e150


class Relevance(ABC):
    """Which samples are relevant to which. :func:`check_relevance` makes one of `y`."""

    labels: np.ndarray | None = None  # class of each sample, if `y` holds labels

    @abstractmethod
    def __len__(self) -> int:
        """Number of samples."""

    @property
    @abstractmethod
    def can_query(self) -> np.ndarray:
        """Mask of the samples to which something may be relevant: no distractors."""

    @property
    @abstractmethod
    def memberships(self) -> sparse.csr_array:
        """Positive weight of each sample in each class, column or object."""

    @abstractmethod
    def block(self, queries, items) -> np.ndarray:
        """Relevance of some samples to others: 1, or 0 if not, or -1 if junk.

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
    def graded_block(self, queries, items) -> np.ndarray:
        """Like `block`, as float64, with weights instead of 1 where `y` has them."""

    @abstractmethod
    def objects(self) -> np.ndarray:
        """Samples that are linked by relevance, directly or through others.

        Returns
        -------
        objects : ndarray of shape (n_samples,), dtype int64
            The same number, from 0, for all samples that are linked; `DISTRACTOR` for
            those that are linked to none.
        """

    @abstractmethod
    def kinds(self) -> np.ndarray:
        """A number per sample, the same where the same samples are relevant."""

    @abstractmethod
    def take(self, rows) -> "Relevance":
        """Relevance among some of the samples."""

    def items_of(self, X):
        """Return the rows of `X` that are searched."""
        return X

    @abstractmethod
    def _judge_queries(self) -> tuple[np.ndarray, np.ndarray]:
        """Samples that have both relevant and irrelevant others, in linear time.

        Two masks: of those that surely have both, and of those for which only a
        comparison with all samples can tell.
        """

    def find_queries(self, among: np.ndarray | None = None) -> np.ndarray:
        """Mask of the samples that have both relevant and irrelevant ones to rank.

        Parameters
        ----------
        among : ndarray of shape (n_samples,), dtype bool, default=None
            Samples that may query; all if None.
        """
        is_query, in_doubt = self._judge_queries()
        if among is not None:
            is_query, in_doubt = is_query & among, in_doubt & among
        if in_doubt.any():
            # One of each kind is asked for all.
            _, first, kind = np.unique(
                self.kinds()[in_doubt], return_index=True, return_inverse=True
            )
            asked = np.flatnonzero(in_doubt)[first]
            have_both = [_have_both(block) for _, _, block in self.batches(asked)]
            is_query[in_doubt] = np.concatenate(have_both)[kind]
        return is_query

    def require_triplets(self) -> None:
        """Refuse a `y` in which no query has a relevant and an irrelevant sample."""
        if not (self._judge_queries()[0].any() or self.find_queries().any()):
            raise ValueError(
                f"y holds no triplet: none of the {len(self)} samples has both a "
                "relevant and an irrelevant one among the others. It takes two samples "
                "of one class and one outside it."
            )

    def batches(
        self, queries: np.ndarray, *, graded: bool = False, n_bytes: int = 32
    ) -> Iterator[tuple[slice, np.ndarray, np.ndarray]]:
        """Samples that query all of them, as many at a time as the memory allows.

        Parameters
        ----------
        queries : ndarray of int
            Samples that query.

        graded : bool, default=False
            Whether relevance is by weight where there are weights.

        n_bytes : int, default=32
            What the caller and this method need per query and sample; scikit-learn's
            `working_memory` bounds the total.

        Yields
        ------
        batch : slice
            Of the queries.

        rows : ndarray of int
            ``queries[batch]``.

        relevance : ndarray of shape (n_rows, n_samples)
            As by `block` or `graded_block`, and -1 for the query itself.
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
        Classes from 0, `DISTRACTOR` for none.

    classes : ndarray of shape (n_classes,)
        What the user calls the classes.
    """

    def __init__(self, labels: np.ndarray, classes: np.ndarray):
        self.labels = labels
        self.classes = classes

    def __len__(self):
        return len(self.labels)

    @property
    def can_query(self):
        return self.labels != DISTRACTOR

    @cached_property
    def memberships(self):
        return _one_hot(self.labels)

    def block(self, queries, items):
        query_labels = self.labels[queries, None]
        relevant = query_labels == self.labels[items]
        relevant &= query_labels != DISTRACTOR
        return relevant.view(np.int8)

    def graded_block(self, queries, items):
        return self.block(queries, items).astype(np.float64)

    def objects(self):
        return self.labels.copy()

    def kinds(self):
        return self.labels

    def take(self, rows):
        return LabelRelevance(self.labels[rows], self.classes)

    def _judge_queries(self):
        # Distractors are counted first, whatever they are compared with.
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
        1 where a sample is junk for the queries of a column.
    """

    def __init__(self, memberships: sparse.csr_array, junk: sparse.csr_array | None):
        self._memberships = memberships
        self.junk = junk

    def __len__(self):
        return self.memberships.shape[0]

    @property
    def memberships(self):
        return self._memberships

    @cached_property
    def _is_member(self):
        """The memberships without their weights, so that no product can underflow."""
        return self.memberships.sign()

    @property
    def can_query(self):
        return np.diff(self.memberships.indptr) > 0

    def block(self, queries, items):
        members = self._is_member[queries]
        shared = (members @ self._is_member[items].T).toarray()
        relevance = (shared > 0).view(np.int8)
        if self.junk is not None:
            junk = (members @ self.junk[items].T).toarray() > 0
            relevance[junk & (relevance == 0)] = -1
        return relevance

    def graded_block(self, queries, items):
        """Like `block`, with the sum over shared columns of the product of weights."""
        relevance = self.block(queries, items).astype(np.float64)
        shared = self.memberships[queries] @ self.memberships[items].T
        np.copyto(relevance, shared.toarray(), where=relevance > 0)
        return relevance

    def objects(self):
        n_columns = self.memberships.shape[1]
        graph = sparse.block_array(
            [
                [None, self.memberships],
                [sparse.csr_array((n_columns, len(self))), None],
            ]
        )
        return _number_components(graph, self.can_query)

    def kinds(self):
        return _number_patterns(self.memberships)

    def take(self, rows):
        return ColumnRelevance(
            self.memberships[rows], None if self.junk is None else self.junk[rows]
        )

    def _judge_queries(self):
        n_samples, n_columns = self.memberships.shape
        members = np.bincount(self.memberships.indices, minlength=n_columns)
        largest = self._is_member.multiply(members).max(axis=1).toarray().ravel()
        # Others that are relevant or junk, counted once per column they share.
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

    def __len__(self):
        return self.pairs.shape[0]

    @cached_property
    def can_query(self):
        return _count_per_row(self.pairs, self.pairs.data > 0) > 0

    @cached_property
    def memberships(self):
        return _one_hot(self.objects())

    def block(self, queries, items):
        return np.sign(self.graded_block(queries, items)).astype(np.int8)

    def graded_block(self, queries, items):
        relevance = self.pairs[queries][:, items].toarray()
        relevance[relevance < 0] = -1
        samples = np.arange(len(self))
        query, item = samples[queries, None], samples[items]
        relevance[(query == item) & self.can_query[query]] = 1
        return relevance

    def objects(self):
        links = self.pairs.maximum(0)
        linked = self.can_query.copy()
        linked[self.pairs.indices[self.pairs.data > 0]] = True
        return _number_components(links, linked)

    def kinds(self):
        # Samples that are relevant to each other may still be of one kind.
        itself = sparse.diags_array(self.can_query.astype(np.float64))
        return _number_patterns(canonical_csr(self.pairs.maximum(0) + itself))

    def take(self, rows):
        return PairRelevance(self.pairs[rows][:, rows])

    def _judge_queries(self):
        n_listed = np.diff(self.pairs.indptr)  # relevant or junk
        is_query = self.can_query & (n_listed < len(self) - 1)
        return is_query, np.zeros(len(self), dtype=bool)


class JudgedRelevance(PairRelevance):
    """Relevance of documents to queries; both are rows of one set of samples.

    Only queries query and only documents are items: a query is junk for all others.

    Parameters
    ----------
    pairs : csr_array of shape (n_samples, n_samples)
        Positive where a document (column) is relevant to a query (row), negative where
        it is junk, without stored zeros.

    is_item : ndarray of shape (n_samples,), dtype bool
        Samples that are documents.
    """

    def __init__(self, pairs: sparse.csr_array, is_item: np.ndarray):
        super().__init__(pairs)
        self.is_item = is_item

    @classmethod
    def of(cls, relevance: sparse.csr_array) -> "JudgedRelevance":
        """Return the relevance of queries stacked on documents."""
        n_queries, n_documents = relevance.shape
        n = n_queries + n_documents
        entries = relevance.tocoo()
        stored = entries.data != 0
        row, column = entries.row[stored], entries.col[stored] + n_queries
        pairs = sparse.csr_array((entries.data[stored], (row, column)), shape=(n, n))
        return cls(pairs, np.arange(n) >= n_queries)

    @cached_property
    def memberships(self):
        return _one_hot(self.objects())

    def graded_block(self, queries, items):
        relevance = self.pairs[queries][:, items].toarray()
        relevance[relevance < 0] = -1
        relevance[:, ~self.is_item[items]] = -1
        return relevance

    def objects(self):
        """Return a number of its own for each query; documents are of no object."""
        objects = np.full(len(self), DISTRACTOR, dtype=np.int64)
        objects[self.can_query] = np.arange(np.count_nonzero(self.can_query))
        return objects

    def kinds(self):
        return _number_patterns(canonical_csr(self.pairs.maximum(0)))

    def take(self, rows):
        return JudgedRelevance(self.pairs[rows][:, rows], self.is_item[rows])

    def items_of(self, X):
        return X[np.flatnonzero(self.is_item)]

    def _judge_queries(self):
        n_items = np.count_nonzero(self.is_item)
        is_query = self.can_query & (np.diff(self.pairs.indptr) < n_items)
        return is_query, np.zeros(len(self), dtype=bool)

    def require_triplets(self):
        if not self.find_queries().any():
            raise ValueError(
                "y holds no triplet: no query has both a relevant document and one "
                "that is not relevant."
            )


def check_relevance(
    y, *, n_samples: int | None = None, has_database: bool = False
) -> Relevance:
    """Check `y` and return which samples are relevant to which.

    Parameters
    ----------
    y : array-like of shape (n_samples,), {array-like, sparse matrix} of shape \
            (n_samples, n_columns), or PairwiseRelevance
        Labels of any kind, where the integer -1 marks a distractor; or a relevance
        matrix, positive where a sample is relevant (the value is its weight), zero
        where not, negative where it is junk; or relevance by pairs.

    n_samples : int, default=None
        Number of samples `y` must have; any if None.

    has_database : bool, default=False
        Whether the samples query a database, whose `y` has the same columns. Then the
        columns are objects, even if `y` is square.

    Returns
    -------
    relevance : Relevance
    """
    if isinstance(y, Judgements):
        raise TypeError(
            "Judgements relate queries to documents, not samples to samples: here y "
            "must be labels, a relevance matrix or PairwiseRelevance. To split the "
            "queries, use KFold."
        )
    if not (sparse.issparse(y) or isinstance(y, PairwiseRelevance)):
        y = as_array(y)
    if n_samples is not None and y.shape[0] != n_samples:
        raise ValueError(
            f"y and X must have the same number of samples; got {y.shape[0]} and "
            f"{n_samples}."
        )
    if isinstance(y, PairwiseRelevance):
        return PairRelevance(y.matrix)
    if y.ndim == 1:
        return LabelRelevance(*read_labels(y))
    return _read_matrix(y, has_database)


def stack_targets(first, second):
    """One `y` for the samples of two: labels with labels, matrices with matrices."""
    if isinstance(first, Judgements) or isinstance(second, Judgements):
        raise ValueError("Judgements have documents of their own to search in.")
    if isinstance(first, PairwiseRelevance) or isinstance(second, PairwiseRelevance):
        raise ValueError(
            "PairwiseRelevance says nothing about the samples of another set. Put the "
            "queries and the database into one X and one PairwiseRelevance, and choose "
            "the queries by query_mask."
        )
    if not (sparse.issparse(first) or sparse.issparse(second)):
        first, second = as_array(first), as_array(second)
    if first.ndim != second.ndim or first.shape[1:] != second.shape[1:]:
        raise ValueError(
            "The targets of the queries and of the database must be of one kind; got "
            f"shapes {first.shape} and {second.shape}. Give labels for both, or two "
            "relevance matrices with the same columns."
        )
    if sparse.issparse(first) or sparse.issparse(second):
        return sparse.vstack([first, second], format="csr")
    if (first.dtype.kind in "OUS") != (second.dtype.kind in "OUS"):
        raise ValueError(
            "The labels of the queries and of the database must be of one type; got "
            f"{first.dtype} and {second.dtype}."
        )
    return np.concatenate([first, second])


def check_query_mask(query_mask: ArrayLike, n_samples: int) -> np.ndarray:
    """Check that `query_mask` holds one boolean per sample."""
    query_mask = np.asarray(query_mask)
    if query_mask.shape != (n_samples,) or query_mask.dtype != bool:
        raise ValueError(
            f"query_mask must hold one boolean for each of the {n_samples} samples; "
            f"got shape {query_mask.shape} and dtype {query_mask.dtype}."
        )
    return query_mask


# -- matrices --


def _read_matrix(y, has_database):
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
    if memberships.nnz:
        low, high = memberships.data.min(), memberships.data.max()
        if low < SMALLEST_WEIGHT or high > LARGEST_WEIGHT:
            raise ValueError(
                f"The weights in y reach from {low:.3g} to {high:.3g}, and their "
                f"products would not be told from 0 or infinity: scale y to weights "
                f"from {SMALLEST_WEIGHT:.0e} to {LARGEST_WEIGHT:.0e}."
            )
    junk = canonical_csr((y < 0).astype(np.float64))
    return ColumnRelevance(memberships, junk if junk.nnz else None)


def _question_square(y):
    """Refuse a matrix that looks like pairs of samples; warn if it only might."""
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


def _have_both(relevance):
    return (relevance > 0).any(axis=1) & (relevance == 0).any(axis=1)


def _one_hot(labels):
    """Memberships of weight 1 in at most one class each."""
    member = labels != DISTRACTOR
    return sparse.csr_array(
        (
            np.ones(np.count_nonzero(member)),
            labels[member],
            np.concatenate([[0], np.cumsum(member)]),
        ),
        shape=(len(labels), labels.max(initial=DISTRACTOR) + 1),
    )


def _number_components(graph, linked):
    """Components of the first nodes of a graph, numbered without gaps."""
    _, component = connected_components(graph, directed=False)
    objects = np.full(len(linked), DISTRACTOR, dtype=np.int64)
    _, objects[linked] = np.unique(
        component[: len(linked)][linked], return_inverse=True
    )
    return objects


def _number_patterns(matrix):
    """The same number for rows with entries in the same columns."""
    known = {}
    columns = np.split(matrix.indices, matrix.indptr[1:-1])
    numbers = [known.setdefault(c.tobytes(), len(known)) for c in columns]
    return np.array(numbers, dtype=np.int64)


def _count_per_row(matrix, counted):
    """Number of stored entries per row for which a mask holds."""
    before = np.concatenate([[0], np.cumsum(counted)])
    return np.diff(before[matrix.indptr])
