"""Candidates of the two-covariance model, from which held-out samples choose."""

from collections.abc import Container, Iterator
from itertools import product
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from sklearn_simlearn._core.covariances import (
    Coordinates,
    Diagonalizer,
    Moments,
    estimate_moments,
    linear_weights,
)
from sklearn_simlearn._core.directions import Affine, principal_directions, project
from sklearn_simlearn._core.encoders import Chain, Encoder, mix
from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._holdout import START
from sklearn_simlearn.two_covariance._encoders import (
    SIZES,
    LikelihoodRatio,
    QuerySets,
    quadratic_weights,
    span_of_weights,
)

# Values that the hold-out tries: shrinkages of W, forms of the similarity, and shares
# of the start.
SHRINKAGES = (0.1, 0.5)
FORMS = ("whitened", "discriminant", "ratio", "unit ratio")
SHARES = (0.0, 0.5, 0.75)

# Default shrinkage of the plain form.
PLAIN_SHRINKAGE = 0.1


class Candidate(NamedTuple):
    """Settings that held-out samples choose.

    Attributes
    ----------
    form : str
        One of `FORMS`.

    shrinkage : float
        Shrinkage of the covariance within classes. With 1, the form "whitened" is the
        cosine of centred rows.

    share : float
        Share of the start, for similarities of equal spread; see `true_share`.
    """

    form: str
    shrinkage: float
    share: float


class Score(NamedTuple):
    """Similarity of rows in the coordinates.

    Attributes
    ----------
    map : Affine
        Map into the coordinates.

    ratio : LikelihoodRatio or None
        Encoder that compares rows in the coordinates; None for their inner product.

    deviation : float
        Standard deviation of the similarity of samples of different classes, as the
        model predicts it.
    """

    map: Affine
    ratio: LikelihoodRatio | None
    deviation: float

    def encode(self, rows: Encoder | None, directions: Affine | None, dtype) -> Encoder:
        """Return the encoder of samples.

        Parameters
        ----------
        rows : Encoder or None
            Encoder from samples to rows; None if the samples are the rows.

        directions : Affine or None
            Map from rows to the input of the coordinates; None if it is the identity.

        dtype : dtype
            Precision of the samples.
        """
        encoder: Encoder = self.map.after(directions).astype(dtype)
        if rows is not None:
            encoder = Chain(rows, encoder)
        return encoder if self.ratio is None else Chain(encoder, self.ratio)


def make_score(
    form: str,
    coordinates: Coordinates,
    n_components: int | None,
    sizes: np.ndarray = SIZES,
) -> Score:
    """Return the similarity of a form, for sets of queries of these sizes."""
    if form != "whitened":
        coordinates = coordinates.discriminants()
    coordinates = coordinates.leading(n_components)
    beta = coordinates.beta
    linear = linear_weights(beta)
    if form in ("whitened", "discriminant"):
        weights = np.ones(len(beta)) if form == "whitened" else linear
        variance = weights * (1 + beta)
        deviation = float(np.linalg.norm(variance) / (variance.sum() or 1.0))
        return Score(coordinates.weigh(weights), None, deviation)
    unit = form == "unit ratio"
    variance = np.square(linear * (1 + beta)).sum()
    length = float(np.sqrt((1 + beta).sum())) if unit else 1.0
    if not unit:
        squares = quadratic_weights(beta, [1])[0]
        variance += np.square(squares * (1 + beta)).sum() / 2
    ratio = LikelihoodRatio(beta, span_of_weights(beta, sizes), length)
    map_ = Affine(coordinates.A, coordinates.offset, unit)
    return Score(map_, ratio, float(np.sqrt(variance)))


class Path:
    """The candidates of a fit, and the fit of the chosen candidate.

    Parameters
    ----------
    X : ndarray or csr_array of shape (n_samples, n_features)
        Checked samples.

    relevance : Relevance
        Relevance of the samples to each other.

    shrinkage : float or None
        The only shrinkage to try; None for several.

    n_components : int or None
        Largest number of coordinates.
    """

    def __init__(
        self,
        X: Matrix,
        relevance: Relevance,
        *,
        shrinkage: float | None,
        n_components: int | None,
    ):
        self.X = X
        self.relevance = relevance
        self.shrinkages = SHRINKAGES if shrinkage is None else (shrinkage,)
        self.n_components = n_components

    def __call__(
        self, train: np.ndarray, rng: np.random.Generator, dropped: Container = ()
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows.

        Candidates in `dropped` are skipped.
        """
        X, relevance = self.X[train], self.relevance.take(train)
        start = Start.fit(relevance.items_of(X))
        yield START, QuerySets(start)

        # Products of a block may have the precision of the rows if W is shrunk.
        precision = X.dtype if min(self.shrinkages) >= SHRINKAGES[0] else np.float64
        directions, moments = learn_moments(start.items(X), relevance, rng, precision)
        base: Encoder = start
        if directions is not None:
            base = Chain(start, directions.astype(X.dtype))
        diagonalize, of_start = Diagonalizer(moments), deviation_of_start(moments)
        for shrinkage, form in product(self.shrinkages, FORMS):
            candidates = [Candidate(form, shrinkage, share) for share in SHARES]
            candidates = [each for each in candidates if each not in dropped]
            if not candidates:
                continue
            coordinates = diagonalize(shrinkage)
            score = make_score(form, coordinates, self.n_components, SIZES[:1])
            learned = score.encode(base, None, X.dtype)
            for candidate in candidates:
                share = true_share(candidate.share, score.deviation, of_start)
                yield candidate, QuerySets(mix(learned, start, share))

    def refit(self, candidate: Candidate | None, rng: np.random.Generator) -> dict:
        """Learn from all samples with the candidate; return the fitted attributes."""
        start = Start.fit(self.relevance.items_of(self.X))
        if candidate is START:
            return {"encoder_": QuerySets(start), "share_": 1.0, "idf_": start.idf}
        directions, moments = learn_moments(start.items(self.X), self.relevance, rng)
        coordinates = Diagonalizer(moments)(candidate.shrinkage)
        score = make_score(candidate.form, coordinates, self.n_components)
        learned = score.encode(start, directions, self.X.dtype)
        of_start = deviation_of_start(moments)
        share = true_share(candidate.share, score.deviation, of_start)
        return {
            "encoder_": QuerySets(mix(learned, start, share)),
            "share_": share,
            "idf_": start.idf,
            "form_": candidate.form,
            "shrinkage_": candidate.shrinkage,
            **describe(coordinates, directions, score),
        }


def learn_plain(
    X: Matrix,
    relevance: Relevance,
    rng: np.random.Generator,
    *,
    shrinkage: float | None,
    n_components: int | None,
) -> dict:
    """Return the fitted attributes of the likelihood ratio of unscaled samples."""
    shrinkage = PLAIN_SHRINKAGE if shrinkage is None else shrinkage
    directions, moments = learn_moments(X, relevance, rng)
    coordinates = Diagonalizer(moments)(shrinkage)
    score = make_score("ratio", coordinates, n_components)
    return {
        "encoder_": QuerySets(score.encode(None, directions, X.dtype)),
        "form_": "ratio",
        "shrinkage_": shrinkage,
        **describe(coordinates, directions, score),
    }


def learn_moments(
    rows: Matrix,
    relevance: Relevance,
    rng: np.random.Generator,
    precision: DTypeLike = np.float64,
) -> tuple[Affine | None, Moments]:
    """Return the leading directions of the rows, and the moments of projected rows."""
    directions = principal_directions(rows, rng)
    rows = project(rows, directions)
    return directions, estimate_moments(rows, relevance, precision)


def deviation_of_start(moments: Moments) -> float:
    """Return the standard deviation of the inner products of a query with all rows.

    Their variance is m' T m + tr(T T) on average, where m is the mean and T the
    covariance of the rows.
    """
    mean, total = moments.mean, moments.total
    return float(np.sqrt(mean @ total @ mean + np.square(total).sum()))


def true_share(nominal: float, deviation: float, of_start: float) -> float:
    """Return the weight of the start that corresponds to a nominal share.

    The nominal share applies to similarities of equal spread. The learned similarity
    has the standard deviation `deviation`, and the start has `of_start`.
    """
    weight = nominal * deviation
    rest = (1 - nominal) * of_start
    return float(weight / (weight + rest)) if deviation > 0 and rest > 0 else nominal


def describe(coordinates: Coordinates, directions: Affine | None, score: Score) -> dict:
    """Return the attributes that hold the coordinates."""
    rank = len(score.map.A)
    full = Affine(coordinates.A, coordinates.offset).after(directions)
    return {
        "components_": full.A[:rank],
        "offset_": full.b[:rank],
        "between_": coordinates.beta[:rank],
    }
