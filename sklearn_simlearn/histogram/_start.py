"""Choice of the hand-made similarity that HistogramRankSVM starts from."""

import warnings

import numpy as np
from scipy import sparse
from sklearn.base import clone

from sklearn_simlearn._core.relevance import Relevance
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.targets import DISTRACTOR
from sklearn_simlearn._folds import MIN_CLASSES, Fold, shuffle_within
from sklearn_simlearn._holdout import START, Judge
from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)
from sklearn_simlearn.similarities._hand_made import HandMadeSimilarity

# Largest number of samples of each half that query each other.
MAX_COMPARED = 1000


def choose_hand_made(
    X: sparse.csr_array, relevance: Relevance, max_count: int, rng: np.random.Generator
) -> HandMadeSimilarity:
    """Return the hand-made similarity that ranks the samples best; do not fit it.

    Hand-made similarities do not learn from labels, so they can be compared on the
    training classes. Each half of the samples is searched with the statistics of the
    other half. The first similarity is returned if no other is better, or if there are
    too few classes.
    """
    candidates = _list_hand_made(X, max_count)
    objects = relevance.objects()
    sizes = np.bincount(objects[objects != DISTRACTOR])
    if np.count_nonzero(sizes > 1) < MIN_CLASSES:
        return candidates[0]
    judge = Judge(X, relevance, by_class=False)
    for fold in _halve_in_pairs(objects, rng):
        if relevance.take(fold.queries).find_queries().any():
            judge.open(fold)
            for place, candidate in enumerate(candidates):
                fitted = fit_hand_made(candidate, X[fold.train])
                judge.record(place or START, fitted.encoder_)
    return candidates[judge.choose().candidate or 0]


def fit_hand_made(
    hand_made: HandMadeSimilarity, X: sparse.csr_array
) -> HandMadeSimilarity:
    """Return a fitted copy. Do not warn if idf has no effect."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return clone(hand_made).fit(X)


def _list_hand_made(X: sparse.csr_array, max_count: int) -> list[HandMadeSimilarity]:
    """Return the similarities to choose from; the first is the default start."""
    has_idf = Start.fit(X).idf is not None
    similarities: list[HandMadeSimilarity] = [
        CosineSimilarity(use_idf=False),
        NegativeEvidenceSimilarity(use_idf=has_idf),
        AsymmetricSimilarity(max_count=max_count),
        *(AsymmetricSimilarity(lam=lam, max_count=max_count) for lam in (10, 30, 100)),
    ]
    if has_idf:
        with_idf = CosineSimilarity(power=0.75), CosineSimilarity()
        similarities = [*with_idf, *similarities, BurstinessSimilarity()]
    return similarities


def _halve_in_pairs(objects: np.ndarray, rng: np.random.Generator) -> list[Fold]:
    """Return folds of two halves of every class; classes of two samples stay together.

    Samples are assigned in pairs, so that almost every sample has another one of its
    class in its half.
    """
    row, place, size = shuffle_within(objects, rng)
    pair = np.minimum(place // 2, np.maximum(size // 2 - 1, 0))
    # Sort by the number of the pair within its class.
    order = np.lexsort((objects[row], pair))
    half = (pair + objects[row])[order] % 2 == 0
    halves = row[order][half], row[order][~half]
    folds = []
    for train, test in (halves, halves[::-1]):
        if len(train) and len(test):
            test = np.sort(test[:MAX_COMPARED])
            folds.append(Fold(np.sort(train), test, test))
    return folds
