"""Optimisation problem of HistogramRankSVM, and its solver.

Notation and equation labels are those of doc/learners/histogram.rst.
"""

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches

from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import count_indices
from sklearn_simlearn._core.targets import DISTRACTOR
from sklearn_simlearn.histogram._histogram_fast import Words, ascend, find_cuts
from sklearn_simlearn.histogram._table import (
    Counts,
    find_gains,
    find_length_factors,
    invert,
    truncate,
)

# Shape of a table of gains: (n_groups, n_counts, n_counts).
Shape: TypeAlias = tuple[int, int, int]

# (histogram-prior)  Scale of the weight of a rare bin, and of the part that all groups
# share.
RARE_BIN = 0.1
SHARED_SCALE = 3.0

# Number of planes to keep per query.
N_SLOTS = 6

# Number of steps of one kernel call, which takes a few tenths of a second. Python can
# be interrupted between calls.
MAX_STEPS = 2**26


class Search:
    """Queries, items, and the relevance of the items.

    Parameters
    ----------
    counts : Counts
        Counts of the items.

    group : ndarray of shape (n_words,)
        Group of each word.

    relevance : Relevance
        Relevance of the items to each other.

    queries : ndarray
        Items that query the others.

    factor : ndarray of shape (n_items,)
        Length normalisation: factor of the gains of each item.

    shape : Shape
        Shape of the gains.

    n_threads : int
        Number of threads.
    """

    def __init__(
        self,
        counts: Counts,
        group: np.ndarray,
        relevance: Relevance,
        queries: np.ndarray,
        factor: np.ndarray,
        shape: Shape,
        n_threads: int,
    ):
        self.counts = counts
        self.group = group
        self.relevance = relevance
        self.queries = queries
        self.factor = factor
        self.shape = shape
        self.n_threads = n_threads
        self.start, self.postings = invert(counts, len(group))
        self.totals = count_words(counts, group, shape)
        # Mean number of steps per query: each of its words reads all postings.
        frequency = np.diff(self.start).astype(np.float64)
        steps = frequency @ frequency / len(relevance) + len(relevance)
        self.n_queries_at_once = max(1, int(MAX_STEPS / steps))

    def count_pairs(self) -> np.ndarray:
        """Return the number of training pairs of each query, weighted by relevance."""
        n_pairs = np.empty(len(self.queries))
        for batch, _, relevant in self.relevance.batches(self.queries, graded=True):
            weight = np.maximum(relevant, 0).sum(axis=1, dtype=np.float64)
            n_pairs[batch] = weight * np.count_nonzero(relevant == 0, axis=1)
        return n_pairs

    def cut(
        self, gain: np.ndarray, pairwise: bool
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return the loss of each query at these gains, and its supporting plane."""
        n_queries = len(self.queries)
        value, offset = np.empty((2, n_queries))
        cuts = np.zeros((n_queries, *self.shape))
        of_item = np.einsum("igl,gl->i", self.totals, gain[:, 0])
        words = Words(*self.counts, self.start, self.postings, self.group)
        for batch, rows, relevant in self.relevance.batches(self.queries, graded=True):
            of_batch = value[batch], offset[batch], cuts[batch]
            for block in gen_batches(len(rows), self.n_queries_at_once):
                find_cuts(
                    rows[block],
                    relevant[block],
                    words,
                    self.totals,
                    gain,
                    of_item,
                    self.factor,
                    pairwise,
                    min(self.n_threads, len(rows[block])),
                    *(out[block] for out in of_batch),
                )
        return value, offset, cuts


def count_words(counts: Counts, group: np.ndarray, shape: Shape) -> np.ndarray:
    """Return, for each item, the number of words by group and count."""
    n_items, (n_groups, n_counts, _) = len(counts.indptr) - 1, shape
    totals = np.empty((n_items, n_groups * n_counts), dtype=np.int32)
    for block in gen_batches(n_items, 1000):
        size = np.diff(counts.indptr[block.start : block.stop + 1])
        item = np.repeat(np.arange(len(size)), size)
        some = slice(counts.indptr[block.start], counts.indptr[block.stop])
        kind = group[counts.words[some]] * n_counts + counts.counts[some]
        place = item * (n_groups * n_counts) + kind
        totals[block] = np.bincount(
            place, minlength=len(size) * n_groups * n_counts
        ).reshape(len(size), -1)
    return totals.reshape(n_items, n_groups, n_counts)


class Problem:
    """The losses of all queries, before regularisation.

    Parameters
    ----------
    searches : list of Search
        A single search; with cross-fitting, one per half of the samples.

    pairwise : bool
        True for the loss "pairwise", False for "max".

    word_groups : ndarray of shape (n_words,)
        Group of each word by its frequency in all items.

    mean_length : float
        Mean length of all items.

    Attributes
    ----------
    capacity : ndarray of shape (n_queries,)
        Weight of each query: an even share, or its share of the pairs if pairwise.

    mean_difference : ndarray of shape (n_queries, n_groups, n_counts, n_counts)
        Mean difference between irrelevant and relevant items, which determines the
        scale of the bins. It is the slope of the pairwise loss at weights of 0.
    """

    def __init__(
        self,
        searches: list[Search],
        pairwise: bool,
        word_groups: np.ndarray,
        mean_length: float,
    ):
        self.searches = searches
        self.pairwise = pairwise
        self.word_groups = word_groups
        self.mean_length = mean_length
        self.n_queries = sum(len(search.queries) for search in searches)
        self.capacity = np.full(self.n_queries, 1 / self.n_queries)
        if pairwise:
            n_pairs = np.concatenate([search.count_pairs() for search in searches])
            self.capacity = n_pairs / n_pairs.sum()
        zero = np.zeros(searches[0].shape)
        slopes = [search.cut(zero, True)[2] for search in searches]
        self.mean_difference = np.concatenate(slopes)

    def cut(self, gain: np.ndarray) -> tuple[np.ndarray, ...]:
        """Return the losses, and the offsets and slopes of their supporting planes."""
        parts = [search.cut(gain, self.pairwise) for search in self.searches]
        return tuple(np.concatenate(part) for part in zip(*parts, strict=True))


def group_words(counts: Counts, n_words: int, n_groups: int) -> np.ndarray:
    """Return the group of each word by its document frequency, rarest words first."""
    frequency = count_indices(counts.words, n_words)
    seen = np.sort(frequency[frequency > 0])
    # If no word occurs, all words are in the first group.
    edges = seen[len(seen) * np.arange(1, n_groups) // n_groups] if len(seen) else seen
    return np.searchsorted(edges, frequency).astype(np.int32)


def pose(
    X: sparse.csr_array,
    relevance: Relevance,
    queries: np.ndarray,
    pattern: np.ndarray,
    *,
    n_word_groups: int,
    alpha: float,
    penalty: str,
    loss: str,
    cross_fit: bool | str,
    length_slope: float,
    n_threads: int,
) -> "Solver":
    """Return the solver of the problem in which some samples query all samples.

    Parameters
    ----------
    X : csr_array of shape (n_samples, n_words)
        Counts.

    relevance : Relevance
        Relevance of the samples to each other.

    queries : ndarray of int
        Samples that query.

    pattern : ndarray of shape (n + 1, n + 1)
        Bin of each pair of counts.

    n_word_groups, alpha, penalty, loss, cross_fit, length_slope
        As in `HistogramRankSVM`; the loss is "max" or "pairwise".

    n_threads : int
        Number of threads.
    """
    n_words, n_counts = X.shape[1], len(pattern)
    shape = n_word_groups, n_counts, n_counts
    counts = truncate(X, n_counts - 1)
    mean_length = float(counts.counts.sum(dtype=np.int64) / X.shape[0])
    factor = find_length_factors(counts, length_slope, mean_length)
    if cross_fit == "auto":
        cross_fit = n_word_groups > 1 and _are_words_of_objects(counts, relevance)
    is_query = np.zeros(len(relevance), dtype=bool)
    is_query[queries] = True
    everyone = np.arange(len(relevance))
    word_groups = group_words(counts, n_words, n_word_groups)
    parts, counts_of, groups = [everyone], [counts], [word_groups]
    if cross_fit:
        half = halve(relevance)
        parts = [everyone[half], everyone[~half]]
        counts_of = [counts.take(part) for part in parts]
        groups = [group_words(c, n_words, n_word_groups) for c in counts_of[::-1]]
    searches = []
    for part, own, group in zip(parts, counts_of, groups, strict=True):
        among = relevance.take(part)
        of_part = np.flatnonzero(among.find_queries(is_query[part]))
        if len(of_part):
            searches.append(
                Search(own, group, among, of_part, factor[part], shape, n_threads)
            )
    if not searches:
        raise ValueError(
            "y has too few objects for cross_fit: each half needs relevant and "
            "irrelevant items. Set cross_fit=False."
        )
    problem = Problem(searches, loss == "pairwise", word_groups, mean_length)
    return Solver(problem, pattern, alpha, penalty)


def _are_words_of_objects(counts: Counts, relevance: Relevance) -> bool:
    """Return True if words are rare because most occur in a single object only."""
    objects = relevance.objects()
    n_objects = objects.max() + 1
    if n_objects < 20:
        return False
    n_words = int(np.count_nonzero(np.bincount(counts.words)))
    mean_frequency = len(counts.words) / max(n_words, 1)
    return mean_frequency < 2 * np.count_nonzero(objects >= 0) / n_objects


def halve(relevance: Relevance) -> np.ndarray:
    """Return the mask of every second object and every second distractor."""
    objects = relevance.objects()
    half = objects % 2 == 0
    distractors = np.flatnonzero(objects == DISTRACTOR)
    half[distractors] = np.arange(len(distractors)) % 2 == 0
    return half


class Solver:
    r"""Bundle method with one bundle of planes per query.

    It minimises

    .. math:: \min_\theta \tfrac{\alpha}{2} \lVert \theta \rVert^2
              + \sum_q c_q\, \ell_q(T \theta) .

    The planes of a query never exceed its loss. If planes replace the losses, the
    minimum is therefore a lower bound of the objective: `bound`.
    """

    def __init__(
        self,
        problem: Problem,
        pattern: np.ndarray,
        alpha: float,
        penalty: str = "shared",
    ):
        self.problem = problem
        self.pattern = pattern
        self.alpha = alpha
        self.to_bins, self.to_gain = parametrise(
            problem.mean_difference, pattern, penalty
        )
        n_queries, n_parameters = problem.n_queries, self.to_gain.shape[1]
        self.planes = np.zeros((n_queries, N_SLOTS, n_parameters))
        self.offsets = np.full((n_queries, N_SLOTS), -np.inf)
        self.mass = np.zeros((n_queries, N_SLOTS))
        self.n_sweeps = int(np.clip(MAX_STEPS // self.planes.size, 1, 20))
        self.theta = self.best = np.zeros(n_parameters)
        self.objective, self.bound = np.inf, 0.0
        self.n_iter = 0

    @property
    def gap(self) -> float:
        """Upper bound on the excess of the objective, as a share of the objective."""
        if self.objective == np.inf:
            return np.inf
        return (self.objective - self.bound) / self.objective

    def is_done(self, tol: float) -> bool:
        """Return True if the gap is at most `tol`; 1 % of `tol` for weights of 0."""
        return self.gap <= (tol if self.best.any() else 1e-2 * tol)

    def weights(self) -> np.ndarray:
        """Return the best weights so far, minus the weight of the counts (0, 0)."""
        n_bins = self.pattern.max() + 1
        of_bin = (self.to_bins @ self.best).reshape(-1, n_bins)
        of_bin = of_bin - of_bin[:, self.pattern[:1, 0]]
        return np.ascontiguousarray(of_bin[:, self.pattern])

    def find_gain(self, theta: np.ndarray) -> np.ndarray:
        """Return the gains of these parameters."""
        n_counts = len(self.pattern)
        return (self.to_gain @ theta).reshape(-1, n_counts, n_counts)

    def penalty(self, theta: np.ndarray) -> float:
        """Return the penalty, the first term of the objective."""
        return self.alpha / 2 * theta @ theta

    def solve(
        self, tol: float, max_iter: int, report: Callable[[], bool] = lambda: False
    ) -> bool:
        """Iterate until the gap is small enough.

        Return False if the gap is still too large after `max_iter` iterations. `report`
        is called after each iteration. If it returns True, stop and return True.
        """
        while not self.is_done(tol):
            if self.n_iter >= max_iter:
                return False
            self.iterate(tol)
            if report():
                break
        return True

    def iterate(self, tol: float) -> None:
        """Add planes at the current point, then step to the minimum of the planes."""
        value, offset, cuts = self.problem.cut(self.find_gain(self.theta))
        objective = self.penalty(self.theta) + self.problem.capacity @ value
        if objective < self.objective:
            self.objective, self.best = objective, self.theta
        self.n_iter += 1
        if self.is_done(tol):
            return
        self._add(cuts.reshape(len(cuts), -1) @ self.to_gain, offset)
        # While the gap is large, an inexact minimum is enough.
        minimum = np.empty_like(self.theta)
        for _ in range(1000):
            dual, primal = ascend(
                self.planes,
                self.offsets,
                self.mass,
                self.problem.capacity,
                self.alpha,
                minimum,
                self.n_sweeps,
            )
            self.bound = max(self.bound, dual)
            if self.is_done(tol) or primal - dual <= 0.1 * (self.objective - dual):
                break
        # With few planes, the full step to their minimum is too long.
        self.theta = (self.best + minimum) / 2

    def _add(self, planes: np.ndarray, offset: np.ndarray) -> None:
        """Store one plane per query in an empty slot, or in the slot of least mass.

        The old plane of the slot is merged with the next plane. Their mean, weighted by
        mass, is also below the loss and does not change the dual.
        """
        query = np.arange(len(planes))
        vacant = np.where(np.isneginf(self.offsets), -1.0, self.mass)
        slot, other = np.argsort(vacant, axis=1, kind="stable")[:, :2].T
        full = np.flatnonzero(vacant[query, slot] > 0)
        a, b = (full, slot[full]), (full, other[full])
        total = self.mass[a] + self.mass[b]
        part = self.mass[a] / total
        self.planes[b] += part[:, None] * (self.planes[a] - self.planes[b])
        self.offsets[b] += part * (self.offsets[a] - self.offsets[b])
        self.mass[b] = total
        self.planes[query, slot] = planes
        self.offsets[query, slot] = offset
        self.mass[query, slot] = 0


def parametrise(
    mean_difference: np.ndarray, pattern: np.ndarray, penalty: str = "shared"
) -> tuple[np.ndarray, np.ndarray]:
    """Return linear maps from the parameters to the weights of bins and to the gains.

    With the penalty "l2", the parameters are the weights. With "shared", a weight is
    the sum of a separate part and of a part that all groups share, a combination of
    min(j, l) and j + l: (histogram-prior). The weight of the bin of (0, 0) is 0. The
    scale of a bin is the difference between relevant and irrelevant items in this bin.
    The scale of rare bins is bounded, relative to the bin of the counts (1, 1).
    """
    n_queries, n_groups = mean_difference.shape[:2]
    n_bins = pattern.max() + 1
    is_bin = (pattern == np.arange(n_bins)[:, None, None]).astype(np.float64)
    to_gain = find_gains(is_bin).reshape(n_bins, -1).T
    if penalty == "l2":
        return np.eye(n_groups * n_bins), np.kron(np.eye(n_groups), to_gain)
    difference = mean_difference.reshape(n_queries, n_groups, -1) @ to_gain
    scale = np.sqrt(np.mean(difference**2, axis=0))
    reference = scale[:, pattern[1, 1]].max() or scale.max() or 1.0
    scale = np.maximum(scale, RARE_BIN * reference)

    query, item = np.indices(pattern.shape)
    shared = np.stack([np.minimum(query, item), query + item])
    shared = np.tensordot(shared, is_bin, axes=([1, 2], [1, 2]))
    shared /= is_bin.sum(axis=(1, 2))
    shared -= shared[:, pattern[0, 0], None]
    shared *= SHARED_SCALE / scale.max()

    free = np.tile(np.arange(n_bins) != pattern[0, 0], n_groups)
    own = np.diag(1 / scale.ravel())[:, free]
    to_bins = np.hstack([own, np.tile(shared, n_groups).T])
    return to_bins, np.kron(np.eye(n_groups), to_gain) @ to_bins
