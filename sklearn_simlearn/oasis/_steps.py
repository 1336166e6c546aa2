"""Steps of OASIS: streams of triplets, and the matrices that learn from them."""

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, NamedTuple

import numpy as np
from joblib.parallel import get_active_backend
from scipy import linalg, sparse
from sklearn.utils.parallel import Parallel, delayed

from sklearn_simlearn._core.rows import row_dots
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.oasis._oasis_fast import find_hardest, sweep_sparse, take_steps

# Codes of the kernel. "final" learns like None and makes W symmetric at the end.
LEARNED = {None: 0, "final": 0, "online": 1, "dissimilarity": 2}

# Triplets between two callbacks, and between two points of the loss curve.
INTERVAL = 10_000

# Number of triplets drawn together, so that a stream is the same for any sizes of the
# requests.
DRAWN_TOGETHER = 5000

# Number of triplets of sparse rows per call of the kernel; small, so that Ctrl-C is
# handled soon.
SPARSE_BLOCK = 1000

# Smallest share of non-zeros at which blocks of dense rows are faster than sparse rows.
DENSE_FROM = 0.1

Stream = Callable[[int], np.ndarray]


def draw_stream(sampler: Any, rng: np.random.Generator, n_negatives: int = 1) -> Stream:
    """Return a stream of triplets; each has `n_negatives` irrelevant rows."""
    left = np.empty((0, 2 + n_negatives), dtype=np.int64)

    def draw():
        triplets = sampler.draw(DRAWN_TOGETHER, rng)
        queries = np.repeat(triplets[:, 0], n_negatives - 1)
        others, _ = sampler.draw_negatives(queries, rng)
        return np.hstack([triplets, others.reshape(len(triplets), n_negatives - 1)])

    def take(n):
        nonlocal left
        parts = [left]
        while sum(map(len, parts)) < n:
            parts.append(draw())
        drawn = np.concatenate(parts)
        left = drawn[n:]
        return drawn[:n]

    return take


def given_stream(triplets: np.ndarray) -> Stream:
    """Return a stream of given triplets."""
    position = 0

    def take(n):
        nonlocal position
        position += n
        return triplets[position - n : position]

    return take


class Settings(NamedTuple):
    """Parameters of the steps."""

    C: float
    symmetric: str | None = None
    psd: str | int | None = None
    n_jobs: int | None = None


class Rankers:
    """Matrices that learn from the same rows, each with its own stream of triplets.

    Parameters
    ----------
    W : ndarray of shape (n_features, n_features)
        Initial value of all matrices. The first matrix is this array itself.

    X : ndarray or csr_array of shape (n_samples, n_features)
        The rows.

    streams : list of callables
        ``stream(n)`` returns the next n triplets of a ranker.

    settings : Settings
        Parameters of the steps.
    """

    def __init__(
        self, W: np.ndarray, X: Matrix, streams: list[Stream], settings: Settings
    ):
        self.matrices = [W] + [W.copy() for _ in streams[1:]]
        self.X = X
        self.streams = streams
        self.settings = settings
        self.n_triplets = 0
        self.n_updates = 0
        self.losses: list[float] = []

    def average(self) -> np.ndarray:
        """Return the mean of the matrices."""
        first, *others = self.matrices
        return sum(others, first) / len(self.matrices) if others else first

    def learn_up_to(self, n_triplets: int) -> Iterator[None]:
        """Visit up to `n_triplets` triplets per ranker in total; yield in between."""
        while self.n_triplets < n_triplets:
            n = min(INTERVAL, n_triplets - self.n_triplets)
            loss = self._visit(n)
            self.losses.append(loss / (n * len(self.streams)))
            yield

    def _visit(self, n_triplets):
        """Visit the next triplets of each ranker; return the sum of the losses.

        With an int `psd`, project the matrices after every `psd` triplets.
        """
        psd = self.settings.psd
        loss = 0.0
        while n_triplets > 0:
            n = n_triplets
            if isinstance(psd, Integral):
                n = min(n, psd - self.n_triplets % psd)
            loss += self._sweep(n)
            self.n_triplets += n
            n_triplets -= n
            if isinstance(psd, Integral) and self.n_triplets % psd == 0:
                for W in self.matrices:
                    A = positive_factor(W)
                    W[:] = A.T @ A
        return loss

    def _sweep(self, n_triplets):
        # If a backend does not share memory, equal matrices may arrive as one object.
        # Then `sweep` copies them.
        backend, _ = get_active_backend(prefer="threads")
        in_place = getattr(backend, "supports_sharedmem", False)
        settings = self.settings
        learned = LEARNED[settings.symmetric]
        results = Parallel(settings.n_jobs, prefer="threads")(
            delayed(sweep)(W, self.X, stream(n_triplets), settings.C, learned, in_place)
            for W, stream in zip(self.matrices, self.streams, strict=True)
        )
        self.matrices = [W for W, _, _ in results]
        self.n_updates += sum(n_moves for _, _, n_moves in results)
        return sum(loss for _, loss, _ in results)


def refuse_long_rows(X: Matrix, is_compared: bool) -> None:
    """Raise if products of four rows, or similarities in a hold-out, may overflow."""
    limit = (1e-4 * np.finfo(X.dtype).max) ** 0.25
    if is_compared:  # in single precision
        limit = min(limit, (1e-4 * np.finfo(np.float32).max) ** 0.5)
    longest = row_dots(X, X).max(initial=0) ** 0.5
    if longest > limit:
        raise ValueError(
            f"X has rows up to a length of {longest:.3g}. The plain form multiplies up "
            "to four rows, and these products overflow: "
            f"scale X to lengths of at most {limit:.0e}."
        )


def positive_factor(W: np.ndarray) -> np.ndarray:
    """Return A, where A' A is the symmetric positive semi-definite matrix nearest to W.

    The rows of A are orthogonal, the longest first.
    """
    eigenvalues, vectors = linalg.eigh((W + W.T) / 2)
    keep = eigenvalues > max(0, eigenvalues[-1]) * len(W) * np.finfo(W.dtype).eps
    A = (np.sqrt(eigenvalues[keep]) * vectors[:, keep]).T[::-1]
    return np.ascontiguousarray(A)


def sweep(W, X, triplets, C, learned, in_place=True):
    """Visit the triplets in order; return W, the sum of losses, the number of steps.

    If `in_place`, W is updated in place. If a triplet has several negatives, the most
    similar one is used; this needs dense rows.
    """
    if not in_place:
        W = W.copy()
    if sparse.issparse(X) and X.nnz < DENSE_FROM * X.shape[0] * X.shape[1]:
        return W, *_sweep_sparse(W, X, triplets, C, learned)
    # `fit` has limited BLAS to one thread, but this may be another process.
    with one_blas_thread():
        return W, *_sweep_dense(W, X, triplets, C, learned)


def _sweep_sparse(W, X, triplets, C, learned):
    if X.nnz == 0:
        return float(len(triplets)), 0
    longest = int(np.diff(X.indptr).max())
    total_loss, n_updates = 0.0, 0
    for start in range(0, len(triplets), SPARSE_BLOCK):
        block = triplets[start : start + SPARSE_BLOCK]
        loss, n_moves = sweep_sparse(
            W, X.data, X.indices, X.indptr, block, C, learned, longest
        )
        total_loss += loss
        n_updates += n_moves
    return total_loss, n_updates


def _sweep_dense(W, X, triplets, C, learned):
    """Visit blocks of triplets by matrix products, with the steps of single triplets.

    (oasis-block)  Within a block, the margin of triplet t is <V_t, W> at the start of
    the block plus the contribution of the earlier steps, sum_s tau_s <V_t, V_s>. Both
    terms, and the sum of all steps, are products of stacked rows.
    """
    gemm = linalg.blas.get_blas_funcs("gemm", (W,))
    block = int(np.clip(X.shape[1] // 3, 64, 256))
    total_loss, n_updates = 0.0, 0
    for start in range(0, len(triplets), block):
        rows = triplets[start : start + block]
        q, positive = _take(X, rows[:, 0]), _take(X, rows[:, 1])
        qW = q @ W
        negative = _take(X, _hardest(X, qW, rows))
        if learned == LEARNED["dissimilarity"]:
            # (oasis-dissim)  a = q - x+, b = q - x-, V = b b' - a a', so that
            # <V_t, V_s> = (b_t b_s)^2 + (a_t a_s)^2 - (a_t b_s)^2 - (b_t a_s)^2
            a, b = q - positive, q - negative
            margin = row_dots(b @ W, b) - row_dots(a @ W, a)
            cross = (a @ b.T) ** 2
            gram = (b @ b.T) ** 2 + (a @ a.T) ** 2 - cross - cross.T
            norm2 = np.diagonal(gram)
            pairs = [(b, b, 1), (a, a, -1)]
        else:
            # V = q a' with a = x+ - x-, and <V_t, V_s> = (q_t q_s) (a_t a_s)
            a = positive - negative
            margin = row_dots(qW, a)
            gram = (q @ q.T) * (a @ a.T)
            norm2 = np.diagonal(gram)
            pairs = [(q, a, 1)]
            if learned == LEARNED["online"]:
                # Each step is symmetrised: it adds tau (q a' + a q') / 2.
                cross = q @ a.T
                gram = (gram + cross * cross.T) / 2
                pairs = [(q, a, 0.5), (a, q, 0.5)]
        tau = np.empty(len(rows), dtype=W.dtype)
        loss, n_moves = take_steps(margin, gram, norm2.astype(np.float64), C, tau)
        total_loss += loss
        n_updates += n_moves
        moved = tau > 0
        for left, right, sign in pairs:
            # W' += right' (tau left), in place: W.T is column-major, as BLAS needs.
            step = (sign * tau[moved])[:, None] * left[moved]
            gemm(1.0, right[moved].T, step.T, 1.0, W.T, trans_b=True, overwrite_c=True)
    return total_loss, n_updates


def _take(X, rows):
    return X[rows].toarray() if sparse.issparse(X) else X[rows]


def _hardest(X, qW, triplets):
    """Return the negative of each triplet that is most similar under W."""
    if triplets.shape[1] == 3:
        return triplets[:, 2]
    hardest = np.empty(len(triplets), dtype=np.int64)
    find_hardest(X, qW, triplets, hardest)
    return hardest
