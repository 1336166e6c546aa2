"""From the cosine to OASIS: the embeddings among which held-out samples choose.

Rows of unit length, brought into a few hundred coordinates, are what OASIS learns from
here. The positive part of W embeds them, and the similarity is the cosine there, mixed
with the one of the start:

    (oasis-cosine)  s(q, x) = (1 - shrinkage) <e(q), e(x)> + shrinkage <q, x>,
    e(x) = A (x - m) / |A (x - m)|, A' A = the positive part of W.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.rows import start_rows, start_weights, unit_rows
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._holdout import START
from sklearn_simlearn.base import inner_products
from sklearn_simlearn.oasis._steps import (
    Rankers,
    Settings,
    draw_stream,
    positive_factor,
)

# Steps need no more precision, and take half the time of double precision.
DTYPE = np.float32

# Coordinates to learn in; data of more features is projected on its leading directions.
MAX_DIRECTIONS = 500

# Rows that tell the leading directions.
MAX_ROWS = 2000

# Entries of the matrix of directions, for very large vocabularies.
MAX_ENTRIES = 2**26

# Negatives drawn for each pair, of which the hardest is taken; 5 to 20 are alike.
N_NEGATIVES = 10

# Numbers of triplets to choose from grow by this factor from the first.
FIRST, FACTOR = 1000, 4

# Triplets beyond these have not helped with new objects.
MAX_FOR_OBJECTS = 16_000

# Triplets to visit from LDA's metric, which needs few.
AFTER_CLASSES = 4000

# How much the covariance within classes is regularised for LDA's metric.
REGULARIZATIONS = (0.1, 0.5)

SHRINKAGES = (0.0, 0.3, 0.6, 0.9)


class Candidate(NamedTuple):
    """Settings that held-out samples choose.

    Attributes
    ----------
    regularization : float or None
        Of the covariance within classes, where W starts from LDA's metric; None where
        it starts from the identity.

    n_triplets : int
        Number of triplets to learn from.

    shrinkage : float
        Share of the start in the similarity.
    """

    regularization: float | None
    n_triplets: int
    shrinkage: float


class Map(NamedTuple):
    """An affine map of rows, x A' - b."""

    A: np.ndarray
    b: np.ndarray

    def __call__(self, X: Matrix) -> np.ndarray:
        return X @ self.A.T - self.b

    def after(self, other: "Map | None") -> "Map":
        """This map of the output of another."""
        if other is None:
            return self
        return Map(self.A @ other.A, self.A @ other.b + self.b)


class Path:
    """All that a fit may choose from.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked samples.

    relevance : Relevance
        Of the samples to each other.

    n_triplets : int
        Largest number of triplets.

    n_models : int
        Number of rankers to average.

    known_classes : bool
        Whether the queries to come are of these classes, so that LDA's metric may help.

    threshold : float
        Pairs up to this count as irrelevant.

    settings : Settings
        What decides on the steps.
    """

    def __init__(
        self,
        X: Matrix,
        relevance: Relevance,
        *,
        n_triplets: int,
        n_models: int,
        known_classes: bool,
        threshold: float,
        settings: Settings,
    ):
        self.X = X
        self.relevance = relevance
        self.n_triplets = (
            n_triplets if known_classes else min(n_triplets, MAX_FOR_OBJECTS)
        )
        self.n_models = n_models
        self.threshold = threshold
        self.settings = settings
        self.regularizations: list[float | None] = [None]
        if known_classes and relevance.labels is not None:
            self.regularizations += REGULARIZATIONS

    def __call__(
        self, train: np.ndarray, test: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[Any, np.ndarray]]:
        """Candidates and the similarities of the held-out rows by each of them."""
        idf = start_weights(self.X[train])
        rows = start_rows(self.X[train], idf)
        held_out = start_rows(self.X[test], idf)
        start = inner_products(held_out, held_out)
        yield START, start

        relevance = self.relevance.take(train)
        rows, held_out = rows.astype(DTYPE), held_out.astype(DTYPE)
        directions = principal_directions(rows, rng)
        rows, held_out = project(rows, directions), project(held_out, directions)
        for regularization in self.regularizations:
            metric = self._metric(rows, relevance, regularization)
            seen = rows if metric is None else unit_rows(metric(rows))
            rankers = self._rankers(seen, relevance, rng)
            for n_triplets in self._checkpoints(regularization):
                for _ in rankers.learn_up_to(n_triplets):
                    pass
                e = unit_rows(embedding(rankers.average(), metric)(held_out))
                learned = e @ e.T
                for shrinkage in SHRINKAGES:
                    candidate = Candidate(regularization, n_triplets, shrinkage)
                    yield candidate, (1 - shrinkage) * learned + shrinkage * start

    def refit(
        self,
        candidate: Candidate | None,
        n_components: int | None,
        rng: np.random.Generator,
        advance: Callable[..., bool],
    ) -> dict:
        """Fitted attributes, from all samples with the candidate's settings."""
        coordinates, rows = self.coordinates(candidate, rng)
        if candidate is START:
            return describe_start(coordinates)
        rankers = self._rankers(rows, self.relevance, rng)

        def describe():
            return {
                **describe_embedding(
                    rankers.average(),
                    candidate,
                    coordinates,
                    n_components,
                    self.X.dtype,
                ),
                "n_triplets_": rankers.n_triplets,
                "n_updates_": rankers.n_updates,
                "loss_curve_": np.array(rankers.losses),
            }

        for _ in rankers.learn_up_to(candidate.n_triplets):
            if advance("interval", describe):
                break
        return describe()

    def coordinates(
        self, candidate: Candidate | None, rng: np.random.Generator
    ) -> tuple["Coordinates", Matrix]:
        """Those that a candidate learns in, and all samples in them."""
        idf = start_weights(self.X)
        rows = start_rows(self.X, idf)
        if candidate is START:
            return Coordinates(idf, None, None), rows
        rows = rows.astype(DTYPE)
        directions = principal_directions(rows, rng)
        rows = project(rows, directions)
        metric = self._metric(rows, self.relevance, candidate.regularization)
        rows = rows if metric is None else unit_rows(metric(rows))
        return Coordinates(idf, directions, metric), rows

    def _checkpoints(self, regularization):
        if regularization is not None:
            return [0, min(AFTER_CLASSES, self.n_triplets)]
        n_steps = int(np.log(max(1, self.n_triplets / FIRST)) / np.log(FACTOR) + 1e-9)
        first = min(FIRST, self.n_triplets)
        return [first * FACTOR**step for step in range(n_steps + 1)]

    def _metric(self, rows, relevance, regularization):
        if regularization is None:
            return None
        return lda_metric(rows, relevance.labels, regularization)

    def _rankers(self, rows, relevance, rng):
        sampler = triplet_sampler(relevance, threshold=self.threshold)
        streams = [
            draw_stream(sampler, stream, N_NEGATIVES)
            for stream in rng.spawn(self.n_models)
        ]
        start = np.eye(rows.shape[1], dtype=rows.dtype)
        return Rankers(start, rows, streams, self.settings)


class Coordinates(NamedTuple):
    """How samples become the rows that OASIS learns from."""

    idf: np.ndarray | None
    directions: Map | None
    metric: Map | None

    def __call__(self, X: Matrix) -> np.ndarray:
        rows = project(start_rows(X, self.idf).astype(DTYPE), self.directions)
        return rows if self.metric is None else unit_rows(self.metric(rows))


def embedding(
    W: np.ndarray, metric: Map | None, n_components: int | None = None
) -> Map:
    """The map of rows by the positive part of what was learned."""
    A = positive_factor(W)[:n_components]
    return Map(A, np.zeros(len(A), dtype=A.dtype)).after(metric)


def describe_start(coordinates: Coordinates) -> dict:
    """The attributes that make up a model that stays at the start."""
    return {
        "idf_": coordinates.idf,
        "shrinkage_": 1.0,
        "n_triplets_": 0,
        "n_updates_": 0,
    }


def describe_embedding(
    W: np.ndarray,
    candidate: Candidate,
    coordinates: Coordinates,
    n_components: int | None,
    dtype,
) -> dict:
    """The attributes that make up a model that has learned W."""
    A, b = embedding(W, coordinates.metric, n_components).after(coordinates.directions)
    return {
        "idf_": coordinates.idf,
        "components_": A.astype(dtype, copy=False),
        "offset_": b.astype(dtype, copy=False),
        "shrinkage_": candidate.shrinkage,
        "regularization_": candidate.regularization,
    }


def principal_directions(X: Matrix, rng: np.random.Generator) -> Map | None:
    """The map to the leading principal directions; None if X has few features."""
    n_samples, n_features = X.shape
    if n_features <= MAX_DIRECTIONS:
        return None
    if n_samples > MAX_ROWS:
        X = X[np.sort(rng.choice(n_samples, MAX_ROWS, replace=False))]
    n = X.shape[0]
    rank = min(n, MAX_DIRECTIONS, max(1, MAX_ENTRIES // n_features))
    # With X X' = U L U', the directions are the rows of L^(-1/2) U' X.
    values, U = linalg.eigh(inner_products(X, X), subset_by_index=[n - rank, n - 1])
    keep = values > values[-1] * n * np.finfo(X.dtype).eps
    scaled = (U[:, keep] / np.sqrt(values[keep]))[:, ::-1]
    A = np.ascontiguousarray((X.T @ scaled).T)
    return Map(A, np.zeros(len(A), dtype=A.dtype))


def project(X: Matrix, directions: Map | None) -> np.ndarray:
    """Rows in the coordinates to learn in."""
    if directions is not None:
        return directions(X)
    return X if isinstance(X, np.ndarray) else X.toarray()


def lda_metric(X: np.ndarray, labels: np.ndarray, regularization: float) -> Map:
    r"""The map of linear discriminant analysis.

    (oasis-lda)  With S the covariance within classes, made more like a multiple of the
    identity by `regularization`, it is the projection of S^(-1/2) (x - m) on the space
    that the class means span. Distractors are of no class.
    """
    classes, index, size = np.unique(
        labels[labels >= 0], return_inverse=True, return_counts=True
    )
    dtype, X = X.dtype, X[labels >= 0].astype(np.float64)
    mean = X.mean(axis=0)
    membership = sparse.csr_array((np.ones(len(X)), (index, np.arange(len(X)))))
    means = (membership @ X) / size[:, None]
    spread = X - means[index]
    values, V = linalg.eigh(spread.T @ spread / len(X))
    values = np.maximum(values, 0)
    values = (1 - regularization) * values + regularization * values.mean()
    if not values.any():  # all samples of each class are equal
        values[:] = 1
    whitening = V / np.sqrt(values)
    between = np.sqrt(size / len(X))[:, None] * ((means - mean) @ whitening)
    _, strength, directions = linalg.svd(between, full_matrices=False)
    rank = min(len(classes) - 1, np.count_nonzero(strength > 1e-6 * strength[0]))
    A = (whitening @ directions[:rank].T).T
    return Map(A.astype(dtype), (A @ mean).astype(dtype))
