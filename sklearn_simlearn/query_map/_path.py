"""Candidates from the cosine to maps with shifted documents."""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from sklearn import get_config

from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._folds import MAX_FOLDS
from sklearn_simlearn._holdout import START
from sklearn_simlearn.query_map._encoders import KnownRows, Shifted, digest_rows
from sklearn_simlearn.query_map._softmax import SoftmaxMaps
from sklearn_simlearn.query_map._two_widths import Rotated, TwoWidths, align

# Shifts to choose from.
SHIFTS = (0.3, 0.6, 1.0)

# Number of queries below which only the smallest shift is tried.
FEW_QUERIES = 40

# Share of non-zeros from which counts are learned from as dense rows.
DENSE_FROM = 0.1

# Shares of the steps after which the maps are candidates.
CHECKPOINTS = (0.25, 1.0)


class Candidate(NamedTuple):
    """Settings that held-out queries choose.

    Attributes
    ----------
    n_iter : int
        Number of steps that learn the maps; 0 without maps.

    shift : float
        Factor g of the shift of judged documents; 0 if they are not shifted.
    """

    n_iter: int
    shift: float


class Path:
    """The candidates of a fit, and the fit of the chosen candidate.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked samples.

    relevance : Relevance
        Relevance of the samples to each other.

    maps : {"both", "queries"} or None
        Sides that are mapped.

    shift : bool
        Whether judged documents may be shifted.

    alpha : float
        Strength of the shrinkage.

    max_iter : int
        Number of steps.
    """

    def __init__(
        self,
        X: Matrix | TwoWidths,
        relevance: Relevance,
        *,
        maps: str | None,
        shift: bool,
        alpha: float,
        max_iter: int,
    ):
        self.X, self.relevance = X, relevance
        self.maps, self.alpha, self.max_iter = maps, alpha, max_iter
        self.shifts = SHIFTS if shift else ()
        self.are_few = False
        self.digests = np.zeros((len(relevance), 2), dtype=np.uint64)
        if isinstance(relevance, JudgedRelevance):
            n_queries = np.count_nonzero(relevance.find_queries())
            self.are_few = bool(n_queries < FEW_QUERIES)
            self.digests[relevance.is_item] = digest_rows(relevance.items_of(X))

    @property
    def is_small(self) -> bool:
        """Return whether the encoders of all folds fit into `working_memory`."""
        n_steps, width = len(self._checkpoints()), self.X.shape[1]
        n_rows = n_steps * self.X.shape[0] + 2 * (n_steps - 1) * width
        n_bytes = MAX_FOLDS * n_rows * width * self.X.dtype.itemsize
        return n_bytes <= get_config()["working_memory"] * 2**20

    def __call__(
        self, train: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows."""
        relevance = self.relevance.take(train)
        X, start, complete = _begin(self.X[train], relevance)
        yield START, complete(start)

        digests, shifter = self.digests[train], None
        if self.shifts and isinstance(relevance, JudgedRelevance):
            shifter = Shifter(X, relevance, digests)
        shifts = self.shifts[:1] if self.are_few else self.shifts
        learned = self._softmax(X, relevance, start, rng)
        known = _know(relevance, digests)
        del X  # free memory: the learner holds another copy of the rows
        for n_iter in self._checkpoints():
            base: Encoder = start
            if n_iter:
                for _ in learned.learn_up_to(n_iter):
                    pass
                base = learned.encoder(start, known, self.X.dtype)
                yield Candidate(n_iter, 0.0), complete(base)
            if shifter is not None:
                for shift, encoder in shifter(base, shifts):
                    yield Candidate(n_iter, shift), complete(encoder)

    def refit(
        self,
        candidate: Candidate | None,
        rng: np.random.Generator,
        advance: Callable[..., bool],
    ) -> dict:
        """Learn from all samples with the candidate; return the fitted attributes."""
        X, start, complete = _begin(self.X, self.relevance)
        n_iter, shift = candidate or Candidate(0, 0.0)
        learned = self._softmax(X, self.relevance, start, rng)
        known = _know(self.relevance, self.digests)

        def describe():
            base: Encoder = start
            maps = None
            if n_iter:
                base = maps = learned.encoder(start, known, self.X.dtype)
            if shift:
                shifter = Shifter(X, self.relevance, self.digests)
                ((_, base),) = shifter(base, [shift])
            encoder = complete(base)
            query_map = None if maps is None else maps.of_queries
            if isinstance(encoder, Rotated):
                rotation = encoder.rotation
                query_map = rotation if maps is None else rotation @ query_map
            return {
                "encoder_": encoder,
                "idf_": start.idf,
                "query_map_": query_map,
                "document_map_": None if maps is None else maps.of_items,
                "shift_": shift,
                "n_iter_": max(1, len(learned.losses) if n_iter else 0),
                "loss_curve_": np.array(learned.losses if n_iter else []),
            }

        if n_iter:
            for _ in learned.learn_up_to(n_iter):
                if advance("step", describe):
                    break
        return describe()

    def _checkpoints(self):
        """Return the numbers of steps to choose from, including 0 for no maps."""
        if self.maps is None or self.are_few:
            return [0]
        steps = {max(1, round(part * self.max_iter)) for part in CHECKPOINTS}
        return [0, *sorted(steps)]

    def _softmax(self, X, relevance, start, rng):
        if self.maps is None:
            return None
        # Single precision takes half the time. Sparse counts need double precision, so
        # that dense and sparse storage give the same maps.
        rows, dtype = start.items(X), np.float32
        if start.idf is not None:
            n_stored = rows.nnz if issparse(rows) else np.count_nonzero(rows)
            if n_stored < DENSE_FROM * rows.shape[0] * rows.shape[1]:
                dtype = np.float64
            elif issparse(rows):
                rows = rows.toarray()
        return SoftmaxMaps(
            rows.astype(dtype, copy=False),
            relevance,
            both=self.maps == "both",
            alpha=self.alpha,
            max_iter=self.max_iter,
            rng=rng,
        )


def _begin(X, relevance):
    """Return rows in the space of documents, the start, and a wrapper of encoders."""
    if not isinstance(X, TwoWidths):
        return X, Start.fit(relevance.items_of(X)), lambda encoder: encoder
    rotation, rows = align(X, relevance)
    return rows, Start(None), lambda encoder: Rotated(encoder, rotation)


def _know(relevance, digests):
    """Return the documents, which are recognised later; None with labels."""
    is_judged = isinstance(relevance, JudgedRelevance)
    return KnownRows.of(digests[relevance.is_item]) if is_judged else None


class Shifter:
    """Encoders that shift the judged documents of some samples.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Queries and documents.

    relevance : JudgedRelevance
        Relevance of the documents to the queries.

    digests : ndarray of shape (n_samples, 2)
        Digests of the documents.
    """

    def __init__(self, X: Matrix, relevance: JudgedRelevance, digests: np.ndarray):
        self.known, weights = KnownRows.judged(digests, relevance)
        queries = np.unique(weights.indices)
        self.X_queries = X[queries]
        self.weights = weights[:, queries].astype(X.dtype)

    def __call__(self, base: Encoder, shifts) -> Iterator[tuple[float, Shifted]]:
        """Yield each shift with an encoder that shifts the documents of the base."""
        directions = unit_rows(self.weights @ base.queries(self.X_queries))
        for shift in shifts:
            yield shift, Shifted(base, self.known, directions, shift)
