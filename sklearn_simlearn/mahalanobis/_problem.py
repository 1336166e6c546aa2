"""Optimisation problem of SparseMahalanobisLearner: unknowns, triplets, objective.

Notation and equation labels are those of doc/learners/mahalanobis.rst.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import Bounds, OptimizeResult, minimize
from sklearn.utils import gen_batches

from sklearn_simlearn._core.products import products_with
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import inverse, row_dots
from sklearn_simlearn.mahalanobis._mahalanobis_fast import (
    Mined,
    Words,
    collect,
    differentiate,
    differentiate_scores,
    score_selves,
)

# Number of parts of the queries. The gradient of each part is summed separately, so
# that the result does not depend on `n_jobs`.
N_PARTS = 16

# Number of queries per call of a kernel; small, so that Ctrl-C is handled soon.
BLOCK = 1024

# Smallest share of non-zeros at which samples are compared by dense products, and the
# largest number of scores of such a product.
DENSE_FROM = 0.1
MAX_SCORES = 2**22

# Root mean square of the first step, as a share of the initial diagonal.
FIRST_STEP = 0.5

# Status of SciPy's L-BFGS-B after the last allowed iteration.
MAX_ITER_REACHED = 1


class Pairs:
    """Unknowns of the problem: one for each pair of words that may match.

    Parameters
    ----------
    start : csr_array of shape (n_words, n_words)
        Initial matrix, symmetric.

    neighbors : csr_array of shape (n_words, n_words)
        Two words may match if either of their two entries is non-zero.

    Attributes
    ----------
    first, second : ndarray of shape (n_pairs,)
        The words of each pair. The pairs of a word with itself come first.

    number : csr_array of shape (n_words, n_words)
        Index of the pair of each entry of the support.

    unit : float
        Mean of the diagonal of `start`. The unknowns are multiples of it.

    start : ndarray of shape (n_pairs,)
        Initial values of the unknowns.
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
        """Return M in units of the start, without the entries that are zero."""
        M = self._with_values(m[self.number.data])
        M.eliminate_zeros()
        return M

    def support(self) -> sparse.csr_array:
        """Return the mask of the entries that are learned."""
        return self._with_values(np.ones(self.number.nnz, dtype=bool))

    def _with_values(self, values: np.ndarray) -> sparse.csr_array:
        parts = values, self.number.indices.copy(), self.number.indptr.copy()
        return sparse.csr_array(parts, shape=self.number.shape)


class Triplets(NamedTuple):
    """Triplets of some queries, implied by a ranking or listed.

    Attributes
    ----------
    queries : ndarray of shape (n_queries,)
        Items that query, as row numbers.

    weight : ndarray of shape (n_queries,)
        Weight of the triplets of each query, as a share of the total weight.

    ranked_start, ranked : ndarray
        Ranking of each query: ``~item`` if an item is relevant, else ``item``. Each
        relevant item forms a triplet with each irrelevant item above it.

    relevant_start, relevance : ndarray
        Relevance of the relevant items of each query, in the order of the ranking.

    listed_start, listed, listed_weight : ndarray
        Listed triplets of each query: pairs of a relevant and an irrelevant item, and
        the relevance of the relevant item.

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


class Sums(NamedTuple):
    """Sums over triplets: the loss of each query, and slopes by item and by pair."""

    losses: np.ndarray
    self_slope: np.ndarray
    slopes: np.ndarray


class Problem:
    """Items that query each other, and the objective as a function of M.

    Parameters
    ----------
    X : csr_array of shape (n_items, n_words)
        Frequencies of the words.

    relevance : Relevance
        Relevance of the items to each other.

    pairs : Pairs
        The unknowns.

    alpha : float, default=0.0
        Strength of the penalty that keeps M close to the start.

    n_threads : int, default=1
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
        is_dense = X.nnz >= DENSE_FROM * self.n_items * self.n_words
        self.dense = X.toarray() if is_dense else None
        self.rows = csr_arrays(X)
        by_word = X.tocsc()
        self.postings_start, *self.postings = csr_arrays(by_word)
        # (mahalanobis-own)
        own = [X.power(2)]
        first, second = pairs.first[self.n_words :], pairs.second[self.n_words :]
        for batch in gen_batches(max(len(first), 1), 2**16):
            own.append(2 * by_word[:, first[batch]].multiply(by_word[:, second[batch]]))
        self.own = csr_arrays(sparse.hstack(own, format="csr"))
        # Entries of M of each word: the pair, and the postings of the other word.
        start, word, self.entry_pair = csr_arrays(pairs.number)
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
        """Return the triplets that this M ranks in the wrong order, and random ones.

        Also return the mean squared similarity of relevant items, with queries weighted
        by `weight`.
        """
        n_of_query = rng.multinomial(n_random, np.full(len(queries), 1 / len(queries)))
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
            for score, grade, n in zip(S, grades, n_of_query[batch], strict=True):
                order = np.flatnonzero(grade >= 0)
                # Relevant items come first among ties: such triplets are not hard.
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
        self, m: np.ndarray, triplets: Triplets, margin: float
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """Return (mahalanobis-objective), its gradient, and the loss of each query."""
        losses = np.zeros(len(triplets.queries))
        self_slope = np.zeros((N_PARTS, self.n_items))
        slopes = np.zeros((N_PARTS, len(m)))
        sums = Sums(losses, self_slope, slopes)
        if self.dense is None:
            self._add_sparse(m, triplets, margin, sums)
        else:
            self._add_dense(self.dense, m, triplets, margin, sums)
        slope = np.empty_like(m)
        collect(self_slope, *self.own, self.n_threads, slopes, slope)
        stray = m - self.pairs.start
        pull = self.alpha / self.n_words
        value = losses.sum() / margin + pull / 2 * stray @ stray
        return value, slope / margin + pull * stray, losses

    def _add_sparse(
        self, m: np.ndarray, triplets: Triplets, margin: float, sums: Sums
    ) -> None:
        """Add losses and slopes by reading the postings."""
        inverse_selves = self._inverse_selves(m)
        strength = m[self.entry_pair].astype(self.X.dtype)
        indptr, words, values = self.rows
        items, item_values = self.postings
        support = Words(indptr, words, items, *self.entries)
        mined = Mined(*triplets[:-1])  # without `n_hard`
        for batch in gen_batches(max(len(sums.losses), 1), BLOCK):
            differentiate(
                np.arange(len(sums.losses))[batch],
                mined,
                support,
                values,
                item_values,
                strength,
                inverse_selves,
                margin,
                self.n_threads,
                *sums,
            )

    def _add_dense(
        self,
        dense: np.ndarray,
        m: np.ndarray,
        triplets: Triplets,
        margin: float,
        sums: Sums,
    ) -> None:
        """Add losses and slopes by dense products."""
        inverse_selves = self._inverse_selves(m)
        M = self.pairs.matrix(m).astype(self.X.dtype)
        mined = Mined(*triplets[:-1])
        first, second = self.pairs.first, self.pairs.second
        above = slice(self.n_words, None)
        size = max(1, min(BLOCK, MAX_SCORES // max(self.n_items, len(m))))
        for batch in gen_batches(max(len(sums.losses), 1), size):
            queries = dense[triplets.queries[batch]]
            S = np.ascontiguousarray(queries @ M) @ dense.T
            differentiate_scores(
                np.arange(len(sums.losses))[batch],
                mined,
                inverse_selves,
                margin,
                self.n_threads,
                S,
                sums.losses,
                sums.self_slope,
            )
            # (mahalanobis-gradient)  x_iu sum_j a_ij x_jv, words by queries
            in_words, queries = dense.T @ S.T, queries.T
            sums.slopes[0] += row_dots(queries[first], in_words[second])
            sums.slopes[0, above] += row_dots(
                queries[second[above]], in_words[first[above]]
            )

    def _inverse_selves(self, m: np.ndarray) -> np.ndarray:
        """Return 1 / S_ii for each item; 0 if S_ii is 0."""
        selves = np.empty(self.n_items)
        score_selves(*self.own, m, self.n_threads, selves)
        return inverse(selves)


class Step(NamedTuple):
    """Unknowns after a number of iterations.

    Attributes
    ----------
    limit : int
        Largest number of iterations until this step.

    m : ndarray of shape (n_pairs,)
        The unknowns.

    n_iter : int
        Number of iterations until this step; less than `limit` if they ended before.

    has_ended : bool
        True if the iterations have converged, or if `report` has stopped them.
    """

    limit: int
    m: np.ndarray
    n_iter: int
    has_ended: bool


def descend(
    problem: Problem,
    triplets: Triplets,
    margin: float,
    max_iter: int,
    tol: float,
    report: Callable[[np.ndarray], bool] = lambda m: False,
) -> list[Step]:
    """Make quasi-Newton steps from the start, by SciPy's L-BFGS-B.

    Parameters
    ----------
    problem, triplets, margin
        Problem to minimise.

    max_iter : int
        Largest number of iterations; 0 for the start.

    tol : float
        Stop when an iteration reduces the objective by at most this value.

    report : callable, default=lambda m: False
        Called with the unknowns after each iteration; returns True to stop.

    Returns
    -------
    steps : list of Step
        Steps after at most 1, 2, 4, ... and `max_iter` iterations.
    """
    # The first step of L-BFGS-B has unit length, so the unknowns are scaled.
    scale = FIRST_STEP * np.sqrt(problem.n_words)
    m, n_iter, path = problem.pairs.start, 0, {}
    if max_iter == 0:
        return [Step(0, m, 0, True)]
    limits = find_limits(max_iter)

    def evaluate(x: np.ndarray) -> tuple[float, np.ndarray]:
        value, slope, _ = problem.evaluate(scale * x, triplets, margin)
        return value, scale * slope

    def step(intermediate_result: OptimizeResult) -> None:
        nonlocal m, n_iter
        m, n_iter = scale * intermediate_result.x, n_iter + 1
        if n_iter in limits:
            path[n_iter] = m
        if report(m):
            raise StopIteration

    result = minimize(
        evaluate,
        m / scale,
        jac=True,
        method="L-BFGS-B",
        bounds=Bounds(0, np.inf),
        callback=step,
        options={"maxiter": max_iter, "ftol": tol, "gtol": 0},
    )
    has_ended = result.status != MAX_ITER_REACHED
    return [
        Step(n, path.get(n, m), min(n, n_iter), has_ended and n >= n_iter)
        for n in limits
    ]


def find_limits(max_iter: int) -> list[int]:
    """Return 1, 2, 4, ... and `max_iter`."""
    n_doublings = int(max_iter).bit_length()
    return sorted({min(2**k, int(max_iter)) for k in range(n_doublings + 1)})


def draw_queries(
    relevance: Relevance, n_per_object: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Draw queries among the samples of each object; return them and their weights."""
    members = relevance.memberships
    rows = np.repeat(np.arange(len(relevance)), np.diff(members.indptr))
    can_query = relevance.find_queries()[rows]
    row, column = rows[can_query], members.indices[can_query]
    order = np.lexsort((rng.random(len(row)), column))
    place = np.arange(len(order)) - np.searchsorted(column[order], column[order])
    queries = np.unique(row[order[place < n_per_object]])
    # (mahalanobis-weight)  max N / N(object), averaged over the query's objects
    issued = members[queries].astype(bool)
    n_issued = issued.sum(axis=0)
    weight = issued @ (n_issued.max(initial=0) * inverse(n_issued.astype(np.float64)))
    return queries, weight * inverse(issued.sum(axis=1).astype(np.float64))


def csr_arrays(X: sparse.csr_array) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return indptr, indices and data in the types that kernels expect."""
    X.sort_indices()
    return (
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.data,
    )


def _starts(parts: Sequence[np.ndarray]) -> np.ndarray:
    """Return the start of each part of a concatenation, and the end of the last."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)
