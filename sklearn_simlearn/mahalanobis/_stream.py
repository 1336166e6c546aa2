"""Stochastic gradient steps of SparseMahalanobisLearner.partial_fit."""

import numpy as np
from sklearn.utils import gen_batches

from sklearn_simlearn.mahalanobis._problem import Pairs, Problem, draw_queries

# Number of queries in a step, and the factor of its length.
BATCH_SIZE = 32
LEARNING_RATE = 0.3


class Stream:
    """State of the gradient steps, kept between calls of `partial_fit`.

    Parameters
    ----------
    pairs : Pairs
        The unknowns.

    rng : Generator
        Random number generator of all calls.
    """

    def __init__(self, pairs: Pairs, rng: np.random.Generator):
        self.pairs = pairs
        self.m = pairs.start
        self.rng = rng
        self.squares = 0.0  # sum of squares of all gradients so far
        self.n_sweeps = 0

    def sweep(
        self, problem: Problem, margin: float, n_per_object: int, n_random: int
    ) -> tuple[float, int]:
        """Run one epoch; return the mean objective and the number of hard triplets."""
        queries, weight = draw_queries(problem.relevance, n_per_object, self.rng)
        order = self.rng.permutation(len(queries))
        total, n_hard = 0.0, 0
        for batch in gen_batches(len(queries), BATCH_SIZE):
            some = np.sort(order[batch])
            share = len(some) / len(queries)
            triplets, _ = problem.mine(
                self.m, queries[some], weight[some], round(share * n_random), self.rng
            )
            value, slope, _ = problem.evaluate(self.m, triplets, margin)
            total += share * value
            n_hard += triplets.n_hard
            # (mahalanobis-sgd)
            self.squares += slope @ slope
            if self.squares > 0:
                length = LEARNING_RATE * np.sqrt(problem.n_words / self.squares)
                self.m = np.maximum(self.m - length * slope, 0)
        self.n_sweeps += 1
        return total, n_hard
