"""Triplets: those the user gives, and those drawn from y a block at a time."""

import numpy as np
from scipy import sparse
from sklearn.utils import check_array

# Rounds of redrawing before a query that keeps drawing relevant "irrelevant" samples
# gets the list of its irrelevant ones.
N_REDRAWS = 20


def check_triplets(triplets, n_samples):
    """Check triplets that the user gives as rows of X; returns them as int64."""
    triplets = check_array(triplets, dtype=None, input_name="triplets")
    if triplets.shape[1] != 3 or triplets.dtype.kind not in "iu":
        raise ValueError(
            "triplets must be integers of shape (n_triplets, 3); got "
            f"{triplets.dtype} of shape {triplets.shape}."
        )
    if triplets.min() < 0 or triplets.max() >= n_samples:
        raise ValueError(
            f"triplets must be rows of X, from 0 to {n_samples - 1}; got "
            f"{triplets.min()} to {triplets.max()}."
        )
    return np.ascontiguousarray(triplets, dtype=np.int64)


def triplet_sampler(relevance, *, threshold=0.0):
    """A sampler of (query, relevant, irrelevant) triplets.

    Parameters
    ----------
    relevance : Relevance
        Which samples are relevant to which.

    threshold : float
        With a relevance matrix, pairs of a joint probability up to this count as
        irrelevant.

    Returns
    -------
    sampler : object
        ``sampler.draw(n, rng)`` gives an array of shape (n, 3) of sample numbers.
    """
    if relevance.labels is not None:
        return LabelTriplets(relevance.labels)
    return WeightedTriplets(relevance, threshold)


class LabelTriplets:
    """Query uniform, positive uniform in its class, negative uniform outside."""

    def __init__(self, labels):
        n_samples = len(labels)
        # Samples sorted by class, distractors first: a class is one run of places.
        self.order = np.argsort(labels, kind="stable")
        self.place = np.empty(n_samples, dtype=np.intp)
        self.place[self.order] = np.arange(n_samples)
        _, index, size = np.unique(labels, return_inverse=True, return_counts=True)
        self.start = (np.cumsum(size) - size)[index]
        self.size = size[index]
        self.queries = np.flatnonzero(
            (labels >= 0) & (self.size > 1) & (self.size < n_samples)
        )
        if len(self.queries) == 0:
            raise ValueError(
                "y holds no triplet: it takes a class with 2 samples and a sample "
                f"outside of it. Got {n_samples} samples, the largest class of "
                f"{self.size[labels >= 0].max(initial=0)}."
            )

    def draw(self, n_triplets, rng):
        query = self.queries[rng.integers(len(self.queries), size=n_triplets)]
        start, size = self.start[query], self.size[query]
        # One of the others of the class: a draw from one fewer steps over the query.
        positive = start + rng.integers(size - 1)
        positive += positive >= self.place[query]
        # One of the samples outside: the class is one run to step over.
        negative = rng.integers(len(self.order) - size)
        negative += np.where(negative >= start, size, 0)
        return np.column_stack([query, self.order[positive], self.order[negative]])


class WeightedTriplets:
    r"""Pairs in proportion to their joint probability, negatives uniform.

    With :math:`R` the relevance of samples to columns, a pair is drawn with

    .. math::

        P(p_1, p_2) \propto \sum_c P(p_1 | c)\, P(p_2 | c)\, P(c)
        \propto \sum_c \frac{R_{1c} R_{2c}}{\sum_p R_{pc}},
        \qquad p_1 \ne p_2 ,

    by drawing an entry of :math:`R` by its weight, which is a query and a column, and
    then an entry of that column. No sample-by-sample matrix is built.
    """

    def __init__(self, relevance, threshold):
        positive = relevance.positive
        # An entry alone in its column is no pair.
        n_entries = np.bincount(positive.indices, minlength=positive.shape[1])
        alone = n_entries[positive.indices] < 2
        if alone.all():
            raise ValueError("y holds no triplet: no column has two relevant samples.")
        self.positive = positive
        self.junk = relevance.junk
        self.threshold = threshold
        # <scaled_1, scaled_2> is the joint probability of a pair.
        total = positive.sum()
        column_sum = np.asarray(positive.sum(axis=0)).ravel()
        scale = np.sqrt(np.maximum(column_sum, np.finfo(float).tiny) * total)
        self.scaled = positive @ sparse.diags_array(1 / scale)

        self.row = np.repeat(np.arange(len(relevance)), np.diff(positive.indptr))
        self.column = positive.indices
        self.by_column = positive.tocsc()
        self.weight_before = np.concatenate([[0.0], np.cumsum(self.by_column.data)])
        self.no_irrelevant = np.zeros(len(relevance), dtype=bool)
        self.irrelevant = {}
        self.entry_weight = np.cumsum(np.where(alone, 0.0, positive.data))

    def draw(self, n_triplets, rng):
        kept, n_kept = [], 0
        while n_kept < n_triplets:
            query, positive = self._draw_pairs(n_triplets - n_kept, rng)
            negative, found = self._draw_negatives(query, rng)
            kept.append(np.column_stack([query, positive, negative])[found])
            n_kept += len(kept[-1])
            if self.no_irrelevant[self.row].all():
                raise ValueError("y holds no triplet: no query has an irrelevant item.")
        return np.concatenate(kept)

    def _draw_pairs(self, n_pairs, rng):
        kept, n_kept, n_refused = [], 0, 0
        while n_kept < n_pairs:
            size = max(n_pairs - n_kept, 1000)
            entry = _draw_by_weight(self.entry_weight, rng.random(size))
            column = self.column[entry]
            first, end = (
                self.by_column.indptr[column],
                self.by_column.indptr[column + 1],
            )
            low, high = self.weight_before[first], self.weight_before[end]
            u = low + rng.random(size) * (high - low)
            other = np.searchsorted(self.weight_before, u, side="right") - 1
            other = np.minimum(other, end - 1)  # rounding may carry u to the end
            query, positive = self.row[entry], self.by_column.indices[other]
            accepted = query != positive
            if self.threshold > 0:
                accepted &= self._above_threshold(query, positive)
            kept.append(np.stack([query, positive])[:, accepted])
            n_kept += len(kept[-1][0])
            n_refused = 0 if accepted.any() else n_refused + size
            if n_refused >= 1_000_000:
                raise ValueError(
                    "y holds no triplet: none of a million pairs exceeds "
                    f"relevance_threshold={self.threshold}."
                )
        return np.concatenate(kept, axis=1)[:, :n_pairs]

    def _draw_negatives(self, query, rng):
        """A negative for each query, and whether there was one."""
        negative = np.empty(len(query), dtype=np.intp)
        todo = np.flatnonzero(~self.no_irrelevant[query])
        for _ in range(N_REDRAWS):
            if len(todo) == 0:
                break
            negative[todo] = rng.integers(self.positive.shape[0], size=len(todo))
            todo = todo[~self._is_irrelevant(query[todo], negative[todo])]
        for i in todo:
            choices = self._irrelevant_to(query[i])
            if len(choices):
                negative[i] = choices[rng.integers(len(choices))]
        return negative, ~self.no_irrelevant[query]

    def _is_irrelevant(self, query, item):
        irrelevant = ~self._above_threshold(query, item) & (query != item)
        if self.junk is not None:
            irrelevant &= _row_products(self.positive, query, self.junk, item) == 0
        return irrelevant

    def _above_threshold(self, query, item):
        joint = _row_products(self.scaled, query, self.scaled, item)
        return joint > self.threshold

    def _irrelevant_to(self, query):
        if query not in self.irrelevant:
            items = np.arange(self.positive.shape[0])
            queries = np.full(len(items), query)
            self.irrelevant[query] = items[self._is_irrelevant(queries, items)]
            self.no_irrelevant[query] = len(self.irrelevant[query]) == 0
        return self.irrelevant[query]


def _row_products(A, rows_A, B, rows_B):
    """<A_i, B_j> for pairs of rows of two CSR arrays."""
    return np.asarray(A[rows_A].multiply(B[rows_B]).sum(axis=1)).ravel()


def _draw_by_weight(cumulative, u):
    return np.searchsorted(cumulative, u * cumulative[-1], side="right")
