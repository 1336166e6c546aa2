"""Advice on given measurements, its wording, and the lines of Python."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn.comparison._advice import advise
from sklearn_simlearn.comparison._comparison import Comparison, Result, compare
from sklearn_simlearn.comparison._recipe import _break_lines, _write, write_lines
from sklearn_simlearn.comparison._rows import ROWS, Row
from sklearn_simlearn.comparison._task import make_task
from sklearn_simlearn.comparison._wording import explain
from sklearn_simlearn.compose import SimilarityUnion
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.report._measurement import Measured
from sklearn_simlearn.similarities import CosineSimilarity


def plant(name, precision, *, at_1=None, fit=1.0, query=1e-4, **kind):
    """Return a result with the given average precision of each query."""
    precision = np.asarray(precision, dtype=float)
    report = Bunch(
        query=np.arange(len(precision)),
        average_precision=precision,
        precision_at_1=precision if at_1 is None else np.full(len(precision), at_1),
    )
    row = Row(name, lambda task: None, **kind)
    return Result(row, Measured(CosineSimilarity(), report, fit, query))


def decide(results, n_objects=None):
    """Return the decision and its text."""
    n_queries = len(results[0].measured.report.query)
    y = (
        np.arange(n_queries) % 10
        if n_objects is None
        else np.arange(n_queries) % n_objects
    )
    split = "samples" if n_objects is None else "objects"
    task = Bunch(split=split, y_test=y)
    advice = advise(Comparison(results), task)
    return advice, " ".join(explain(advice))


@pytest.fixture
def base(rng):
    return 0.5 + 0.1 * rng.random(100)


def test_significant_gain(base, rng):
    learned = base + 0.05 + 0.02 * rng.standard_normal(100)
    results = [
        plant("cosine", base - 0.1, is_baseline=True),
        plant("LDA", base, is_baseline=True),
        plant("learned", learned),
    ]
    advice, words = decide(results)
    assert advice.chosen is advice.best is results[2]
    assert advice.baseline is results[1]
    d = advice.difference
    wins = np.count_nonzero(learned > base)
    assert (d.unit, d.n_units, d.n_tests) == ("queries", 100, 1)
    assert (d.wins, d.losses) == (wins, 100 - wins)
    assert d.gain.value == pytest.approx((learned - base).mean())
    assert (d.best, d.baseline) == pytest.approx((learned.mean(), base.mean()))
    assert d.is_gain
    assert words.startswith(
        f"Use learned. Its mAP is {d.best:.3f}, compared with {d.baseline:.3f} for LDA"
        f", the best baseline. The gain of learned is {d.gain.value:+.3f} (95% "
        f"interval {d.gain.low:+.3f} to {d.gain.high:+.3f}): {wins} queries rank better"
        f", {100 - wins} rank worse. The difference is significant (p < 0.0001, "
        "signed-rank test over 100 queries)."
    )
    assert "To measure on new classes, use --split objects." in words


def test_significant_loss(base, rng):
    learned = base - 0.05 + 0.02 * rng.standard_normal(100)
    results = [plant("LDA", base, is_baseline=True), plant("learned", learned)]
    advice, words = decide(results)
    assert advice.chosen is results[0]
    assert advice.difference.is_loss
    assert words.startswith("Use LDA, the best baseline. Its mAP is ")
    assert "for learned, the best similarity of this package." in words
    assert "The gain of learned is -0.0" in words
    assert "The difference is significant" in words


def test_chance(base, rng):
    noise = rng.standard_normal(100)
    learned = base + 0.03 * (noise - noise.mean()) + 0.001
    advice, words = decide(
        [plant("cosine", base, is_baseline=True), plant("learned", learned)]
    )
    assert advice.chosen.row.name == "cosine"
    assert not advice.difference.is_gain
    assert "The gain of learned is +0.001 " in words
    assert "The difference is not significant (p = " in words


def test_one_of_many_tests_is_significant_by_chance(base):
    """The same similarity is advised if it is the only one."""
    rng = np.random.default_rng(25)
    tries = [
        plant(f"learned {i}", base + 0.05 * rng.standard_normal(100)) for i in range(20)
    ]
    best = max(tries, key=lambda result: result.mean_average_precision)
    baseline = plant("cosine", base, is_baseline=True)
    assert decide([baseline, best])[0].chosen is best
    advice, words = decide([baseline, *tries])
    assert advice.chosen is baseline
    assert "corrected for 20 tests" in words


def test_large_gains_of_few_queries(base):
    learned = base - 0.01
    learned[:20] += 0.3
    advice, words = decide(
        [plant("cosine", base, is_baseline=True), plant("learned", learned)]
    )
    assert learned.mean() > base.mean()
    assert advice.chosen.row.name == "cosine"
    assert "20 queries rank better, 80 rank worse" in words
    assert "The mean depends on few queries (p = 0.0" in words


def test_queries_of_one_new_object_count_as_one(base, rng):
    """All gains come from two of twenty objects."""
    learned = base + 1e-4 * rng.standard_normal(100)
    learned[np.arange(100) % 20 < 2] += 0.4
    results = [plant("cosine", base, is_baseline=True), plant("learned", learned)]
    advice, words = decide(results, n_objects=20)
    assert advice.chosen is results[0]
    assert (advice.difference.unit, advice.difference.n_units) == ("objects", 20)
    assert advice.difference.gain.value == pytest.approx(0.04, abs=1e-3)
    assert "Its mAP (averaged over objects) is " in words
    assert "signed-rank test over 20 objects" in words
    assert "With 20 objects, these results are uncertain" in words
    assert "To measure on known classes, use --split samples." in words
    everywhere = plant("learned", base + 0.05)
    assert decide([results[0], everywhere], n_objects=20)[0].chosen is everywhere


def test_remarks(base, rng):
    noise = 1e-4 * rng.standard_normal(100)
    # `light` is not significantly worse than `learned`. Nor is `lighter`, but its loss
    # is large.
    chance = 3000 * (noise - noise.mean())
    results = [
        plant("cosine", base, is_baseline=True, at_1=0.9),
        plant("learned", base + 0.1 + 1e-5, at_1=0.8, fit=10.0, query=1e-3),
        plant(
            "light", base + 0.1 + noise - noise.mean(), at_1=0.7, fit=0.1, query=2e-4
        ),
        plant("lighter", base + 0.08 + chance, query=1e-6),
        plant("5 together", np.full(30, 0.95), in_sets=True),
    ]
    advice, words = decide(results)
    assert advice.chosen is results[1]
    assert advice.better_at_1 is results[0]
    assert [f.name for f in advice.faster] == ["light", "light"]
    assert advice.in_sets is results[4]
    assert "consider cosine: its P@1 is 0.900, compared with 0.800" in words
    assert "light answers 5 times faster and light is fitted 100 times faster" in words
    assert "5 together reaches a mAP of 0.950 over 30 sets." in words
    results[4] = plant("5 together", np.full(29, 0.95), in_sets=True)
    assert decide(results)[0].in_sets is None
    few = [
        plant(r.row.name, r.measured.report.average_precision[:12], is_baseline=i == 0)
        for i, r in enumerate(results[:2])
    ]
    assert "With 12 queries, these results are uncertain" in decide(few)[1]


def test_queries_without_relevant_items(base):
    base[3] = np.nan
    results = [plant("cosine", base, is_baseline=True), plant("learned", base + 0.1)]
    advice, _ = decide(results)
    assert advice.chosen is results[1]
    assert advice.difference.n_units == 99


def test_nothing_to_compare_with(base):
    baseline, ours = plant("cosine", base, is_baseline=True), plant("learned", base)
    for result in (baseline, ours):
        advice, words = decide([result])
        assert advice.chosen is result
        assert "There is no other similarity to compare it with." in words
    sets = [plant("5 together", base, in_sets=True)]
    assert advise(Comparison(sets), Bunch(split="samples")) is None


@pytest.mark.parametrize("seconds", [1e-9, 1.0])
def test_slow_queries_are_compared_with_few_landmarks(seconds):
    X, y = load_digits(return_X_y=True)
    task = make_task(X, y, None, "samples", 0)
    rows = [row for row in ROWS if row.name in ("cosine", "class posteriors")]
    comparison = compare(task, rows, lambda *_: None)
    comparison.results[1].measured.query_seconds = seconds
    advice = advise(comparison, task)
    words = " ".join(explain(advice))
    if seconds < 1:
        assert advice.compact is None
        assert "A query of class posteriors" not in words
    else:
        assert advice.compact.measured.estimator.n_landmarks == 200
        score = advice.compact.mean_average_precision
        assert 0.95 < score < advice.chosen.mean_average_precision + 0.01
        assert "With n_landmarks=200, it takes" in words
        assert f"the mAP is {score:.3f}." in words


# -- lines --

NAMES = (
    "cosine",
    "LDA",
    "logistic posteriors",
    "logistic product",
    "NCA",
    "burstiness",
    "class posteriors",
)


@pytest.mark.parametrize("is_sparse", [True, False])
def test_lines_run(is_sparse):
    X, y = make_visual_words(8, 8, n_words=60, return_X_y=True, random_state=0)
    X = X if is_sparse else X.toarray()
    task = make_task(X, y, None, "samples", 0)
    rows = [row for row in ROWS if row.name in NAMES]
    results = compare(task, rows, lambda *args: None).results
    assert len(results) == len(NAMES)
    for result in results:
        lines = write_lines(result, task, ["from data import X, y"])
        names = {"X": X, "y": y}
        exec("\n".join(lines).replace("from data import X, y\n", ""), names)
        check_is_fitted(names["model"])
        fitted = result.measured.estimator
        if hasattr(fitted, "similarity"):
            assert repr(clone(names["model"])) == repr(clone(fitted))
            continue
        # Fitted on the same samples, it gives the same encodings.
        model = names["model"].fit(task.X_train, task.y_train)
        is_classifier = "predict_proba" in lines[-1]
        transform = model.predict_proba if is_classifier else model.transform
        found, expected = transform(task.X_test), fitted.transform(task.X_test)
        np.testing.assert_allclose(np.abs(found), np.abs(expected), atol=1e-6)
        assert ("inner product" in lines[-1]) == (result.row.name == "logistic product")


def test_distractors_are_left_out_of_the_lines_of_a_classifier():
    X, y = make_visual_words(8, 8, n_words=60, return_X_y=True, random_state=0)
    y = np.where(y == 0, -1, y)
    task = make_task(X, y, None, "samples", 0)
    for name, is_baseline in [("LDA", True), ("class posteriors", False)]:
        rows = [row for row in ROWS if row.name == name]
        [result] = compare(task, rows, lambda *args: None).results
        lines = write_lines(result, task, [])
        names = {"X": X, "y": y}
        exec("\n".join(lines), names)
        assert (len(names["y"]) == 56) == is_baseline


def test_long_lines_of_code_are_broken():
    words = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    union = SimilarityUnion([("letters", words, "text"), ("v", "passthrough", [1])])
    imports, expression = _write(union, is_sparse=True)
    assert max(map(len, expression.splitlines())) > 76
    lines = _break_lines(f"model = {expression}")
    assert max(map(len, lines)) <= 76
    names = {}
    exec("\n".join([*imports, *lines]), names)
    assert repr(names["model"]) == repr(union)
