"""Dual problems of the angular ranker, and their solution.

Notation and equation labels are those of doc/learners/angular.rst. Triplets are stored
in blocks of bounded size. Many problems of a single block are solved together. A
problem of several blocks is solved by passes over its blocks.
"""

from functools import lru_cache
from typing import NamedTuple

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.rows import scale_rows
from sklearn_simlearn.angular._angular_fast import smo
from sklearn_simlearn.angular._encoder import Matrices, like, multiply, to_dense
from sklearn_simlearn.angular._grams_fast import Blocks, grams_csr, grams_dense

# Largest number of relevant, and of irrelevant, candidates in a block. It bounds the
# Gram matrix to 2 MiB.
BLOCK_SIDE = 256

# Number of entries of Gram matrices that are solved between two checks of callbacks and
# of Ctrl-C. A matrix counts as at least 2^14 entries, so there are at most 256.
BATCH_SIZE = 2**22

# Number of steps per triplet in one visit to a block, if a problem has several blocks.
STEPS_PER_VISIT = 10

# Largest number of triplets of several blocks that are solved together. It bounds their
# Gram matrix.
MAX_FREE = 1000


# -- triplets, in blocks of bounded size --


class Block(NamedTuple):
    """Triplets of one reference among a bounded number of candidates."""

    reference: int
    rows: np.ndarray  # of X, relevant rows first
    n_relevant: int
    pairs: np.ndarray | None = None  # (2, n_triplets) indices of rows; None for all

    @property
    def n_triplets(self):
        if self.pairs is None:
            return self.n_relevant * (len(self.rows) - self.n_relevant)
        return self.pairs.shape[1]

    def triplets(self):
        """Return the indices in `rows` of relevant and of irrelevant samples."""
        if self.pairs is not None:
            return self.pairs
        return _all_pairs(self.n_relevant, len(self.rows))


@lru_cache(maxsize=64)
def _all_pairs(n_relevant, n_rows):
    """Return read-only indices of all pairs of a relevant and an irrelevant row."""
    place = np.arange(n_rows, dtype=np.int32)
    return np.repeat(place[:n_relevant], n_rows - n_relevant), np.tile(
        place[n_relevant:], n_relevant
    )


def blocks_of_pairs(reference, relevant, irrelevant):
    """Return all pairs as a grid of blocks; an empty list if one side is empty."""
    blocks = []
    for i in range(0, len(relevant), BLOCK_SIDE):
        for j in range(0, len(irrelevant), BLOCK_SIDE):
            own = relevant[i : i + BLOCK_SIDE]
            rows = np.concatenate([own, irrelevant[j : j + BLOCK_SIDE]])
            blocks.append(Block(reference, rows, len(own)))
    return blocks


def blocks_of_triplets(query, relevant, irrelevant):
    """Return blocks of listed triplets, for queries numbered from 0."""
    order = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query))
    blocks = []
    for reference, own in enumerate(np.split(order, ends[:-1])):
        i_rows, i = np.unique(relevant[own], return_inverse=True)
        j_rows, j = np.unique(irrelevant[own], return_inverse=True)
        i_tile, i = np.divmod(i.astype(np.int32), BLOCK_SIDE)
        j_tile, j = np.divmod(j.astype(np.int32), BLOCK_SIDE)
        for a in range(i_tile.max() + 1):
            for b in range(j_tile.max() + 1):
                inside = (i_tile == a) & (j_tile == b)
                if inside.any():
                    own = i_rows[a * BLOCK_SIDE : (a + 1) * BLOCK_SIDE]
                    other = j_rows[b * BLOCK_SIDE : (b + 1) * BLOCK_SIDE]
                    rows = np.concatenate([own, other])
                    pairs = np.stack([i[inside], j[inside] + np.int32(len(own))])
                    blocks.append(Block(reference, rows, len(own), pairs))
    return blocks


# -- solution --


class Dual:
    """The dual problems of all references, or the joint problem.

    Attributes
    ----------
    alpha : list of ndarray or None
        The variables of the triplets, block by block. None before a block is solved,
        and after the last use.

    beta : list of ndarray
        Signed sums of alpha over the triplets of each candidate: (angular-beta).

    block_report : ndarray of shape (n_blocks, 5)
        Columns of the kernel's report.

    is_late : ndarray of shape (n_problems,), dtype bool
        True if `max_iter` was reached before `tol`.
    """

    def __init__(
        self,
        X,
        references,
        blocks,
        *,
        pooled,
        diagonal,
        kappa,
        C,
        tol,
        max_iter,
        n_threads,
    ):
        self.X = X
        self.references = references
        self.blocks = blocks
        self.pooled = pooled
        self.diagonal = diagonal
        self.kappa = kappa
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.n_threads = n_threads
        self.reference = np.array([block.reference for block in blocks])
        self.owner = np.zeros_like(self.reference) if pooled else self.reference
        self.n_rows = np.array([len(block.rows) for block in blocks])
        self.block_triplets = np.array([block.n_triplets for block in blocks])
        self.alpha: list = [None] * len(blocks)
        self.beta = [np.zeros(n) for n in self.n_rows]
        self.block_report = np.zeros((len(blocks), 5))
        n_problems = 1 if pooled else references.shape[0]
        self.n_triplets = np.zeros(n_problems, dtype=np.int64)
        np.add.at(self.n_triplets, self.owner, self.block_triplets)
        self.is_late = np.zeros(n_problems, dtype=bool)
        self.descents = []

    def tasks(self) -> list:
        """Return the tasks in order: batches of small problems, then the large ones."""
        n_blocks = np.bincount(self.owner)
        small = np.flatnonzero((n_blocks[self.owner] == 1) & (not self.pooled))
        size = np.cumsum(np.maximum(self.n_rows[small] ** 2, 2**14)) // BATCH_SIZE
        batches = np.split(small, np.flatnonzero(np.diff(size)) + 1)
        large = np.unique(np.delete(self.owner, small))
        self.descents = [
            Descent(self, np.flatnonzero(self.owner == owner)) for owner in large
        ]
        return [Batch(self, batch) for batch in batches if len(batch)] + self.descents

    def solve(self, numbers, *, scores=None, max_iter, n_threads=1):
        """Run SMO on some blocks independently; return the kernel's report.

        `scores` are the initial scores of the candidates. Without them, each block is
        solved from zero.
        """
        blocks = [self.blocks[number] for number in numbers]
        n_rows, n_triplets = self.n_rows[numbers], self.block_triplets[numbers]
        offsets = _offsets(n_rows)
        gram_offsets = _offsets(n_rows**2)
        triplet_offsets = _offsets(n_triplets)
        grams = np.empty(gram_offsets[-1])
        layout = Blocks(
            self.reference[numbers],
            np.concatenate([block.rows for block in blocks]),
            offsets,
            gram_offsets,
        )
        common = layout, self.diagonal, self.kappa, n_threads, grams
        if sparse.issparse(self.X):
            rows, queries = _csr_arrays(self.X, self.references)
            grams_csr(*rows, *queries, self.X.shape[1], *common)
        else:
            grams_dense(self.X, self.references, *common)

        if scores is None:
            scores = np.zeros(offsets[-1])
        alpha = np.zeros(triplet_offsets[-1])
        for b, number in enumerate(numbers):
            if self.alpha[number] is not None:
                alpha[triplet_offsets[b] : triplet_offsets[b + 1]] = self.alpha[number]
        sides = [block.triplets() for block in blocks]
        relevant = np.concatenate([i for i, _ in sides])
        irrelevant = np.concatenate([j for _, j in sides])
        report = np.empty((len(blocks), 5))
        smo(
            grams,
            gram_offsets,
            offsets,
            relevant,
            irrelevant,
            triplet_offsets,
            self.C,
            self.tol,
            max_iter,
            n_threads,
            alpha,
            scores,
            report,
        )

        shift = np.repeat(offsets[:-1], n_triplets)
        beta = _beta(alpha, relevant + shift, irrelevant + shift, offsets[-1])
        for b, number in enumerate(numbers):
            self.alpha[number] = alpha[triplet_offsets[b] : triplet_offsets[b + 1]]
            self.beta[number] = beta[offsets[b] : offsets[b + 1]]
        return report

    def report(self):
        """Return the kernel's report for each problem."""
        for descent in self.descents:
            descent.look()
        report = np.zeros((len(self.n_triplets), 5))
        np.add.at(report, self.owner, self.block_report)
        report[:, 1] = 0
        np.maximum.at(report[:, 1], self.owner, self.block_report[:, 1])
        return report

    def matrices(self) -> "Matrices":
        """Return the factors of W for the current solution: (angular-solution)."""
        combine = sparse.csr_array(
            (
                np.concatenate(self.beta),
                (
                    np.repeat(self.reference, self.n_rows),
                    np.concatenate([block.rows for block in self.blocks]),
                ),
            ),
            shape=(self.references.shape[0], self.X.shape[0]),
        )
        directions = combine @ self.X
        weights = multiply(directions, self.references)
        trace = weights.sum(axis=1, dtype=np.float64)
        if self.pooled:
            trace = trace.sum(keepdims=True)
            weights = like(weights.sum(axis=0)[None], self.X)
        if self.diagonal:
            directions = weights

        # (angular-norm)  |W|^2 = <W, A W> + sigma / d (tr W)^2, sigma / d from kappa
        _, _, sum_alpha, quadratic, _ = self.report().T
        share = self.kappa / (1 + self.kappa * self.X.shape[1])
        trace_W = trace * (1 + self.kappa * self.X.shape[1])
        norms = np.sqrt(np.maximum(quadratic, 0) + share * trace_W**2)
        identity_weights = self.kappa * trace
        # W is the identity if there are no triplets, or if candidates differ only by
        # rounding.
        empty = norms <= 1e-8 * sum_alpha
        norms[empty] = np.sqrt(self.X.shape[1])
        identity_weights[empty] = 1
        if empty.any():
            keep = np.broadcast_to(~empty, directions.shape[0])
            directions = scale_rows(directions, keep)
        cosine = trace_W / (norms * np.sqrt(self.X.shape[1]))
        cosine[empty] = 1
        return Matrices(
            self.references,
            directions.astype(self.X.dtype, copy=False),
            identity_weights,
            norms,
            np.arccos(np.clip(cosine, -1, 1)),
            self.diagonal,
            self.pooled,
        )


class Batch:
    """Problems of one block each, solved together."""

    name = "references"

    def __init__(self, dual, numbers):
        self.dual = dual
        self.numbers = numbers
        self.done = False

    def advance(self):
        dual, numbers = self.dual, self.numbers
        report = dual.solve(
            numbers,
            max_iter=dual.max_iter,
            n_threads=min(dual.n_threads, len(numbers)),
        )
        dual.block_report[numbers] = report
        at_limit = report[:, 0] >= dual.max_iter * dual.block_triplets[numbers]
        dual.is_late[dual.owner[numbers]] = at_limit & (report[:, 1] > dual.tol)
        for number in numbers:
            dual.alpha[number] = None
        self.done = True


class Descent:
    """One problem over several blocks, solved by passes over the blocks.

    A block depends on other blocks only through W, which is stored: (angular-blocks).
    """

    name = "pass"

    def __init__(self, dual, numbers):
        self.dual = dual
        self.numbers = numbers
        self.done = False
        self.n_passes = 0
        # A diagonal W has one row, a full W has one row for each of its references.
        references, self.place = np.unique(dual.reference[numbers], return_inverse=True)
        if dual.diagonal:
            self.place[:] = 0
        self.queries = dual.references[references]
        self.directions = np.zeros((self.place.max() + 1, dual.X.shape[1]))
        self.trace = 0.0

    def advance(self):
        n_steps = sum(self._visit(max_iter=STEPS_PER_VISIT))
        self.n_passes += 1
        self.done = n_steps == 0 or self.n_passes == self.dual.max_iter
        self.dual.is_late[self.dual.owner[self.numbers[0]]] = self.done and n_steps > 0
        if not self.done:
            self._solve_free()

    def look(self):
        """Update the report."""
        sum(self._visit(max_iter=0))

    def _visit(self, max_iter):
        """Solve the blocks in turn; yield the number of steps in each."""
        dual = self.dual
        for number, place in zip(self.numbers, self.place, strict=True):
            q, rows, t = self._features(number)
            if dual.diagonal:
                surrogate = q * self.directions[0]
            else:
                surrogate = (self.queries @ q) @ self.directions
            scores = rows @ surrogate + dual.kappa * self.trace * t
            before = dual.beta[number]
            report = dual.solve(np.array([number]), scores=scores, max_iter=max_iter)[0]
            n_steps = report[0]
            if n_steps:
                self._move(place, dual.beta[number] - before, q, rows, t)
            report[0] += dual.block_report[number, 0]
            dual.block_report[number] = report
            yield n_steps

    def _features(self, number):
        """Return the query, the candidates, and their products with the query."""
        block = self.dual.blocks[number]
        q = to_dense(self.dual.references[[block.reference]])[0].astype(np.float64)
        rows = self.dual.X[block.rows]
        return q, rows, rows @ q

    def _move(self, place, beta, q, rows, t):
        step = rows.T @ beta
        self.directions[place] += q * step if self.dual.diagonal else step
        self.trace += beta @ t

    def _solve_free(self):
        """Solve together for the triplets of all blocks strictly between the bounds.

        Passes over the blocks converge slowly on these triplets. In general position,
        there are at most as many of them as W has parameters.
        """
        dual, chosen = self.dual, self._choose_free()
        if not chosen:
            return
        n_own = [len(own) for _, _, own, _ in chosen]
        gram, scores, features, t = self._compare_free(chosen, n_own)
        n = len(t)
        before = np.concatenate(
            [dual.alpha[number][own] for number, _, own, _ in chosen]
        )
        alpha = before.copy()
        smo(
            gram.ravel(),
            _offsets([gram.size]),
            _offsets([n + 1]),
            np.arange(n, dtype=np.int32),
            np.full(n, n, dtype=np.int32),
            _offsets([n]),
            dual.C,
            dual.tol,
            dual.max_iter,
            1,
            alpha,
            scores,
            np.empty((1, 5)),
        )
        place = np.repeat([place for _, _, _, place in chosen], n_own)
        combine = sparse.csr_array(
            (alpha - before, (place, np.arange(n))),
            shape=(len(self.directions), n),
        )
        self.directions += to_dense(combine @ features)
        self.trace += (alpha - before) @ t
        parts = np.split(alpha, np.cumsum(n_own)[:-1])
        for (number, block, own, _), part in zip(chosen, parts, strict=True):
            dual.alpha[number][own] = part
            dual.beta[number] = _beta(
                dual.alpha[number], *block.triplets(), len(block.rows)
            )

    def _choose_free(self):
        """Return number, block, free triplets and row of W of the first blocks."""
        dual = self.dual
        free = [
            np.flatnonzero((dual.alpha[number] > 0) & (dual.alpha[number] < dual.C))
            for number in self.numbers
        ]
        fit = np.cumsum([len(own) for own in free]) <= MAX_FREE
        return [
            (number, dual.blocks[number], own, place)
            for number, own, place in zip(
                self.numbers[fit], free[: fit.sum()], self.place[fit], strict=True
            )
            if len(own)
        ]

    def _compare_free(self, chosen, n_own):
        """Return products and scores of the free triplets, their features and traces.

        The kernel treats each triplet as a relevant candidate. A last candidate of
        score 0 is the irrelevant one of all triplets.
        """
        dual = self.dual
        i, j = np.concatenate(
            [
                block.rows[np.stack(block.triplets())[:, own]]
                for _, block, own, _ in chosen
            ],
            axis=1,
        )
        queries = [block.reference for _, block, _, _ in chosen]
        Q = dual.references[np.repeat(queries, n_own)].astype(np.float64)
        difference = dual.X[i].astype(np.float64) - dual.X[j].astype(np.float64)
        on_query = multiply(Q, difference)
        t = on_query.sum(axis=1)
        n = len(t)
        gram, scores = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
        if dual.diagonal:
            gram[:n, :n] = to_dense(on_query @ on_query.T)
            scores[:n] = on_query @ self.directions[0]
        else:
            gram[:n, :n] = to_dense(Q @ Q.T) * to_dense(difference @ difference.T)
            surrogates = to_dense(Q @ self.queries.T) @ self.directions
            scores[:n] = multiply(difference, surrogates).sum(axis=1)
        gram[:n, :n] += dual.kappa * np.outer(t, t)
        scores[:n] += dual.kappa * self.trace * t
        return gram, scores, on_query if dual.diagonal else difference, t


def _offsets(sizes):
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _beta(alpha, relevant, irrelevant, n_candidates):
    """Return (angular-beta): sums of alpha over triplets, negated if irrelevant."""
    return np.bincount(relevant, alpha, n_candidates) - np.bincount(
        irrelevant, alpha, n_candidates
    )


def _csr_arrays(*matrices):
    """Return the arrays for the kernel: indices of one common type, 64-bit indptr."""
    dtype = np.result_type(*(matrix.indices for matrix in matrices))
    return [
        (
            matrix.data,
            matrix.indices.astype(dtype, copy=False),
            matrix.indptr.astype(np.int64, copy=False),
        )
        for matrix in matrices
    ]
