"""Tests of the hold-out: folds and choices."""

import re
import warnings
from contextlib import nullcontext
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    SparseMahalanobisLearner,
    StartKeptWarning,
    TwoCovarianceSimilarity,
    _folds,
)
from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._folds import (
    MAX_OTHERS,
    MAX_OTHERS_OF_OBJECTS,
    MAX_QUERIES,
    MAX_ROWS,
    make_folds,
)
from sklearn_simlearn._holdout import (
    START,
    Judge,
    Measures,
    SharedFolds,
    choose,
    settle,
)
from sklearn_simlearn.metrics import average_precision, precision_at_k
from sklearn_simlearn.metrics._measure import measure_lists


class Candidate(NamedTuple):
    noise: float


def keep_on(name, describe=None):
    return False


def folds(y, holdout, seed=0):
    """Return the rows to learn from and the held-out ones."""
    made = make_folds(check_relevance(y), holdout, np.random.default_rng(seed))
    for fold in made:
        assert np.isin(fold.queries, fold.items).all()
        assert np.isin(fold.others, fold.train).all()
        limit = MAX_OTHERS
        if holdout == "objects":
            limit = MAX_OTHERS_OF_OBJECTS if len(np.unique(y[fold.items])) < 5 else 0
        assert len(fold.others) == min(len(fold.train), limit)
    n_queries = sum(len(fold.queries) for fold in made)
    n_items = sum(len(fold.items) for fold in made)
    assert min(n_items, 0.9 * MAX_QUERIES) <= n_queries <= MAX_QUERIES
    return [(fold.train, fold.items) for fold in made]


class Given(Encoder):
    """Encoder whose similarities are a function of the labels of both sides."""

    def __init__(self, function):
        self.function = function

    def compare(self, sides):
        return self.function(sides.queries.X[:, 0], sides.items.X[:, 0])


def choose_among(path, y, holdout="objects", advance=keep_on, **options):
    """Choose with the labels as the only feature."""
    rng = np.random.default_rng(0)
    X = np.asarray(y, dtype=float)[:, None]
    return choose(path, X, check_relevance(y), holdout, rng, advance, **options)


def judge_whole(y, *, by_class):
    """Return a judge whose only fold has all samples."""
    judge = Judge(np.asarray(y)[:, None], check_relevance(y), by_class=by_class)
    rows = np.arange(len(y))
    judge.open(_folds.Fold(rows[:0], rows, rows))
    return judge


# -- folds --


@pytest.mark.parametrize(
    ("n_classes", "size", "n_folds"), [(10, 20, 5), (12, 8, 5), (50, 4, 3), (11, 2, 3)]
)
def test_objects_are_held_out_whole_and_once(n_classes, size, n_folds):
    y = np.repeat(np.arange(n_classes), size)
    made = folds(y, "objects")
    assert len(made) == n_folds
    for train, test in made:
        assert len(np.unique(y[test])) >= 2
        assert not np.isin(y[test], y[train]).any()
        assert len(train) + len(test) == len(y)
    tested = np.sort(np.concatenate([test for _, test in made]))
    assert_array_equal(tested, np.arange(len(y)))


def test_distractors_and_lone_samples_stay_in_training():
    y = np.concatenate([np.repeat(np.arange(12), 5), np.full(9, -1), [77, 78]])
    for train, test in folds(y, "objects"):
        assert np.isin(np.arange(60, 71), train).all()
        assert (test < 60).all()


def test_samples_are_held_out_of_classes_that_are_large_enough():
    y = np.concatenate([np.repeat(np.arange(3), 40), np.repeat(np.arange(3, 5), 5)])
    made = folds(y, "samples")
    for train, test in made:
        assert_array_equal(np.bincount(y[test])[:3], [8, 8, 8])
        assert_array_equal(np.sort(np.concatenate([train, test])), np.arange(len(y)))
    # Of five samples, two can be held out twice.
    of_small = [np.bincount(y[test], minlength=5)[3:].tolist() for _, test in made]
    assert of_small == [[2, 2], [2, 2], [0, 0], [0, 0], [0, 0]]
    tested = np.concatenate([test for _, test in made])
    assert len(np.unique(tested)) == len(tested) == 128


def test_of_classes_below_four_samples_some_are_held_out_whole():
    y = np.repeat(np.arange(20), 3)
    made = folds(y, "samples")
    assert len(made) == 5
    for train, test in made:
        assert len(np.unique(y[test])) == 4
        assert not np.isin(y[test], y[train]).any()


def test_many_held_out_samples_are_sampled_in_pairs():
    y = np.repeat(np.arange(12), 1000)
    [(train, test)] = folds(y, "samples")
    assert len(test) == MAX_ROWS
    assert len(train) == 0.8 * len(y)
    assert np.bincount(y[test]).min() >= 80
    y = np.repeat(np.arange(6000), 2)
    for _, test in folds(y, "objects"):
        assert len(test) == MAX_ROWS
        assert (np.unique(y[test], return_counts=True)[1] == 2).all()


def test_too_few_classes_keep_the_start_with_a_warning():
    with pytest.warns(UserWarning, match='9 classes .* Pass holdout="samples"'):
        assert folds(np.repeat(np.arange(9), 5), "objects") == []
    with pytest.warns(UserWarning, match="too few to hold some out"):
        assert folds([0, 0, 1, 1], "samples") == []


def test_several_labels_are_held_out_by_samples():
    rng = np.random.default_rng(0)
    y = (rng.random((60, 7)) < 0.3).astype(float)
    made = folds(y, "samples")
    assert len(made) >= 4
    for train, test in made:
        assert len(train) + len(test) >= 55
        assert not np.isin(test, train).any()


@pytest.mark.parametrize(("size", "n_folds"), [(30, 5), (60, 5), (120, 3), (250, 1)])
def test_few_samples_are_held_out_by_turns(size, n_folds):
    assert len(folds(np.repeat(np.arange(10), size), "samples")) == n_folds


# -- choices --


def noisy_path(noises):
    """Yield similarities: the truth plus noise; the start has a noise of 1."""

    def similarities(noise):
        def compare(queries, items):
            draw = np.random.default_rng(7).standard_normal((len(queries), len(items)))
            return (queries[:, None] == items) + noise * draw

        return Given(compare)

    def path(train, rng):
        yield START, similarities(1.0)
        for noise in noises:
            yield Candidate(noise), similarities(noise)

    return path


@pytest.mark.parametrize("holdout", ["objects", "samples"])
def test_a_planted_gain_is_taken(holdout):
    y = np.repeat(np.arange(20), 10)
    choice = choose_among(noisy_path([2.0, 0.5, 0.8]), y, holdout)
    assert choice.candidate == Candidate(0.5)
    gain, error = (choice.attributes[f"holdout_{n}_"] for n in ("gain", "error"))
    assert gain > error > 0
    results = choice.attributes["holdout_results_"]
    assert results["candidates"][results["best_index"]] == Candidate(0.5)
    assert results["gain"][0] == results["error"][0] == 0


def test_the_start_is_kept_if_it_is_the_best():
    y = np.repeat(np.arange(20), 10)
    choice = choose_among(noisy_path([1.1, 2.0, 1.0]), y)
    assert choice.candidate is START
    assert choice.attributes["holdout_gain_"] == 0


def test_a_gain_within_its_error_is_not_taken():
    # One class of twenty gains, so that the error is as large as the mean.
    def lone(queries, items):
        same = (queries[:, None] == items).astype(float)
        return np.where(queries[:, None] == 3, -same, same)

    def path(train, rng):
        yield START, Given(lone)
        yield Candidate(0.0), Given(lambda q, d: (q[:, None] == d) * 1.0)

    y = np.repeat(np.arange(20), 6)
    choice = choose_among(path, y)
    assert choice.attributes["holdout_results_"]["gain"][1] > 0
    assert choice.candidate is START


@pytest.mark.parametrize("by_class", [True, False])
def test_classes_or_queries_count_alike(by_class):
    # Eleven small classes gain, a large one loses.
    y = np.concatenate([np.repeat(np.arange(11), 4), np.full(400, 11)])
    judge = judge_whole(y, by_class=by_class)
    S = (y[:, None] == y).astype(float)
    is_large = (y == 11)[:, None]
    judge.record(START, Given(lambda q, d: np.where(is_large, S, -S)))
    judge.record(
        Candidate(0.0), Given(lambda q, d: np.where(is_large, 0.5 * S - S[::-1], S))
    )
    assert (judge.choose().candidate is START) != by_class


def test_queries_without_irrelevant_samples_do_not_count():
    y = np.kron(np.eye(3), np.ones((4, 1)))
    y[0] = 1  # relevant to all
    judge = judge_whole(y, by_class=False)
    relevant = (y @ y.T > 0).astype(float)
    judge.record(START, Given(lambda q, d: -relevant[1:]))
    others = ~np.eye(12, dtype=bool)[1:]
    values = [
        average_precision(row[None, other], -row[None, other])
        for row, other in zip(relevant[1:], others, strict=True)
    ]
    results = judge.choose().attributes["holdout_results_"]
    assert results["mean_average_precision"] == [pytest.approx(np.mean(values))]


def test_a_gain_that_costs_the_first_rank_is_not_taken():
    def make(queries, items):
        same = queries[:, None] == items
        first, wrong = np.zeros(same.shape), np.zeros(same.shape)
        for i in range(len(same)):
            others = np.flatnonzero(same[i] & (np.arange(len(items)) != i))
            first[i, others[0]] = 99
            wrong[i, np.flatnonzero(~same[i])[0]] = 99
        draw = np.random.default_rng(1).standard_normal(same.shape)
        return same, draw, first, wrong

    def right_first(queries, items):  # right at rank 1, poor below
        same, draw, first, _ = make(queries, items)
        return same + draw + first

    def wrong_first(queries, items):  # good below, wrong at rank 1
        same, draw, _, wrong = make(queries, items)
        return same + 0.1 * draw + wrong

    def path(train, rng):
        yield START, Given(right_first)
        yield Candidate(0.1), Given(wrong_first)

    choice = choose_among(path, np.repeat(np.arange(20), 10))
    results = choice.attributes["holdout_results_"]
    assert results["gain"][1] > results["error"][1]
    assert results["precision_at_1"][1] == 0
    assert choice.candidate is START


def thinned_precision_at_1(relevance, similarity):
    """Return the mean over all subsets of the items, with ties in random order."""
    items = np.flatnonzero(relevance >= 0)
    found = []
    for size in range(len(items) + 1):
        for kept in combinations(items, size):
            kept = np.array(kept, dtype=int)
            top = kept[similarity[kept] == similarity[kept].max(initial=-np.inf)]
            found.append((relevance[top] > 0).mean() if size else 0)
    return np.mean(found)


@pytest.mark.parametrize("n_values", [2, 4, 1000])
def test_lists_are_measured_as_by_ranks(n_values):
    rng = np.random.default_rng(n_values)
    relevance = rng.integers(-1, 2, (30, 12)).astype(np.int8)
    relevance[:, :2] = 0, 1
    similarity = rng.integers(n_values, size=relevance.shape).astype(np.float32)
    similarity -= n_values // 2
    similarity[::2] *= -1  # with zeros of both signs
    ap, p, half, p_all = measure_lists(relevance, similarity, 8)
    listed = relevance[:, :8], similarity[:, :8]
    assert_allclose(ap, average_precision(*listed, average=False))
    assert_allclose(p, precision_at_k(*listed, 1, average=False))
    assert_allclose(half, [*map(thinned_precision_at_1, *listed)])
    assert_allclose(p_all, precision_at_k(relevance, similarity, 1, average=False))


def test_similarities_that_differ_by_a_rounding_error_tie():
    similarity = np.float32([[0.5, 0.5, -0.5, -0.5, 0.0, -0.0]])
    relevance = np.int8([[1, 0, 1, 0, 1, 0]])
    expected = measure_lists(relevance, similarity)
    similarity[0, [0, 2]] = np.nextafter(similarity[0, [0, 2]], np.float32([1, -1]))
    assert np.unique(similarity).size == 5
    assert_allclose(measure_lists(relevance, similarity), expected)


def ranked(y, patterns):
    """Similarities that follow the pattern of 0 and 1 of a query.

    Samples of the query's class are ranked by its pattern, and the others after them.
    """
    S = np.zeros((len(y), len(y)))
    for i, pattern in enumerate(patterns):
        others = np.arange(len(y)) != i
        right, wrong = np.flatnonzero(others & (y == y[i])), np.flatnonzero(y != y[i])
        take = {1: iter(right), 0: iter(wrong)}
        order = [next(take[kind]) for kind in pattern]
        order += [*take[1], *take[0]]
        S[i, order] = -np.arange(len(order))
        S[i, i] = 1
    return S


@pytest.mark.parametrize(("share_right", "is_taken"), [(0.87, False), (1.0, True)])
def test_a_gain_that_vanishes_in_a_dense_database(share_right, is_taken):
    # The first hits of the start are single items, so they rise with the density of the
    # database. The learned similarity is right or wrong by query, at any density.
    y = np.repeat(np.arange(20), 10)
    place = np.arange(len(y)) * 7 % 200 / 200
    judge = judge_whole(y, by_class=False)
    start_right = 0.98 * share_right
    start = ranked(y, [[1, 0] if p < start_right else [0] for p in place])
    learned = ranked(y, [[1] if p < share_right else [0, 0, 0] for p in place])
    judge.record(START, Given(lambda q, d: start))
    judge.record(Candidate(0.0), Given(lambda q, d: learned))
    choice = judge.choose()
    results = choice.attributes["holdout_results_"]
    assert results["gain"][1] > 10 * results["error"][1]
    assert results["precision_at_1"][1] > results["precision_at_1"][0]
    assert (choice.candidate is START) != is_taken
    assert (results["gain_at_1"][1] == 0) == is_taken


@pytest.mark.parametrize("share_right", [0.9, 1.0])
def test_rank_1_counts_among_the_samples_to_learn_from(share_right):
    # The start finds near duplicates of queries among the samples to learn from. The
    # learned similarity assigns some of the queries to another class.
    y = np.repeat(np.arange(20), 10)
    rows = np.random.default_rng(0).permutation(len(y))
    held_out, train = np.sort(rows[:60]), np.sort(rows[60:])
    judge = Judge(y[:, None].astype(float), check_relevance(y), by_class=False)
    judge.open(_folds.Fold(train, held_out, held_out, train))
    is_right = np.arange(len(judge.relevant)) < share_right * len(judge.relevant)

    def compare(quality):
        def function(queries, items):
            same = queries[:, None] == items
            noise = np.random.default_rng(1).standard_normal(same.shape)
            return same + noise / quality

        return function

    def start(queries, items):
        is_duplicate = (queries[:, None] == items) & (np.arange(len(items)) >= 60)
        return compare(0.3)(queries, items) + 99 * is_duplicate

    def learned(queries, items):
        S = compare(30)(queries, items)
        wrong = (queries[:, None] + 1) % 20 == items
        return np.where(is_right[:, None], S, S + 2 * wrong)

    judge.record(START, Given(start))
    judge.record(Candidate(0.0), Given(learned))
    choice = judge.choose()
    results = choice.attributes["holdout_results_"]
    assert results["precision_at_1"][1] > results["precision_at_1"][0]
    assert results["gain"][1] > 0.3
    assert_allclose(results["gain_at_1"][1], share_right - 1, atol=0.02)


def test_one_fold_stops_at_a_perfect_candidate_and_skips_hopeless_ones():
    y = np.repeat(np.arange(10), 300)
    seen = []

    def path(train, rng):
        for candidate, encoder in noisy_path(noises)(train, rng):
            seen.append(candidate)
            yield candidate, encoder

    noises = [0.45, 0.9, 0.4, 0.01, 0.3]
    choice = choose_among(path, y, "samples")
    assert choice.candidate == Candidate(0.01)
    assert seen[-1] == choice.candidate
    judged = choice.attributes["holdout_results_"]["candidates"]
    assert judged == [START, Candidate(0.45), Candidate(0.4), Candidate(0.01)]


def test_a_loss_at_rank_1_shows_although_a_fold_holds_out_two_classes():
    # The start finds near duplicates. The candidate takes two of the classes for one.
    y = np.repeat(np.arange(10), 10)
    X = (y + np.tile(np.arange(10) // 2, 10) / 10)[:, None]

    def path(train, rng):
        yield START, Given(lambda q, d: (q[:, None] == d).astype(float))
        yield (
            Candidate(0),
            Given(lambda q, d: (q[:, None] // 1 % 5 == d // 1 % 5) * 1.0),
        )

    rng = np.random.default_rng(0)
    choice = choose(path, X, check_relevance(y), "objects", rng, keep_on)
    assert choice.candidate is START
    results = choice.attributes["holdout_results_"]
    assert results["gain"][1] > 0.2
    assert results["precision_at_1"][1] > 0.8
    assert_allclose(results["gain_at_1"][1], -0.53, atol=0.05)


def test_candidates_that_a_fold_lacks_are_skipped():
    y = np.repeat(np.arange(20), 10)
    n_calls = 0

    def path(train, rng):
        nonlocal n_calls
        n_calls += 1
        noises = [0.8, 0.1] if n_calls == 1 else [0.8]
        yield from noisy_path(noises)(train, rng)

    assert choose_among(path, y).candidate == Candidate(0.8)


def test_a_race_drops_the_worse_half_after_each_fold(monkeypatch):
    y = np.repeat(np.arange(20), 30)
    judged = []
    record = Judge.record

    def note(self, candidate, encoder):
        record(self, candidate, encoder)
        judged.append((len(self.measures), candidate))

    monkeypatch.setattr(Judge, "record", note)
    noises = [0.1 * n for n in range(20, 0, -1)]

    def path(train, rng, dropped):
        told.append(dropped.copy())
        yield from noisy_path(noises)(train, rng)

    told = []
    choice = choose_among(path, y, race=True)
    assert choice.candidate == Candidate(noises[-1])
    n_judged = np.bincount([fold for fold, _ in judged])[1:]
    assert_array_equal(n_judged, [21, 11, 6, 5, 5])
    last = {candidate for fold, candidate in judged if fold == 5}
    assert last == {START, *map(Candidate, noises[-4:])}
    assert set(choice.attributes["holdout_results_"]["candidates"]) == last
    assert [len(dropped) for dropped in told] == [0, 10, 15, 16, 16]
    assert told[-1] == {*map(Candidate, noises[:-4])}
    # Without a race, all are judged in all folds.
    judged.clear()
    choose_among(noisy_path(noises), y)
    assert_array_equal(np.bincount([fold for fold, _ in judged])[1:], [21] * 5)


def test_few_rows_are_judged_if_asked_for(monkeypatch):
    judged = []
    monkeypatch.setattr(Judge, "open", lambda self, fold: judged.append(fold))
    choose_among(lambda train, rng: [], np.repeat(np.arange(20), 30), max_rows=50)
    assert [len(fold.items) for fold in judged] == [50] * 5


def test_a_callback_can_stop_it():
    seen = []

    def stop_at_once(name, describe=None):
        seen.append(name)
        return True

    y = np.repeat(np.arange(20), 10)
    choice = choose_among(noisy_path([0.5]), y, advance=stop_at_once)
    assert seen == ["hold-out"]
    assert choice.candidate is START


def test_the_same_seed_makes_the_same_folds():
    y = np.repeat(np.arange(15), 7)
    first, second = folds(y, "objects"), folds(y, "objects")
    for (_, one), (_, two) in zip(first, second, strict=True):
        assert_array_equal(one, two)
    assert any(
        not np.array_equal(one, two)
        for (_, one), (_, two) in zip(first, folds(y, "objects", 1), strict=True)
    )


def test_a_good_fit_does_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folds(np.repeat(np.arange(10), 5), "objects")
        folds(np.repeat(np.arange(3), 9), "samples")
    assert _folds.MIN_CLASSES == 10


@pytest.mark.parametrize(
    ("learner", "parameter", "values"),
    [
        (OASIS(), "C", [0.01, 0.1]),
        (AngularBilinearRanker(), "C", [0.1, 1.0]),
        (SparseMahalanobisLearner(max_iter=5), "margin", [0.1, 0.5]),
        (HistogramRankSVM(max_iter=5, tol=0.1), "alpha", [0.1, 1.0]),
        (TwoCovarianceSimilarity(), "shrinkage", [0.1, 0.9]),
        (ClassPosteriorSimilarity(), "n_landmarks", [5, 30]),
    ],
    ids=["OASIS", "Angular", "Mahalanobis", "Histogram", "TwoCovariance", "Posterior"],
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_search_changes_scores_or_fits_warn(learner, parameter, values):
    X, y = load_digits(return_X_y=True)
    X, y = X[:300], y[:300]
    learner = learner.set_params(random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", StartKeptWarning)
        search = GridSearchCV(learner, {parameter: values}, cv=2).fit(X, y)
    scores = search.cv_results_["mean_test_score"]
    kept = [w for w in caught if w.category is StartKeptWarning]
    assert len(set(scores)) == len(values) or kept
    for warning in kept:
        unused = re.search(r"So (.*) have no effect", str(warning.message)).group(1)
        assert parameter in unused.split(", ")
        assert 'Pass holdout="samples"' in str(warning.message)


def test_a_fold_draws_the_same_numbers_whatever_the_others_draw():
    y = np.repeat(np.arange(12), 5)

    def draw_in_folds(n_of_first):
        drawn = []

        def path(train, rng):
            drawn.append(rng.random(n_of_first if not drawn else 1)[-1])
            yield START, Given(lambda q, d: -abs(q[:, None] - d))

        choose_among(path, y)
        return drawn[1:]

    assert draw_in_folds(1) == draw_in_folds(7)


# -- judged queries --


def judge_of(quality, n_folds):
    """Return a judge of queries with given measures: candidates by queries."""
    n = quality.shape[1]
    relevance = JudgedRelevance.of(sparse.csr_array(np.eye(n)))
    judge = Judge(np.empty((2 * n, 0)), relevance, by_class=False)
    zeros = np.zeros(n)
    for rows in np.array_split(np.arange(n), n_folds):
        measures = [Measures(q[rows], *3 * [zeros[rows]]) for q in quality]
        judge.measures.append(dict(zip([START, *range(1, 99)], measures, strict=False)))
        judge.classes.append(rows)
    return judge


def test_the_published_gain_is_that_of_queries_that_did_not_choose():
    # Candidates differ from the start only by noise, so the best one is best by chance.
    rng = np.random.default_rng(0)
    quality = 0.5 + 0.2 * rng.standard_normal((30, 100))
    attributes = judge_of(quality, 5).choose(caution=0, loss_at_1=0).attributes
    results = attributes["holdout_results_"]
    gains = []
    for rows in np.array_split(np.arange(100), 5):
        others = np.setdiff1d(np.arange(100), rows)
        means = quality[:, others].mean(axis=1)
        gains.extend(quality[np.argmax(means), rows] - quality[0, rows])
    assert attributes["holdout_gain_"] == pytest.approx(np.mean(gains))
    crossed = 1.1 * np.std(gains, ddof=1) / 10  # larger by a tenth for 100 queries
    error = max(crossed, results["error"][results["best_index"]])
    assert attributes["holdout_error_"] == pytest.approx(error)
    lucky = results["gain"][results["best_index"]]
    assert lucky == results["gain"].max() > attributes["holdout_gain_"]


@pytest.mark.parametrize("n", [20, 40])
def test_the_gain_on_new_queries_is_within_two_errors(n):
    # All candidates have a mean gain of 0.03; single queries gain or lose more.
    rng = np.random.default_rng(0)
    is_within = []
    while len(is_within) < 200:
        gains = 0.03 + 0.1 * rng.standard_t(5, size=(4, n))
        quality = np.concatenate([np.zeros((1, n)), gains])
        choice = judge_of(quality, 5).choose()
        if choice.candidate is not START:
            found = choice.attributes
            difference = abs(found["holdout_gain_"] - 0.03)
            is_within.append(difference <= 2 * found["holdout_error_"])
    assert np.mean(is_within) >= 0.9


def test_the_error_is_at_least_that_of_the_chosen_candidate():
    gains = 0.05 + np.tile([1.0, -1.0], 25)
    gains[:10] += 1
    judge = judge_of(np.stack([np.zeros(50), gains]), 5)
    # Without the first fold the start is chosen, so the gain on this fold is 0.
    assert judge.choose_by_others() == [START, 1, 1, 1, 1]
    choice = judge.choose()
    assert choice.candidate == 1
    error = 1.2 * gains.std(ddof=1) / np.sqrt(50)
    assert choice.attributes["holdout_error_"] == pytest.approx(error)
    gains[:10] = 0
    assert choice.attributes["holdout_gain_"] == pytest.approx(gains.mean())
    assert 1.2 * gains.std(ddof=1) / np.sqrt(50) < error


def test_a_known_choice_takes_no_folds():
    def path(train, rng):
        raise AssertionError

    y = np.repeat(np.arange(20), 10)
    with settle(Candidate(0.5)):
        choice = choose_among(path, y)
    assert choice == (Candidate(0.5), {})
    assert choose_among(noisy_path([2.0]), y).candidate is START


def test_few_queries_require_a_larger_gain():
    # The mean gain is 1.3 standard errors.
    for n, is_taken in ((20, False), (200, True)):
        gains = np.tile([1.0, -1.0], n // 2)
        gains += 1.3 * gains.std(ddof=1) / np.sqrt(n)
        quality = np.stack([np.zeros(n), gains])
        choice = judge_of(quality, 5).choose()
        assert (choice.candidate is not START) == is_taken


def test_the_best_of_several_starts_is_left_for_a_sure_gain_only():
    noise = np.tile([1.0, -1.0], 50)
    quality = np.repeat([[0.0], [0.3], [0.2], [0.31], [0.1]], 100, axis=1)
    quality[3] += 0.2 * noise  # better than the best start by half of its error
    quality[4] += 0.2 * noise
    judge = judge_of(quality, 5)
    choice = judge.choose([START, 1, 2], baselines=[START, 2])
    assert choice.candidate == 1
    assert choice.attributes["holdout_gain_"] == pytest.approx(0.1)
    assert_allclose(choice.attributes["holdout_results_"]["gain"][[0, 1]], [-0.2, 0.1])
    assert judge.choose([START, 2]).candidate == 1
    quality[3] += 0.05
    assert judge_of(quality, 5).choose([START, 1, 2]).candidate == 3


def test_a_fold_does_not_take_part_in_the_choice_for_it():
    rng = np.random.default_rng(0)
    quality = np.concatenate([np.zeros((1, 100)), 0.2 * rng.standard_normal((6, 100))])
    quality[1:] += 0.05
    chosen = judge_of(quality, 5).choose_by_others()
    assert len(set(chosen)) > 1
    for i in range(5):
        changed = quality.copy()
        changed[1:, 20 * i : 20 * (i + 1)] = rng.standard_normal((6, 20))
        assert judge_of(changed, 5).choose_by_others()[i] == chosen[i]


def test_learners_use_shared_folds_of_the_same_samples():
    y = np.repeat(np.arange(20), 10)
    relevance = check_relevance(y)
    folds = make_folds(relevance, "objects", np.random.default_rng(3))[:2]
    shared = SharedFolds("objects", relevance, folds)
    trained = []

    def path(train, rng):
        trained.append(train)
        yield from noisy_path([2.0])(train, rng)

    with shared.lend():
        choose_among(path, y)
        assert len(shared.candidates) == 2
        assert [len(rows) for rows in trained] == [len(fold.train) for fold in folds]
    for other in (y[:-10], y):  # other samples, and after the folds were lent
        trained.clear()
        with shared.lend() if len(other) < len(y) else nullcontext():
            choose_among(path, other)
        assert len(trained) > 2
    assert shared.candidates == []
