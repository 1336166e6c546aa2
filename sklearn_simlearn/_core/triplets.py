"""Triplets of (query, relevant item, irrelevant item), given or drawn from `y`."""

from abc import ABC, abstractmethod
from copy import copy

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from sklearn.utils import check_array

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.judgements import shares_of_wins
from sklearn_simlearn._core.relevance import (
    ColumnRelevance,
    LabelRelevance,
    PairRelevance,
    Relevance,
)
from sklearn_simlearn._core.rows import check_row_numbers

# Number of times that a negative is drawn again if it is relevant. After that, a list
# of the irrelevant samples of the query is used.
N_REDRAWS = 20

# Number of consecutive pairs below the threshold after which drawing fails.
MAX_REFUSED = 1_000_000


def check_triplets(triplets: ArrayLike, n_samples: int) -> np.ndarray:
    """Check triplets of row numbers of X and return them as int64."""
    checked = check_array(triplets, dtype=None, input_name="triplets")
    if checked.shape[1] != 3 or checked.dtype.kind not in "iu":
        raise ValueError(
            "triplets must be integers of shape (n_triplets, 3); got "
            f"{checked.dtype} of shape {checked.shape}."
        )
    check_row_numbers(checked, n_samples, "triplets")
    return np.ascontiguousarray(checked, dtype=np.int64)


def judge_triplets(triplets: np.ndarray, n_samples: int) -> JudgedRelevance:
    """Return relevance that agrees with checked triplets.

    The queries of the triplets search all samples except those that are only queries.
    The relevance of a sample to a query is the share of its comparisons that it wins.
    """
    compared = triplets[triplets[:, 1] != triplets[:, 2]]
    row, column, share = shares_of_wins(*compared.T)
    won = (share > 0) & (row != column)
    pairs = sparse.csr_array(
        (share[won], (row[won], column[won])), shape=(n_samples, n_samples)
    )
    is_item = np.ones(n_samples, dtype=bool)
    is_item[triplets[:, 0]] = False
    is_item[triplets[:, 1:]] = True
    return JudgedRelevance(pairs, is_item)


def take_triplets(triplets: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the triplets within some rows, numbered by the place in `rows`."""
    n_samples = max(triplets.max(initial=-1), rows.max(initial=-1)) + 1
    place = np.full(n_samples, -1)
    place[rows] = np.arange(len(rows))
    taken = place[triplets]
    return taken[(taken >= 0).all(axis=1)]


def triplet_sampler(
    relevance: Relevance, *, threshold: float = 0.0
) -> "LabelTriplets | ColumnTriplets | PairTriplets":
    """Return a sampler of (query, relevant, irrelevant) triplets.

    Parameters
    ----------
    relevance : Relevance
        Relevance of the samples to each other.

    threshold : float, default=0.0
        Pairs up to this value count as irrelevant. The value is a joint probability
        for a relevance matrix and a weight for relevance by pairs. Labels do not use
        it.

    Returns
    -------
    sampler : object
        ``sampler.draw(n, rng)`` returns an array of shape (n, 3) of sample numbers.
    """
    if isinstance(relevance, PairRelevance) and threshold > 0:
        relevance = _drop_weak_pairs(relevance, threshold)
    relevance.require_triplets()
    if isinstance(relevance, LabelRelevance):
        return LabelTriplets(relevance)
    if isinstance(relevance, PairRelevance):
        return PairTriplets(relevance)
    if isinstance(relevance, ColumnRelevance):
        return ColumnTriplets(relevance, threshold)
    raise TypeError(f"There are no triplets of {relevance!r}.")


class LabelTriplets:
    """Triplets of a uniform query, a sample of its class and a sample of another."""

    def __init__(self, relevance: LabelRelevance):
        labels = relevance.labels
        # Samples sorted by class, distractors first: the places of a class are a range.
        self.order = np.argsort(labels, kind="stable")
        self.place = np.empty(len(labels), dtype=np.intp)
        self.place[self.order] = np.arange(len(labels))
        _, index, size = np.unique(labels, return_inverse=True, return_counts=True)
        self.start = (np.cumsum(size) - size)[index]
        self.size = size[index]
        self.queries = np.flatnonzero(relevance.find_queries())

    def draw(self, n_triplets: int, rng: np.random.Generator) -> np.ndarray:
        query = self.queries[rng.integers(len(self.queries), size=n_triplets)]
        start, size = self.start[query], self.size[query]
        # Another sample of the class: one of size - 1 places, without the query's.
        positive = start + rng.integers(size - 1)
        positive += positive >= self.place[query]
        negative, _ = self.draw_negatives(query, rng)
        return np.column_stack([query, self.order[positive], negative])

    def draw_negatives(
        self, query: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a negative for each query, and whether there is one."""
        start, size = self.start[query], self.size[query]
        # A sample outside of the class, whose places are skipped.
        negative = rng.integers(len(self.order) - size)
        negative += np.where(negative >= start, size, 0)
        return self.order[negative], np.ones(len(query), dtype=bool)


class _RedrawnNegatives(ABC):
    """Negatives that are drawn from all samples until they are irrelevant."""

    def __init__(self, n_samples: int, items: np.ndarray | None = None):
        self.n_samples = n_samples
        self.items = np.arange(n_samples) if items is None else items
        self.irrelevant: dict[int, np.ndarray] = {}
        self.no_irrelevant = np.zeros(n_samples, dtype=bool)

    @abstractmethod
    def is_irrelevant(self, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        """Return a mask, True if the item is irrelevant to the query."""

    def draw_negatives(
        self, query: np.ndarray, rng: np.random.Generator
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return a negative for each query, and whether there is one."""
        negative = np.zeros(len(query), dtype=np.intp)
        todo = np.flatnonzero(~self.no_irrelevant[query])
        for _ in range(N_REDRAWS):
            if len(todo) == 0:
                break
            place = rng.integers(len(self.items), size=len(todo))
            negative[todo] = self.items[place]
            todo = todo[~self.is_irrelevant(query[todo], negative[todo])]
        for i in todo:
            choices = self._irrelevant_to(query[i])
            if len(choices):
                negative[i] = choices[rng.integers(len(choices))]
        return negative, ~self.no_irrelevant[query]

    def _irrelevant_to(self, query: int) -> np.ndarray:
        if query not in self.irrelevant:
            queries = np.full(len(self.items), query)
            is_irrelevant = self.is_irrelevant(queries, self.items)
            self.irrelevant[query] = self.items[is_irrelevant]
            self.no_irrelevant[query] = len(self.irrelevant[query]) == 0
        return self.irrelevant[query]


class ColumnTriplets(_RedrawnNegatives):
    r"""Triplets of a pair drawn by its joint probability and a uniform negative.

    With :math:`R` the relevance of samples to columns, a pair is drawn with

    .. math::

        P(p_1, p_2) \propto \sum_c P(p_1 | c)\, P(p_2 | c)\, P(c)
        \propto \sum_c \frac{R_{1c} R_{2c}}{\sum_p R_{pc}},
        \qquad p_1 \ne p_2 ,

    by drawing an entry of :math:`R`, which is a query and a column, and then another
    entry of that column. No sample-by-sample matrix is built.
    """

    def __init__(self, relevance: ColumnRelevance, threshold: float):
        super().__init__(len(relevance))
        self.threshold = threshold
        self.junk = relevance.junk
        entries = relevance.memberships.tocoo()
        self.is_member = relevance.memberships.sign()
        n_columns = entries.shape[1]
        total = np.bincount(entries.col, entries.data, minlength=n_columns)
        self.scaled = _probabilities(relevance.memberships, total)

        # Entries by column, the largest of a column last: the sum before the largest is
        # the sum of all others, without cancellation.
        order = np.lexsort((entries.data, entries.col))
        self.row, self.column = entries.row[order], entries.col[order]
        weight = entries.data[order]
        share = weight / total[self.column]
        n_entries = np.bincount(self.column, minlength=n_columns)
        self.column_start = np.concatenate([[0], np.cumsum(n_entries)])
        is_last = np.arange(len(order)) == self.column_start[self.column + 1] - 1
        others = np.bincount(self.column, np.where(is_last, 0, share), n_columns)
        self.share = share
        self.share_before = np.concatenate([[0], np.cumsum(share)[:-1]])
        self.others = np.where(is_last, others[self.column], 1 - share)
        self.mass = weight * self.others
        self.mass_up_to = np.cumsum(self.mass)

    def draw(self, n_triplets: int, rng: np.random.Generator) -> np.ndarray:
        kept, n_kept = [], 0
        while n_kept < n_triplets:
            query, positive = self._draw_pairs(n_triplets - n_kept, rng)
            negative, found = self.draw_negatives(query, rng)
            kept.append(np.column_stack([query, positive, negative])[found])
            n_kept += len(kept[-1])
            if not found.all():
                self._leave_out_queries()
        return np.concatenate(kept)

    def is_irrelevant(self, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        irrelevant = ~self._is_relevant(query, item) & (query != item)
        if self.junk is not None:
            irrelevant &= _row_products(self.is_member, query, self.junk, item) == 0
        return irrelevant

    def _is_relevant(self, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        if self.threshold == 0:
            return _row_products(self.is_member, query, self.is_member, item) > 0
        joint = _row_products(self.scaled, query, self.scaled, item)
        return joint > self.threshold

    def _draw_pairs(self, n_pairs: int, rng: np.random.Generator) -> np.ndarray:
        kept, n_kept, n_refused = [], 0, 0
        while n_kept < n_pairs:
            size = max(n_pairs - n_kept, 1000)
            entry = np.searchsorted(
                self.mass_up_to, rng.random(size) * self.mass_up_to[-1], side="right"
            )
            other = self._draw_others(entry, rng.random(size))
            query, positive = self.row[entry], self.row[other]
            accepted = query != positive
            if self.threshold > 0:
                accepted &= self._is_relevant(query, positive)
            kept.append(np.stack([query, positive])[:, accepted])
            n_kept += len(kept[-1][0])
            n_refused = 0 if accepted.any() else n_refused + size
            if n_refused >= MAX_REFUSED:
                raise ValueError(
                    "y holds no triplet: none of a million pairs exceeds "
                    f"relevance_threshold={self.threshold}."
                )
        return np.concatenate(kept, axis=1)[:, :n_pairs]

    def _draw_others(self, entry: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Draw another entry of the same column for each entry, by weight."""
        column = self.column[entry]
        first, last = self.column_start[column], self.column_start[column + 1] - 1
        u = self.share_before[first] + u * self.others[entry]
        u = np.where(u >= self.share_before[entry], u + self.share[entry], u)
        other = np.searchsorted(self.share_before, u, side="right") - 1
        # By rounding, u may be outside the column, or select the last entry itself.
        return np.clip(other, first, np.where(entry == last, last - 1, last))

    def _leave_out_queries(self) -> None:
        """Exclude queries that have no irrelevant sample from later draws."""
        self.mass[self.no_irrelevant[self.row]] = 0
        if not self.mass.any():
            raise ValueError(
                "y holds no triplet: no query has a pair above and a sample below "
                f"relevance_threshold={self.threshold}."
            )
        self.mass_up_to = np.cumsum(self.mass)


class PairTriplets(_RedrawnNegatives):
    """Triplets of a uniform query, a positive by weight and a uniform negative."""

    def __init__(self, relevance: PairRelevance):
        items = None
        if isinstance(relevance, JudgedRelevance):
            items = np.flatnonzero(relevance.is_item)
        super().__init__(len(relevance), items)
        self.pairs = relevance.pairs
        self.queries = np.flatnonzero(relevance.find_queries())
        links = relevance.pairs.maximum(0)
        self.positive, self.end = links.indices, links.indptr[1:]
        self.start = links.indptr[:-1]
        row = np.repeat(np.arange(len(relevance)), np.diff(links.indptr))
        largest = links.max(axis=1).toarray().ravel()
        # Relative to the largest weight of the query, so that sums cannot overflow.
        self.weight_up_to = np.cumsum(links.data / largest[row])

    def draw(self, n_triplets: int, rng: np.random.Generator) -> np.ndarray:
        query = self.queries[rng.integers(len(self.queries), size=n_triplets)]
        start, end = self.start[query], self.end[query]
        low = np.where(start > 0, self.weight_up_to[start - 1], 0)
        u = low + rng.random(n_triplets) * (self.weight_up_to[end - 1] - low)
        place = np.searchsorted(self.weight_up_to, u, side="right")
        positive = self.positive[np.clip(place, start, end - 1)]
        negative, _ = self.draw_negatives(query, rng)
        return np.column_stack([query, positive, negative])

    def is_irrelevant(self, query: np.ndarray, item: np.ndarray) -> np.ndarray:
        value = np.asarray(self.pairs[query, item]).ravel()
        return (value == 0) & (query != item)


def _drop_weak_pairs(relevance: PairRelevance, threshold: float) -> PairRelevance:
    strong = copy(relevance)
    strong.pairs = relevance.pairs.copy()
    weak = (strong.pairs.data > 0) & (strong.pairs.data <= threshold)
    strong.pairs.data[weak] = 0
    strong.pairs.eliminate_zeros()
    strong.__dict__.pop("can_query", None)
    return strong


def _probabilities(
    memberships: sparse.csr_array, total: np.ndarray
) -> sparse.csr_array:
    """Return rows whose inner products are the joint probabilities of pairs."""
    # Square roots first, since the products of sums may exceed the range of a double.
    scale = np.sqrt(np.maximum(total, np.finfo(float).tiny)) * np.sqrt(total.sum())
    return memberships @ sparse.diags_array(1 / scale)


def _row_products(
    A: sparse.csr_array, rows_A: np.ndarray, B: sparse.csr_array, rows_B: np.ndarray
) -> np.ndarray:
    """Return <A_i, B_j> for pairs of rows of two CSR arrays."""
    return np.asarray(A[rows_A].multiply(B[rows_B]).sum(axis=1)).ravel()
