"""The problem that SparseMahalanobisLearner solves: unknowns, triplets, objective.

Notation and equation labels are those of doc/learners/mahalanobis.rst.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, minimize
from sklearn.neighbors import NearestNeighbors
from sklearn.utils import gen_batches

from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import inverse, row_dots, scale_rows, unit_rows
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.mahalanobis._mahalanobis_fast import (
    Mined,
    Words,
    collect,
    differentiate,
    find_common,
    score_selves,
)

# Shares of the queries whose gradients are summed up apart, whatever `n_jobs`.
N_PARTS = 16

# Queries a kernel visits at a time, few enough to let Ctrl-C through.
BLOCK = 1024

# Root mean square of the first change of the diagonal, as a share of its start.
FIRST_STEP = 0.3

# What SciPy's L-BFGS-B says when it has made all its iterations.
MAX_ITER_REACHED = 1


class Pairs:
    """The unknowns: one for each pair of words that may match.

    Parameters
    ----------
    start : csr_array of shape (n_words, n_words)
        Symmetric matrix to start with.

    neighbors : csr_array of shape (n_words, n_words)
        Non-zero where two words may match, one way or the other.

    Attributes
    ----------
    first, second : ndarray of shape (n_pairs,)
        The words of each pair; those of the diagonal come first.

    number : csr_array of shape (n_words, n_words)
        Number of the pair that each entry of the support belongs to.

    unit : float
        Mean of the diagonal of `start`. The unknowns are multiples of it.

    start : ndarray of shape (n_pairs,)
        Where the unknowns start.
    """

    def __init__(self, start: sparse.csr_array, neighbors: sparse.csr_array):
        n_words = start.shape[0]
        linked = neighbors.astype(bool) + start.astype(bool)
        above = sparse.triu(linked + linked.T, 1, format="coo")
        diagonal = np.arange(n_words)
        self.first = np.concatenate([diagonal, above.row])
        self.second = np.concatenate([diagonal, above.col])
        number = np.arange(len(self.first), dtype=np.int32)
        self.number = sparse.csr_array(
            (
                np.concatenate([number, number[n_words:]]),
                (
                    np.concatenate([self.first, self.second[n_words:]]),
                    np.concatenate([self.second, self.first[n_words:]]),
                ),
            ),
            shape=start.shape,
        )
        self.number.sort_indices()
        self.unit = start.diagonal().mean() or start.data.mean()
        self.start = start[self.first, self.second] / self.unit

    def matrix(self, m: np.ndarray) -> sparse.csr_array:
        """M in units of the start, without the entries that are zero."""
        M = self._with_values(m[self.number.data])
        M.eliminate_zeros()
        return M

    def support(self) -> sparse.csr_array:
        """Mask of the entries that are learned."""
        return self._with_values(np.ones(self.number.nnz, dtype=bool))

    def _with_values(self, values):
        parts = values, self.number.indices.copy(), self.number.indptr.copy()
        return sparse.csr_array(parts, shape=self.number.shape)


class Triplets(NamedTuple):
    """Triplets of some queries: those implied by a ranking, and listed ones.

    Attributes
    ----------
    queries : ndarray of shape (n_queries,)
        Rows of the items.

    weight : ndarray of shape (n_queries,)
        Weight of each query's triplets, as a share of the total weight of all.

    ranked_start, ranked : ndarray
        Ranking of each query: items, or ``~item`` if it is relevant. A triplet is
        implied by each relevant item and each irrelevant one above it.

    relevant_start, relevance : ndarray
        Relevance of the relevant items of each query, in the order of the ranking.

    listed_start, listed, listed_weight : ndarray
        Listed triplets of each query: pairs of a relevant and an irrelevant item, and
        the relevance of the first.

    n_hard : int
        Number of triplets that the rankings imply.
    """

    queries: np.ndarray
    weight: np.ndarray
    ranked_start: np.ndarray
    ranked: np.ndarray
    relevant_start: np.ndarray
    relevance: np.ndarray
    listed_start: np.ndarray
    listed: np.ndarray
    listed_weight: np.ndarray
    n_hard: int


class Problem:
    """Items that query each other, and the objective at any M.

    Parameters
    ----------
    X : csr_array of shape (n_items, n_words)
        Frequencies of the words.

    relevance : Relevance
        Of the items to each other.

    pairs : Pairs
        The unknowns.

    alpha : float
        Pull towards the start.

    n_threads : int
        Number of threads.
    """

    def __init__(
        self,
        X: sparse.csr_array,
        relevance: Relevance,
        pairs: Pairs,
        *,
        alpha: float = 0.0,
        n_threads: int = 1,
    ):
        self.X = X
        self.relevance = relevance
        self.pairs = pairs
        self.alpha = alpha
        self.n_threads = n_threads
        self.n_items, self.n_words = X.shape
        self.rows = _arrays(X)
        by_word = X.tocsc()
        self.postings_start, *self.postings = _arrays(by_word)
        # (mahalanobis-own)
        own = [X.power(2)]
        first, second = pairs.first[self.n_words :], pairs.second[self.n_words :]
        for batch in gen_batches(max(len(first), 1), 2**16):
            own.append(2 * by_word[:, first[batch]].multiply(by_word[:, second[batch]]))
        self.own = _arrays(sparse.hstack(own, format="csr"))
        # For each word, its entries of M: the pair, and the postings of the other word.
        start, word, self.entry_pair = _arrays(pairs.number)
        postings = np.stack([self.postings_start[word], self.postings_start[word + 1]])
        self.entries = start, self.entry_pair, np.ascontiguousarray(postings.T)

    def mine(
        self,
        m: np.ndarray,
        queries: np.ndarray,
        weight: np.ndarray,
        n_random: int,
        rng: np.random.Generator,
    ) -> tuple[Triplets, float]:
        """Triplets that are hard at this M, and random ones.

        Also the mean similarity of relevant items, by the weight of the queries.
        """
        n_random = rng.multinomial(n_random, np.full(len(queries), 1 / len(queries)))
        inverse_norms = np.sqrt(self._inverse_selves(m))
        M = self.pairs.matrix(m).astype(self.X.dtype)
        products = products_with(self.X, self.n_threads)
        ranked, relevance, listed = [], [], []
        mean_relevant = np.empty(len(queries))
        for batch, rows, grades in self.relevance.batches(queries, graded=True):
            S = products(self.X[rows] @ M)
            S = (S * inverse_norms * inverse_norms[rows, None]) ** 2
            positive = np.maximum(grades, 0)
            mean_relevant[batch] = row_dots(positive, S) / positive.sum(axis=1)
            for score, grade, n in zip(S, grades, n_random[batch], strict=True):
                order = np.flatnonzero(grade >= 0)
                # Of equal ones the relevant come first: such triplets are not hard.
                order = order[np.lexsort((grade[order] == 0, -score[order]))]
                is_relevant = grade[order] > 0
                good, bad = order[is_relevant], order[~is_relevant]
                drawn = good[rng.integers(len(good), size=n)]
                other = bad[rng.integers(len(bad), size=n)]
                last = np.flatnonzero(is_relevant)[-1] + 1
                ranked.append(np.where(is_relevant, ~order, order)[:last])
                relevance.append(grade[good].astype(np.float64))
                listed.append(np.column_stack([drawn, other, grade[drawn]]))

        n_above = [np.cumsum(items >= 0)[items < 0] for items in ranked]
        of_ranking = [n @ grade for n, grade in zip(n_above, relevance, strict=True)]
        of_list = [triplets[:, 2].sum() for triplets in listed]
        total = weight @ np.add(of_ranking, of_list)
        all_listed = np.concatenate(listed)
        triplets = Triplets(
            queries=queries,
            weight=weight / (total or 1.0),
            ranked_start=_starts(ranked),
            ranked=np.concatenate(ranked).astype(np.int32),
            relevant_start=_starts(relevance),
            relevance=np.concatenate(relevance),
            listed_start=_starts(listed),
            listed=all_listed[:, :2].astype(np.int32, order="C"),
            listed_weight=np.ascontiguousarray(all_listed[:, 2], dtype=np.float64),
            n_hard=int(sum(n.sum() for n in n_above)),
        )
        return triplets, float(weight @ mean_relevant / weight.sum())

    def evaluate(
        self,
        m: np.ndarray,
        triplets: Triplets,
        margin: float,
        visited: np.ndarray | None = None,
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """(mahalanobis-objective) and its gradient, and the loss of each query.

        Only the `visited` queries count; the others have a loss of 0.
        """
        if visited is None:
            visited = np.arange(len(triplets.queries))
        inverse_selves = self._inverse_selves(m)
        strength = m[self.entry_pair].astype(self.X.dtype)
        losses = np.zeros(len(triplets.queries))
        self_slope = np.zeros((N_PARTS, self.n_items))
        slopes = np.zeros((N_PARTS, len(m)))
        indptr, words, values = self.rows
        items, item_values = self.postings
        support = Words(indptr, words, items, *self.entries)
        mined = Mined(*triplets[:-1])  # all but their number
        for batch in gen_batches(max(len(visited), 1), BLOCK):
            differentiate(
                visited[batch],
                mined,
                support,
                values,
                item_values,
                strength,
                inverse_selves,
                margin,
                self.n_threads,
                losses,
                self_slope,
                slopes,
            )
        slope = np.empty_like(m)
        collect(self_slope, *self.own, self.n_threads, slopes, slope)
        stray = m - self.pairs.start
        pull = self.alpha / self.n_words
        value = losses.sum() / margin + pull / 2 * stray @ stray
        return value, slope / margin + pull * stray, losses

    def _inverse_selves(self, m):
        """1 / S_ii, or 0."""
        selves = np.empty(self.n_items)
        score_selves(*self.own, m, self.n_threads, selves)
        return inverse(selves)


def descend(
    problem: Problem,
    triplets: Triplets,
    margin: float,
    checkpoints: Sequence[int],
    tol: float,
    report: Callable[[np.ndarray], bool] = lambda m: False,
) -> Iterator[tuple[np.ndarray, int, bool]]:
    """Quasi-Newton steps from the start, by SciPy's L-BFGS-B.

    Queries whose triplets are satisfied by far are left out of the evaluations until
    the next checkpoint.

    Parameters
    ----------
    problem, triplets, margin
        What is minimised.

    checkpoints : sequence of int
        Numbers of iterations, in rising order.

    tol : float
        An iteration that lowers the objective by no more is the last.

    report : callable
        Called with M after each iteration; whether to stop.

    Yields
    ------
    m : ndarray of shape (n_pairs,)
        M at each checkpoint, or at the end if that was earlier.

    n_iter : int
        Number of iterations so far.

    is_over : bool
        Whether it has converged, or `report` has stopped it.
    """
    # L-BFGS-B begins with a step of unit length: let it be one that matters.
    scale = FIRST_STEP * np.sqrt(problem.n_words)
    m = problem.pairs.start
    n_iter, is_over, is_stopped = 0, False, False
    active = np.arange(len(triplets.queries))

    def evaluate(x):
        value, slope, _ = problem.evaluate(scale * x, triplets, margin, active)
        return value, scale * slope

    def step(intermediate_result):
        nonlocal n_iter, is_stopped
        n_iter += 1
        is_stopped = report(scale * intermediate_result.x)
        if is_stopped:
            raise StopIteration

    for checkpoint in checkpoints:
        while n_iter < checkpoint and not is_over:
            before = n_iter
            result = minimize(
                evaluate,
                m / scale,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(0, np.inf),
                callback=step,
                options={"maxiter": checkpoint - n_iter, "ftol": tol, "gtol": 0},
            )
            m = scale * result.x
            # Those that even twice the margin would satisfy will not be back soon.
            near = np.flatnonzero(problem.evaluate(m, triplets, 2 * margin)[2])
            back = np.setdiff1d(near, active)
            has_changed = problem.evaluate(m, triplets, margin, back)[2].any()
            has_ended = result.status != MAX_ITER_REACHED and not has_changed
            is_over = is_stopped or has_ended or n_iter == before
            active = near
        yield m, n_iter, is_over


def draw_queries(
    relevance: Relevance, n_per_object: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Some samples of each object that have a triplet, and their weights."""
    members = relevance.memberships
    rows = np.repeat(np.arange(len(relevance)), np.diff(members.indptr))
    can_query = relevance.find_queries()[rows]
    row, column = rows[can_query], members.indices[can_query]
    order = np.lexsort((rng.random(len(row)), column))
    place = np.arange(len(order)) - np.searchsorted(column[order], column[order])
    queries = np.unique(row[order[place < n_per_object]])
    # (mahalanobis-weight)  max N / N(object), the mean over the query's objects
    issued = members[queries].astype(bool)
    n_issued = issued.sum(axis=0)
    weight = issued @ (n_issued.max(initial=0) * inverse(n_issued.astype(np.float64)))
    return queries, weight * inverse(issued.sum(axis=1).astype(np.float64))


def find_neighbors(
    X: sparse.csr_array,
    words: Matrix | None,
    n_neighbors: int,
    n_threads: int,
    advance: Callable[[str], bool],
) -> sparse.csr_array:
    """Graph of the words that may match.

    By `words`, which are vectors or the graph itself; else by the samples `X` in which
    they occur together.
    """
    n_words = X.shape[1]
    n_neighbors = min(n_neighbors, n_words - 1)
    if n_neighbors == 0:
        return sparse.csr_array((n_words, n_words), dtype=bool)
    if sparse.issparse(words):
        return words.astype(bool)
    if words is None:
        blocks = _find_common(X, n_neighbors, n_threads)
    else:
        blocks = _find_nearest(words, n_neighbors)
    nearest = []
    for block in blocks:
        nearest.append(block)
        advance("neighbours")
    nearest = np.concatenate(nearest)
    found = nearest >= 0
    parts = (
        np.ones(np.count_nonzero(found), dtype=bool),
        nearest[found],
        np.append(0, np.cumsum(np.count_nonzero(found, axis=1))),
    )
    return sparse.csr_array(parts, shape=(n_words, n_words))


def _find_common(X, n_neighbors, n_threads, work_per_block=2**28):
    """For each word those that occur in the same samples, a block at a time.

    Where there are too few of them the row is filled up with -1.
    """
    words = unit_rows(X.T.tocsr())
    samples = words.T.tocsr()
    # For each word, the words of all samples that have it.
    work = (words.astype(bool) @ np.diff(samples.indptr)).cumsum()
    edges = np.searchsorted(work, np.arange(work_per_block, work[-1], work_per_block))
    edges = np.unique([0, *edges, len(work)])
    arrays = *_arrays(words), *_arrays(samples)
    for first, last in pairwise(edges):
        nearest = np.empty((last - first, n_neighbors), dtype=np.int32)
        find_common(first, *arrays, n_threads, nearest)
        yield nearest


def _find_nearest(words, n_neighbors):
    """For each word those with the nearest vectors, a block at a time."""
    n_words = len(words)
    search = NearestNeighbors().fit(words)
    for batch in gen_batches(n_words, 10_000):
        nearest = search.kneighbors(
            words[batch], n_neighbors + 1, return_distance=False
        )
        # A word is its own nearest one, unless others are at the same place.
        is_self = nearest == np.arange(n_words)[batch, None]
        is_self[~is_self.any(axis=1), -1] = True
        yield nearest[~is_self].reshape(-1, n_neighbors)


def frequencies(X: Matrix, power: float) -> Matrix:
    """Values raised to a power, then rows of sum 1; those of zeros stay."""
    if power != 1:
        X = X.power(power) if sparse.issparse(X) else X**power
    return scale_rows(X, inverse(np.asarray(X.sum(axis=1, dtype=np.float64)).ravel()))


def _arrays(X):
    """indptr, indices and data, of the types that kernels take."""
    X.sort_indices()
    return (
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.data,
    )


def _starts(parts):
    """Where each part of a concatenation begins, and the last one ends."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)
