"""Triplets: distributions of draws, and errors."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse, stats
from scipy.stats import chisquare

from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.triplets import (
    judge_triplets,
    take_triplets,
    triplet_sampler,
)
from sklearn_simlearn.metrics import PairwiseRelevance


def draw(y, n, *, seed=0, **options):
    sampler = triplet_sampler(check_relevance(y), **options)
    return sampler.draw(n, np.random.default_rng(seed))


def assert_frequencies(drawn, expected):
    """Compare observed counts of numbers 0, 1, ... with their probabilities."""
    observed = np.bincount(drawn, minlength=len(expected))
    assert observed[expected == 0].sum() == 0
    possible = expected > 0
    if possible.sum() == 1:
        return
    result = chisquare(
        observed[possible], expected[possible] / expected.sum() * len(drawn)
    )
    assert result.pvalue > 1e-4


def test_labels_give_uniform_queries_positives_and_negatives():
    y = np.array([0, 0, 1, 2, 2, 2, -1, -1])
    triplets = draw(y, 40_000)
    query, positive, negative = triplets.T
    assert_frequencies(query, np.array([1, 1, 0, 1, 1, 1, 0, 0.0]))
    for q in (0, 3):
        same, other = (y == y[q]).astype(float), (y != y[q]).astype(float)
        same[q] = 0
        assert_frequencies(positive[query == q], same)
        assert_frequencies(negative[query == q], other)


def joint_probability(y):
    """Return Eq. 19 of the paper, sample by sample."""
    R = np.maximum(y, 0)
    given_column = R / np.maximum(R.sum(axis=0), 1e-300)
    return given_column @ np.diag(R.sum(axis=0) / R.sum()) @ given_column.T


def test_weights_give_pairs_in_proportion_to_their_joint_probability():
    y = np.array(
        [
            [3.0, 0, 0, 1],
            [1.0, 2, 0, 0],
            [0.0, 1, 0, 0],
            [0.5, 0, -1, 0],
            [0.0, -1, 1, 0],
            [0.0, 0, 2, 0],
            [0.0, 0, 0, 0],
        ]
    )
    for target in (y, sparse.csr_array(y)):
        query, positive, negative = draw(target, 60_000).T
        joint = joint_probability(y)
        np.fill_diagonal(joint, 0)
        assert_frequencies(query * 7 + positive, joint.ravel())
        # Sample 4 is junk for 1 and 2, sample 3 for 4 and 5.
        irrelevant = (np.maximum(y, 0) @ np.maximum(y, 0).T == 0).astype(float)
        irrelevant[1, 4] = irrelevant[2, 4] = irrelevant[4, 3] = irrelevant[5, 3] = 0
        for q in range(6):
            assert_frequencies(negative[query == q], irrelevant[q])


def test_threshold_turns_weak_pairs_into_irrelevant_ones():
    y = np.array([[4.0, 0], [4, 0], [0.1, 1], [0, 1], [0, 1]])
    joint = joint_probability(y)
    assert joint[0, 2] < 0.05 < joint[0, 1]
    triplets = draw(y, 5000, threshold=0.05)
    assert (joint[triplets[:, 0], triplets[:, 1]] > 0.05).all()
    assert (joint[triplets[:, 0], triplets[:, 2]] <= 0.05).all()
    weak = (triplets[:, 0] == 0) & (triplets[:, 2] == 2)
    assert weak.any()
    with pytest.raises(ValueError, match=r"exceeds relevance_threshold=0\.9"):
        draw(y, 10, threshold=0.9)


def test_negatives_are_found_where_almost_everything_is_relevant():
    # 300 samples share a column, and only sample 300 is irrelevant to them. Sample 301
    # is relevant to all samples, so it has no negative and is never a query.
    y = np.zeros((302, 2))
    y[:300, 0] = 1
    y[300, 1] = 1
    y[301] = 1
    query, _, negative = draw(y, 3000).T
    assert 301 not in query
    assert set(negative[query < 300]) == {300}
    assert (negative[query == 300] < 300).all()


def test_same_seed_same_triplets():
    y = np.random.default_rng(0).integers(5, size=100)
    np.testing.assert_array_equal(draw(y, 500, seed=3), draw(y, 500, seed=3))
    assert (draw(y, 500, seed=3) != draw(y, 500, seed=4)).any()


@pytest.mark.parametrize(
    "y",
    [
        [0, 0, 0],
        [0, 1, 2],
        [-1, -1, -1],
        sparse.csr_array(np.eye(3, 4)),
        np.zeros((3, 2)),
        sparse.csr_array(np.ones((3, 1))),
        np.ones((4, 2)),
        PairwiseRelevance(np.ones((3, 3))),
        PairwiseRelevance(np.eye(3)),
        PairwiseRelevance(np.array([[0, 1, -1], [1, 0, -1], [0, 0, 0]])),
    ],
    ids=[
        "one class",
        "singletons",
        "distractors",
        "lonely columns",
        "zeros",
        "one column",
        "equal columns",
        "all pairs",
        "no pairs",
        "pairs and junk",
    ],
)
def test_targets_without_a_triplet_are_refused(y):
    with pytest.raises(ValueError, match="y holds no triplet"):
        triplet_sampler(check_relevance(y))


def test_pairs_give_uniform_queries_positives_by_weight_and_uniform_negatives():
    y = np.zeros((6, 6))
    y[0, [1, 2]] = 3, 1
    y[1, [0, 3]] = 1, -1
    y[2, 3] = 1e308
    y[4, [0, 1, 2, 3, 5]] = 1  # relevant to all others: no negative
    query, positive, negative = draw(PairwiseRelevance(y), 30_000).T
    assert_frequencies(query, np.array([1, 1, 1, 0, 0, 0.0]))
    for q in range(3):
        assert_frequencies(positive[query == q], np.maximum(y[q] / y[q].max(), 0))
        irrelevant = (y[q] == 0).astype(float)
        irrelevant[q] = 0
        assert_frequencies(negative[query == q], irrelevant)


def test_threshold_turns_weak_pairs_of_samples_into_irrelevant_ones():
    y = np.zeros((4, 4))
    y[0, [1, 2]] = 3, 1
    query, positive, negative = draw(PairwiseRelevance(y), 500, threshold=1).T
    assert set(query) == {0}
    assert set(positive) == {1}
    assert set(negative) == {2, 3}
    with pytest.raises(ValueError, match="y holds no triplet"):
        draw(PairwiseRelevance(y), 500, threshold=3)


def test_pairs_are_drawn_however_small_one_of_them_is():
    # In the first column, one entry is 1e40 times as large as the others. The second
    # column has two equal entries, which are small compared with the first column.
    y = np.array([[1e40, 0, 0], [1, 0, 0], [2, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]])
    query, positive, _ = draw(y, 30_000).T
    joint = joint_probability(y) * y.sum()
    np.fill_diagonal(joint, 0)
    joint[joint < 1e-9] = 0
    assert_frequencies(query * 6 + positive, joint.ravel())


def test_rare_queries_with_a_negative_are_found():
    # Samples 0 to 2 have nearly all of the weight, but are relevant to all samples.
    y = np.array([[1e12, 1, 0], [1e12, 1, 0], [1e12, 1, 0], [1, 0, 0], [0, 1, 0]])
    query, _, negative = draw(y, 2000).T
    assert set(query) == {3, 4}
    assert set(negative) == {3, 4}


def test_draws_cover_every_pair_of_a_large_class():
    y = np.repeat([0, 1], 30)
    triplets = draw(y, 30_000)
    pairs = triplets[:, 0] * 60 + triplets[:, 1]
    same = (y[:, None] == y) & ~np.eye(60, dtype=bool)
    assert len(np.unique(pairs)) == same.sum()
    # No pair is too frequent: the largest count is plausible for a Poisson law.
    most = np.bincount(pairs).max()
    assert stats.poisson.sf(most - 1, 30_000 / same.sum()) * same.sum() > 1e-4


def test_a_query_is_never_its_own_negative():
    y = np.zeros((5, 2))
    y[:3, 0] = [1, 10, 10]
    y[3:, 1] = 10
    joint = joint_probability(y)
    threshold = (joint[0, 0] + joint[0, 1]) / 2
    query, _, negative = draw(y, 2000, threshold=threshold).T
    assert (query == 0).any()
    assert (query != negative).all()


# -- given triplets --


def test_relevance_is_the_share_of_comparisons_won():
    triplets = np.array(
        [[0, 2, 3], [0, 2, 3], [0, 3, 4], [1, 4, 2], [1, 1, 3], [1, 3, 3]]
    )
    relevance = judge_triplets(triplets, 7)
    expected = np.zeros((7, 7))
    expected[0, 2], expected[0, 3] = 1, 1 / 3
    expected[1, 4] = 1
    assert_allclose(relevance.pairs.toarray(), expected)
    # Sample 0 is only a query, sample 1 is also an item; 5 and 6 are not in a triplet.
    assert_array_equal(relevance.is_item, [False, *[True] * 6])
    assert_array_equal(relevance.find_queries(), [True, True, *[False] * 5])


def test_triplets_of_some_rows_alone():
    triplets = np.array([[0, 2, 3], [4, 2, 3], [0, 1, 3], [4, 5, 0]])
    taken = take_triplets(triplets, np.array([0, 2, 3, 5]))
    assert_array_equal(taken, [[0, 1, 2]])
    assert take_triplets(triplets, np.array([6])).shape == (0, 3)
