"""From the cosine to OASIS: the embeddings among which held-out samples choose.

OASIS learns here from rows of unit length in a few hundred coordinates. The positive
part of W embeds the rows. The similarity is the cosine of the embedded rows, mixed with
the similarity of the start:

    (oasis-cosine)  s(q, x) = (1 - shrinkage) <e(q), e(x)> + shrinkage <q, x>,
    e(x) = A (x - m) / |A (x - m)|, A' A = the positive part of W.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
from scipy import linalg, sparse

from sklearn_simlearn._core.directions import Affine, principal_directions, project
from sklearn_simlearn._core.encoders import Chain, Encoder, mix
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._holdout import START
from sklearn_simlearn.oasis._steps import (
    Rankers,
    Settings,
    draw_stream,
    positive_factor,
)

# Steps need no more precision, and take half the time of double precision.
DTYPE = np.float32

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


class Coordinates(NamedTuple):
    """How samples become the rows that OASIS learns from."""

    start: Start
    directions: Affine | None  # None if the data has few features
    metric: Affine | None = None  # LDA's, if W starts from it

    def __call__(self, X: Matrix) -> np.ndarray:
        """Return the rows to learn from."""
        rows = project(self.start.items(X).astype(DTYPE), self.directions)
        return rows if self.metric is None else self.metric.items(rows)

    def embed(self, W: np.ndarray, n_components: int | None) -> Affine:
        """Return the map of projected rows by the positive part of W."""
        A = positive_factor(W)[:n_components]
        return Affine(A, np.zeros(len(A), dtype=A.dtype)).after(self.metric)


class Path:
    """The candidates of a fit, and the fit of the one that was chosen.

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

    n_components : int or None
        Number of dimensions of the embedding to keep.

    known_classes : bool
        Whether the queries to come are of these classes, so that LDA's metric may help.

    threshold : float
        Pairs up to this count as irrelevant.

    settings : Settings
        Settings of the steps.
    """

    def __init__(
        self,
        X: Matrix,
        relevance: Relevance,
        *,
        n_triplets: int,
        n_models: int,
        n_components: int | None,
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
        self.n_components = n_components
        self.threshold = threshold
        self.settings = settings
        self.regularizations: list[float | None] = [None]
        if known_classes and relevance.labels is not None:
            self.regularizations += REGULARIZATIONS

    def __call__(
        self, train: np.ndarray, rng: np.random.Generator
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield candidates and what they learn from some rows."""
        X, relevance = self.X[train], self.relevance.take(train)
        start = Start.fit(relevance.items_of(X))
        yield START, start

        plain, rows = find_coordinates(X, start, rng)
        base = start
        if plain.directions is not None:
            base = Chain(start, plain.directions.astype(X.dtype))
        for regularization in self.regularizations:
            coordinates = plain
            if regularization is not None:
                metric = lda_metric(rows, relevance.labels, regularization)
                if not len(metric.A):  # all class means are equal
                    continue
                coordinates = plain._replace(metric=metric)
            seen = rows if regularization is None else metric.items(rows)
            rankers = self._rankers(seen, relevance, rng)
            for n_triplets in self._checkpoints(regularization):
                for _ in rankers.learn_up_to(n_triplets):
                    pass
                embedding = coordinates.embed(rankers.average(), self.n_components)
                learned = Chain(base, embedding.astype(X.dtype))
                for shrinkage in SHRINKAGES:
                    candidate = Candidate(regularization, n_triplets, shrinkage)
                    yield candidate, mix(learned, start, shrinkage)

    def refit(
        self,
        candidate: Candidate | None,
        rng: np.random.Generator,
        advance: Callable[..., bool],
    ) -> dict:
        """Return the fitted attributes, from all samples with the candidate."""
        coordinates, rows = self.coordinates(candidate, rng)
        if candidate is START:
            return describe_start(coordinates.start)
        rankers = self._rankers(rows, self.relevance, rng)

        def describe():
            return {
                **self.describe(rankers.average(), candidate, coordinates),
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
    ) -> tuple[Coordinates, Matrix | None]:
        """Return those that a candidate learns in, and all samples in them."""
        start = Start.fit(self.relevance.items_of(self.X))
        if candidate is START:
            return Coordinates(start, None), None
        coordinates, rows = find_coordinates(self.X, start, rng)
        if candidate.regularization is None:
            return coordinates, rows
        labels = self.relevance.labels
        metric = lda_metric(rows, labels, candidate.regularization)
        return coordinates._replace(metric=metric), metric.items(rows)

    def describe(
        self, W: np.ndarray, candidate: Candidate, coordinates: Coordinates
    ) -> dict:
        """Return the attributes of a model that has learned W."""
        embedding = coordinates.embed(W, self.n_components)
        # One map instead of two: the same embedding, encoded in one step.
        embedding = embedding.after(coordinates.directions).astype(self.X.dtype)
        learned = Chain(coordinates.start, embedding)
        return {
            "encoder_": mix(learned, coordinates.start, candidate.shrinkage),
            "idf_": coordinates.start.idf,
            "components_": embedding.A,
            "offset_": embedding.b,
            "shrinkage_": candidate.shrinkage,
            "regularization_": candidate.regularization,
        }

    def _checkpoints(self, regularization):
        if regularization is not None:
            return [0, min(AFTER_CLASSES, self.n_triplets)]
        n_steps = int(np.log(max(1, self.n_triplets / FIRST)) / np.log(FACTOR) + 1e-9)
        first = min(FIRST, self.n_triplets)
        return [first * FACTOR**step for step in range(n_steps + 1)]

    def _rankers(self, rows, relevance, rng):
        sampler = triplet_sampler(relevance, threshold=self.threshold)
        streams = [
            draw_stream(sampler, stream, N_NEGATIVES)
            for stream in rng.spawn(self.n_models)
        ]
        identity = np.eye(rows.shape[1], dtype=rows.dtype)
        return Rankers(identity, rows, streams, self.settings)


def describe_start(start: Start) -> dict:
    """Return the attributes of a model that stays at the start."""
    return {
        "encoder_": start,
        "idf_": start.idf,
        "shrinkage_": 1.0,
        "n_triplets_": 0,
        "n_updates_": 0,
    }


def find_coordinates(
    X: Matrix, start: Start, rng: np.random.Generator
) -> tuple[Coordinates, np.ndarray]:
    """Return the coordinates to learn in, and the samples in them."""
    rows = start.items(X).astype(DTYPE)
    directions = principal_directions(rows, rng)
    return Coordinates(start, directions), project(rows, directions)


def lda_metric(X: np.ndarray, labels: np.ndarray, regularization: float) -> Affine:
    r"""Return the map of linear discriminant analysis.

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
    return Affine(A.astype(dtype), (A @ mean).astype(dtype))
