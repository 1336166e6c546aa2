"""Maps learned by a listwise softmax loss, in steps on batches of queries.

If t(q, d) is the relevance of document d to query q, divided by its sum over all
documents, the loss is

    (query-map-loss)  mean over q of -sum_d t(q, d) log p(d | q)
                      + alpha / (2 n_queries) (|V|^2 + |U|^2),
    p(d | q) proportional to exp(s(q, d) / temperature).

Queries are multiplied by I + V. If documents are multiplied by I + U, both are scaled
to unit length. Otherwise the loss is convex in V.
"""

from collections.abc import Iterator

import numpy as np
from sklearn.utils import gen_batches

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import PairRelevance, Relevance
from sklearn_simlearn._core.rows import inverse
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.query_map._encoders import KnownRows, Maps

# Number of queries of a step.
BATCH = 256

# Largest number of documents of a step. If there are more, a sample is drawn.
MAX_ITEMS = 2048

# Temperature of the softmax, for maps of queries only and for maps of both sides.
TEMPERATURE, TEMPERATURE_OF_BOTH = 0.05, 0.1

# Initial learning rate, which falls linearly to 0.
LEARNING_RATE = 0.004

# Constants of Adam: decay of the means of gradients and squares, and epsilon.
DECAY, DECAY_OF_SQUARES, EPSILON = 0.9, 0.99, 1e-8

# Bytes per pair of a query and a document in a step: relevance, similarities and
# temporary values.
N_BYTES = 40


class Adam:
    """Matrix that is optimised by steps of Adam."""

    def __init__(self, n_features: int, dtype: np.dtype):
        self.value = np.zeros((n_features, n_features), dtype=dtype)
        self._mean, self._square = np.zeros_like(self.value), np.zeros_like(self.value)
        self._n = 0

    def move(self, gradient: np.ndarray, rate: float) -> None:
        """Take a step. The result is a new matrix; the old one is not changed."""
        self._n += 1
        self._mean += (1 - DECAY) * (gradient - self._mean)
        self._square += (1 - DECAY_OF_SQUARES) * (gradient**2 - self._square)
        root = np.sqrt(self._square / (1 - DECAY_OF_SQUARES**self._n))
        step = self._mean / (root + EPSILON)
        self.value = self.value - (rate / (1 - DECAY**self._n)) * step


class SoftmaxMaps:
    """Maps of queries, and optionally of documents, during learning.

    Parameters
    ----------
    rows : ndarray or csr_array of shape (n_samples, n_features)
        Rows of unit length, queries and documents, in the precision of the steps.

    relevance : Relevance
        Relevance of the samples to each other.

    both : bool
        Whether to map documents, too.

    alpha : float
        Strength of the penalty.

    max_iter : int
        Number of steps after which the learning rate is 0.

    rng : Generator
        Draws the batches.
    """

    def __init__(
        self,
        rows: Matrix,
        relevance: Relevance,
        *,
        both: bool,
        alpha: float,
        max_iter: int,
        rng: np.random.Generator,
    ):
        self.rows, self.relevance, self.both, self.rng = rows, relevance, both, rng
        self.queries = np.flatnonzero(relevance.find_queries())
        is_item = np.ones(len(relevance), dtype=bool)
        if isinstance(relevance, JudgedRelevance):
            is_item = relevance.is_item
        self.items = np.flatnonzero(is_item)
        self.shrinkage = alpha / len(self.queries)
        self.temperature = TEMPERATURE_OF_BOTH if both else TEMPERATURE
        self.max_iter = max_iter
        self.V = Adam(rows.shape[1], rows.dtype)
        self.U = Adam(rows.shape[1], rows.dtype) if both else None
        self.losses: list[float] = []
        self._waiting = self.queries[:0]
        self._all_items: Matrix | None = None

    def learn_up_to(self, n_iter: int) -> Iterator[None]:
        """Take steps up to a total of `n_iter`; yield after each step."""
        while len(self.losses) < n_iter:
            self._step()
            yield

    def encoder(self, base: Encoder, known: KnownRows | None, dtype: np.dtype) -> Maps:
        """Return the maps learned so far, of rows that another encoder encodes."""
        identity = np.eye(self.rows.shape[1], dtype=dtype)
        of_items = None if self.U is None else identity + self.U.value
        return Maps(base, identity + self.V.value, of_items, known)

    def _step(self):
        batch = self._next_batch()
        items, log_weights, D = self._draw_items(batch)
        Q = self.rows[batch]
        mapped, factor = _map(Q, self.V.value, unit=self.both)
        D_mapped, D_factor = D, None
        if self.U is not None:
            D_mapped, D_factor = _map(D, self.U.value, unit=True)

        # Gradients of the loss with respect to mapped rows.
        g_queries, g_items = np.empty_like(mapped), None
        loss = n_counted = 0
        n_rows = get_chunk_n_rows(N_BYTES * len(items), max_n_rows=len(batch))
        for part in gen_batches(len(batch), n_rows):
            S = mapped[part] @ D_mapped.T
            S /= self.temperature
            S += log_weights
            target = self._targets(batch[part], items)
            loss_of_part, n_of_part = _residuals(S, target)
            loss, n_counted = loss + loss_of_part, n_counted + n_of_part
            g_queries[part] = S @ D_mapped
            if self.both:
                product = S.T @ mapped[part]
                g_items = product if part.start == 0 else g_items + product
        rate = LEARNING_RATE * (1 - len(self.losses) / self.max_iter)
        scale = 1 / (self.temperature * max(n_counted, 1))
        gradient = Q.T @ _through_length(g_queries, mapped, factor, scale)
        self.V.move(gradient + self.shrinkage * self.V.value, rate)
        if self.U is not None:
            gradient = D.T @ _through_length(g_items, D_mapped, D_factor, scale)
            self.U.move(gradient + self.shrinkage * self.U.value, rate)
        self.losses.append(float(loss / max(n_counted, 1)))

    def _next_batch(self):
        """Return the next queries; every query is used once before any is repeated."""
        size = min(BATCH, len(self.queries))
        if len(self._waiting) < size:
            shuffled = self.rng.permutation(self.queries)
            self._waiting = np.concatenate([self._waiting, shuffled])
        batch, self._waiting = self._waiting[:size], self._waiting[size:]
        return batch

    def _draw_items(self, batch):
        """Return documents, the logarithms of their weights, and their rows.

        If there are too many documents, those relevant to the batch are drawn first.
        The weight of a document is the number of documents that it represents.
        """
        if len(self.items) <= MAX_ITEMS:
            if self._all_items is None:
                self._all_items = self.rows[self.items]
            return self.items, np.zeros(1, dtype=self.rows.dtype), self._all_items
        is_related = _find_related(self.relevance, batch)[self.items]
        related, others = self.items[is_related], self.items[~is_related]
        n_related = min(len(related), max(MAX_ITEMS // 2, MAX_ITEMS - len(others)))
        items, log_weights = [], []
        for group, n in ((related, n_related), (others, MAX_ITEMS - n_related)):
            if n:
                items.append(self.rng.choice(group, n, replace=False))
                log_weights.append(np.full(n, np.log(len(group) / n)))
        items = np.concatenate(items)
        log_weights = np.concatenate(log_weights).astype(self.rows.dtype)
        return items, log_weights, self.rows[items]

    def _targets(self, queries, items):
        """Return the relevance of items to queries; -1 for the query itself."""
        target = self.relevance.graded_block(queries, items)
        target[queries[:, None] == items] = -1
        return target


def _find_related(relevance, batch):
    """Return the mask of samples that may be relevant to a query of the batch."""
    if isinstance(relevance, PairRelevance):
        pairs = relevance.pairs[batch]
        is_related = np.zeros(len(relevance), dtype=bool)
        is_related[pairs.indices[pairs.data > 0]] = True
        return is_related
    members = relevance.memberships.sign()
    return members @ (members[batch].sum(axis=0) > 0) > 0


def _residuals(S, target):
    """Replace scaled similarities by p - t; return the loss and the number of queries.

    Queries without a relevant document among the items are ignored.
    """
    S[target < 0] = -np.inf
    row, column = np.nonzero(target > 0)
    weight = target[row, column]
    total = np.bincount(row, weight, minlength=len(S))
    counted = total > 0
    S[~counted] = 0
    S -= S.max(axis=1, keepdims=True)
    share = weight / total[row]
    loss = -np.dot(share, S[row, column])
    np.exp(S, out=S)
    sums = S.sum(axis=1, keepdims=True)
    loss += np.log(sums[counted]).sum()
    S /= sums
    S[row, column] -= share.astype(S.dtype)
    S[~counted] = 0
    return loss, np.count_nonzero(counted)


def _map(X, V, *, unit):
    """Return X (I + V), scaled to unit length if `unit` is True, and the factors."""
    mapped = X @ (np.eye(len(V), dtype=V.dtype) + V)
    if not unit:
        return mapped, None
    factor = inverse(np.sqrt(np.einsum("ij,ij->i", mapped, mapped)))[:, None]
    mapped *= factor
    return mapped, factor


def _through_length(gradient, mapped, factor, scale):
    """Return the scaled gradient with respect to rows before they got unit length.

    The arguments `gradient` and `mapped` are overwritten.
    """
    if factor is None:
        gradient *= scale
        return gradient
    mapped *= np.einsum("ij,ij->i", gradient, mapped)[:, None]
    gradient -= mapped
    gradient *= scale * factor
    return gradient
