"""OASIS with the LogDet divergence, which section 6.2 of its paper suggests."""

import numpy as np
from scipy.linalg.blas import dgemm
from sklearn.base import BaseEstimator, TransformerMixin


class LogDetOASIS(TransformerMixin, BaseEstimator):
    """Bilinear similarity with a positive definite W, by LogDet steps.

    A step minimises tr(W' W^-1) - log det(W' W^-1) + C xi subject to p' W' d >= 1 - xi,
    where d is the difference of a relevant and an irrelevant sample. Therefore
    W'^-1 = W^-1 - tau / 2 (p d' + d p'). With a = p'Wp, b = p'Wd, c = d'Wd and
    D = ac - b^2, the margin is 1 for tau = 2 (s - b / D), where s is the positive root
    of s^2 + s - ac / D^2. At most C is taken, and W stays positive definite.
    """

    def __init__(self, C=0.03, n_triplets=30_000, random_state=0):
        self.C = C
        self.n_triplets = n_triplets
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        X = X.toarray()
        W = np.eye(X.shape[1], order="F")
        for _ in range(self.n_triplets):
            q = rng.integers(len(y))
            relevant = y == y[q]
            irrelevant = np.flatnonzero(~relevant)
            relevant[q] = False
            positive = rng.choice(np.flatnonzero(relevant))
            P = np.stack([X[q], X[positive] - X[rng.choice(irrelevant)]], axis=1)
            U = W @ P
            tau = self.find_step(P.T @ U)
            if tau > 0:
                # Woodbury's identity for the change of rank two.
                swap = np.array([[0, 2 / tau], [2 / tau, 0]])
                change = U @ np.linalg.inv(swap - P.T @ U)
                W = dgemm(1.0, change, U.T, beta=1.0, c=W, overwrite_c=1)
        self.W_ = W
        return self

    def find_step(self, gram):
        """Return tau for the products of p and d under W."""
        (a, b), (_, c) = gram
        determinant = a * c - b * b
        if b >= 1 or determinant <= 0:
            return 0.0
        root = (np.sqrt(1 + 4 * a * c / determinant**2) - 1) / 2
        return min(self.C, 2 * (root - b / determinant))

    def similarity(self, X, Y):
        return X @ (self.W_ @ Y.toarray().T)
