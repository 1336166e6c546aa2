"""OASIS on Dask collections: train one ranker per stream of batches, and average them.

The objective is convex in W, so the objective of the averaged ranker is at most the
average objective of the rankers (section 5.4 of the paper). The hold-out and the search
for coordinates need only a sample of the data, which one process reads.
"""

from operator import add

import numpy as np

from sklearn_simlearn._core.dask import settle
from sklearn_simlearn._core.dask_batches import Partitions
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.triplets import triplet_sampler
from sklearn_simlearn._holdout import START, choose
from sklearn_simlearn.oasis._path import (
    DTYPE,
    N_NEGATIVES,
    Coordinates,
    Path,
    describe_start,
)
from sklearn_simlearn.oasis._steps import Rankers, Settings, draw_stream


class Lesson:
    """Parameters that all rankers share when they learn from a batch.

    Parameters
    ----------
    settings : Settings
        Parameters of the steps.

    n_models : int
        Number of rankers to train on each batch, and to average.

    threshold : float
        Largest relevance at which two samples count as irrelevant to each other.

    coordinates : Coordinates or None
        Conversion of samples into rows to learn from. None uses the samples.
    """

    def __init__(
        self,
        settings: Settings,
        n_models: int,
        threshold: float,
        coordinates: Coordinates | None,
    ):
        self.settings = settings
        self.n_models = n_models
        self.threshold = threshold
        self.coordinates = coordinates

    def rows(self, X):
        return X if self.coordinates is None else self.coordinates(X)

    def draw(self, relevance, rng):
        """Return one stream of triplets per ranker."""
        sampler = triplet_sampler(relevance, threshold=self.threshold)
        n_negatives = 1 if self.coordinates is None else N_NEGATIVES
        return [
            draw_stream(sampler, stream, n_negatives)
            for stream in rng.spawn(self.n_models)
        ]


class Ranker:
    """Matrix that learns from one batch after another, with the history of the fit."""

    def __init__(self, W: np.ndarray, n_triplets=0, n_updates=0, losses=()):
        self.W = W
        self.n_triplets = n_triplets
        self.n_updates = n_updates
        self.losses = [*losses]

    def report(self):
        return self.n_triplets, self.n_updates, self.losses


def learn_batch(lesson, ranker, batch, n_triplets, rng):
    """Return a ranker that has also learned from a batch.

    The ranker visits triplets of the batch until its total is `n_triplets`. If the
    batch has no triplets, the ranker is returned unchanged.
    """
    relevance = check_relevance(batch.y)
    if not relevance.find_queries().any():
        return ranker
    W = ranker.W.copy()
    rankers = Rankers(
        W, lesson.rows(batch.X), lesson.draw(relevance, rng), lesson.settings
    )
    rankers.n_triplets = ranker.n_triplets
    with one_blas_thread():
        for _ in rankers.learn_up_to(n_triplets):
            pass
    return Ranker(
        rankers.average(),
        rankers.n_triplets,
        ranker.n_updates + rankers.n_updates,
        ranker.losses + rankers.losses,
    )


def learn_rankers(partitions, lesson, W, n_triplets, rng):
    """Return the mean of all rankers and the attributes of the fit.

    Each ranker visits `n_triplets` triplets, spread evenly over the rounds of batches.
    """
    from dask import compute, delayed

    rounds = partitions.rounds(rng)
    learn = delayed(learn_batch, pure=False)
    shared = delayed(lesson, pure=False)
    first = delayed(Ranker(W), pure=False)
    rankers = [first] * len(rounds[0])
    for i, batches in enumerate(rounds):
        target = n_triplets * (i + 1) // len(rounds)
        rankers = settle(
            *[
                learn(shared, ranker, batch, target, stream)
                for ranker, batch, stream in zip(
                    rankers, batches, rng.spawn(len(batches)), strict=True
                )
            ]
        )
    reports = compute(*[ranker.report() for ranker in rankers])
    filled = [i for i, (n_seen, _, _) in enumerate(reports) if n_seen > 0]
    if not filled:
        raise ValueError(
            "No batch of the shuffled partitions contains a triplet. A triplet needs "
            "two samples of one class and a sample of another class in y."
        )
    seen, updates, losses = zip(*[reports[i] for i in filled], strict=True)
    n_points = min(map(len, losses))
    attributes = {
        "n_triplets_": max(seen),
        "n_updates_": sum(updates),
        "loss_curve_": np.mean([curve[:n_points] for curve in losses], axis=0),
    }
    return _mean([rankers[i].W for i in filled]), attributes


def _mean(values):
    """Return the mean of delayed matrices; a worker holds at most two at a time."""
    from dask import compute, delayed

    n_values = len(values)
    while len(values) > 1:
        pairs = zip(values[::2], values[1::2], strict=False)
        odd = values[-1:] if len(values) % 2 else []
        values = [delayed(add, pure=False)(*pair) for pair in pairs] + odd
    (total,) = compute(values[0])
    return total / n_values


def learn_plain(oasis, X, y, rng, serve):
    """Return the fitted attributes of the plain form.

    ``serve(W)`` returns the attributes of a model with the matrix W.
    """
    partitions = Partitions(oasis, X, y)
    settings = oasis._settings()._replace(n_jobs=1)
    lesson = Lesson(settings, oasis.n_models, oasis.relevance_threshold, None)
    W = oasis._first_W(partitions.example)
    W, attributes = learn_rankers(partitions, lesson, W, oasis.n_triplets, rng)
    return serve(W) | attributes


def learn_held_out(oasis, X, y, rng, make_path):
    """Return the fitted attributes of the candidate that the hold-out chooses.

    ``make_path(X, relevance)`` returns the candidates for a sample in memory.
    """
    partitions = Partitions(oasis, X, y)
    sample = partitions.sample(rng)
    relevance = check_relevance(sample.y)
    relevance.require_triplets()
    path: Path = make_path(sample.X, relevance)
    with one_blas_thread():
        choice = choose(
            path, sample.X, relevance, oasis.holdout, rng, _no_callbacks, race=True
        )
        coordinates, rows = path.coordinates(choice.candidate, rng)
    if choice.candidate is START:
        return describe_start(coordinates.start) | choice.attributes
    W, n_triplets = np.eye(rows.shape[1], dtype=DTYPE), choice.candidate.n_triplets
    attributes = {"n_triplets_": 0, "n_updates_": 0, "loss_curve_": np.empty(0)}
    if n_triplets > 0:
        settings = oasis._settings()._replace(n_jobs=1)
        lesson = Lesson(
            settings, oasis.n_models, oasis.relevance_threshold, coordinates
        )
        W, attributes = learn_rankers(partitions, lesson, W, n_triplets, rng)
    learned = path.describe(W, choice.candidate, coordinates)
    return learned | attributes | choice.attributes


def _no_callbacks(name, describe=None):
    return False
