"""Candidates between the cosine and OASIS, from which held-out samples choose.

OASIS learns here from rows of unit length in a few hundred coordinates. The positive
part of W embeds the rows. The similarity is the cosine of the embedded rows, mixed with
the initial similarity, the start:

    (oasis-cosine)  s(q, x) = (1 - share) <e(q), e(x)> + share <q, x>,
    e(x) = A (x - m) / |A (x - m)|, A' A = the positive part of W.
"""

from collections.abc import Callable, Container, Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from sklearn_simlearn._core.covariances import (
    Diagonalizer,
    estimate_moments,
    linear_weights,
)
from sklearn_simlearn._core.directions import Affine, principal_directions, project
from sklearn_simlearn._core.encoders import Chain, Encoder, mix
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.triplets import take_triplets, triplet_sampler
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._holdout import START
from sklearn_simlearn.oasis._steps import (
    Rankers,
    Settings,
    draw_stream,
    given_stream,
    positive_factor,
)

# Single precision halves the time of the steps, and is precise enough.
DTYPE = np.float32

# Negatives drawn for each pair; the hardest is taken. 5 to 20 give similar results.
N_NEGATIVES = 10

# Numbers of triplets to choose from: the smallest, and the factor between them.
FIRST, FACTOR = 1000, 4

# Largest number of triplets for new objects. More did not help.
MAX_FOR_OBJECTS = 16_000

# Number of triplets to visit if W starts from a metric in closed form.
AFTER_METRIC = 4000

# Metrics in closed form to start from, for new and for known classes, and shrinkages of
# the covariance within classes. For known classes, whitening has not helped.
METRICS = ("whitened", "discriminant")
METRICS_OF_KNOWN = ("discriminant",)
SHRINKAGES = (0.1, 0.5)

# Shares of the start in the similarity.
SHARES = (0.0, 0.3, 0.6, 0.9)


class Candidate(NamedTuple):
    """Settings that held-out samples choose.

    Attributes
    ----------
    metric : str or None
        One of `METRICS`, from which W starts; None for the identity.

    shrinkage : float or None
        Shrinkage of the covariance within classes, for the metric.

    n_triplets : int
        Number of triplets to learn from.

    share : float
        Share of the start in the similarity.
    """

    metric: str | None
    shrinkage: float | None
    n_triplets: int
    share: float


class Coordinates(NamedTuple):
    """Conversion of samples into the rows that OASIS learns from."""

    start: Start
    directions: Affine | None  # leading directions; None if the data has few features
    metric: Affine | None = None  # metric from which W starts; None for the identity

    def __call__(self, X: Matrix) -> np.ndarray:
        """Return the rows to learn from."""
        rows = project(self.start.items(X).astype(DTYPE), self.directions)
        return rows if self.metric is None else self.metric.items(rows)

    def embed(self, W: np.ndarray | None, n_components: int | None) -> Affine:
        """Return the map that embeds projected rows by the positive part of W.

        If W is None, return the metric, whose first coordinates separate classes best.
        """
        if W is None:
            assert self.metric is not None  # the identity alone is not a candidate
            return Affine(self.metric.A[:n_components], self.metric.b[:n_components])
        A = positive_factor(W)[:n_components]
        return Affine(A, np.zeros(len(A), dtype=A.dtype)).after(self.metric)


class Path:
    """The candidates of a fit, and the fit of the chosen candidate.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked samples.

    relevance : Relevance
        Relevance of the samples to each other.

    n_triplets : int
        Largest number of triplets.

    n_models : int
        Number of rankers to average.

    n_components : int or None
        Number of dimensions of the embedding to keep.

    known_classes : bool
        True if future queries are of the classes of the samples.

    threshold : float
        Largest relevance at which two samples count as irrelevant to each other.

    settings : Settings
        Settings of the steps.

    triplets : ndarray of shape (n_triplets, 3), default=None
        Triplets to learn from. If None, triplets are drawn.
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
        triplets: np.ndarray | None = None,
    ):
        self.X = X
        self.relevance = relevance
        self.triplets = triplets
        self.n_triplets = n_triplets
        if triplets is not None:
            self.n_triplets = len(triplets)
        elif not known_classes:
            self.n_triplets = min(n_triplets, MAX_FOR_OBJECTS)
        self.n_models = n_models
        self.n_components = n_components
        self.threshold = threshold
        self.settings = settings
        self.metrics: tuple[str, ...] = METRICS_OF_KNOWN if known_classes else METRICS
        if isinstance(relevance, JudgedRelevance):
            self.metrics = ()

    def __call__(
        self, train: np.ndarray, rng: np.random.Generator, dropped: Container = ()
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows.

        Candidates in `dropped` are skipped.
        """
        X, relevance = self.X[train], self.relevance.take(train)
        start = Start.fit(relevance.items_of(X))
        yield START, start

        given = None
        if self.triplets is not None:
            given = take_triplets(self.triplets, train)
        plain, rows = find_coordinates(X, start, rng)
        base: Encoder = start
        if plain.directions is not None:
            base = Chain(start, plain.directions.astype(X.dtype))
        # Shrinkage makes the precision of the rows sufficient for the moments.
        diagonalizer = cache(
            lambda: Diagonalizer(estimate_moments(rows, relevance, DTYPE))
        )
        for name, shrinkage in self._starts():
            steps = self._steps(name, shrinkage, dropped)
            if not steps:
                continue
            metric = None
            if name is not None:
                metric = make_metric(diagonalizer(), name, shrinkage)
            coordinates = plain._replace(metric=metric)
            seen = rows if metric is None else metric.items(rows)
            rankers = self._rankers(seen, relevance, rng, given)
            for n_triplets, candidates in steps.items():
                n_known = n_triplets if given is None else min(n_triplets, len(given))
                for _ in rankers.learn_up_to(n_known):
                    pass
                W = rankers.average() if n_triplets else None
                embedding = coordinates.embed(W, self.n_components)
                learned = Chain(base, embedding.astype(X.dtype))
                for candidate in candidates:
                    yield candidate, mix(learned, start, candidate.share)

    def refit(
        self,
        candidate: Candidate | None,
        rng: np.random.Generator,
        advance: Callable[..., bool],
    ) -> dict:
        """Learn from all samples with the candidate; return the fitted attributes."""
        coordinates, rows = self.coordinates(candidate, rng)
        if candidate is START:
            return describe_start(coordinates.start)
        rankers = self._rankers(rows, self.relevance, rng, self.triplets)

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
        """Return the coordinates of a candidate, and all samples in them."""
        start = Start.fit(self.relevance.items_of(self.X))
        if candidate is START:
            return Coordinates(start, None), None
        coordinates, rows = find_coordinates(self.X, start, rng)
        if candidate.metric is None or candidate.shrinkage is None:
            return coordinates, rows
        diagonalize = Diagonalizer(estimate_moments(rows, self.relevance))
        metric = make_metric(diagonalize, candidate.metric, candidate.shrinkage)
        return coordinates._replace(metric=metric), metric.items(rows)

    def describe(
        self, W: np.ndarray, candidate: Candidate, coordinates: Coordinates
    ) -> dict:
        """Return the attributes of a model that has learned W."""
        changed = W if candidate.n_triplets else None
        embedding = coordinates.embed(changed, self.n_components)
        # Compose both maps, so that rows are encoded by one product.
        embedding = embedding.after(coordinates.directions).astype(self.X.dtype)
        learned = Chain(coordinates.start, embedding)
        return {
            "encoder_": mix(learned, coordinates.start, candidate.share),
            "idf_": coordinates.start.idf,
            "components_": embedding.A,
            "offset_": embedding.b,
            "share_": candidate.share,
            "metric_": candidate.metric,
            "shrinkage_": candidate.shrinkage,
        }

    def _starts(self):
        """Return the metrics from which W starts, with shrinkages.

        The identity is the slowest and comes last.
        """
        return [*((m, s) for s, m in product(SHRINKAGES, self.metrics)), (None, None)]

    def _steps(self, name, shrinkage, dropped):
        """Return the candidates with a metric that are not dropped, by `n_triplets`."""
        steps: dict[int, list[Candidate]] = {}
        for n_triplets, share in product(self._checkpoints(name), SHARES):
            candidate = Candidate(name, shrinkage, n_triplets, share)
            if candidate not in dropped:
                steps.setdefault(n_triplets, []).append(candidate)
        return steps

    def _checkpoints(self, metric):
        if metric is not None:
            return [0, min(AFTER_METRIC, self.n_triplets)]
        n_steps = int(np.log(max(1, self.n_triplets / FIRST)) / np.log(FACTOR) + 1e-9)
        first = min(FIRST, self.n_triplets)
        steps = [first * FACTOR**step for step in range(n_steps + 1)]
        if self.triplets is not None and steps[-1] < self.n_triplets:
            steps.append(self.n_triplets)
        return steps

    def _rankers(self, rows, relevance, rng, given):
        rngs = rng.spawn(self.n_models)
        if given is not None:
            streams = [given_stream(each.permutation(given)) for each in rngs]
        else:
            sampler = triplet_sampler(relevance, threshold=self.threshold)
            streams = [draw_stream(sampler, each, N_NEGATIVES) for each in rngs]
        identity = np.eye(rows.shape[1], dtype=rows.dtype)
        return Rankers(identity, rows, streams, self.settings)


def describe_start(start: Start) -> dict:
    """Return the attributes of a model that keeps the start."""
    return {
        "encoder_": start,
        "idf_": start.idf,
        "share_": 1.0,
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


def make_metric(diagonalize: Diagonalizer, name: str, shrinkage: float) -> Affine:
    """Return the map of a metric in closed form: (oasis-metrics).

    "whitened" makes the covariance within classes the identity. "discriminant" also
    weighs each coordinate by its variance between classes, as the two-covariance model
    does, and drops coordinates without such variance.
    """
    coordinates = diagonalize(shrinkage)
    weights = np.ones(len(coordinates.beta))
    if name == "discriminant":
        coordinates = coordinates.discriminants()
        weights = linear_weights(coordinates.beta)
    return coordinates.weigh(weights).astype(DTYPE)
