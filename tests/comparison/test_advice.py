"""Advice on planted cases, and lines that run."""

import numpy as np
import pytest
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn.comparison import _advice
from sklearn_simlearn.comparison._comparison import (
    ROWS,
    Comparison,
    Result,
    Row,
    compare,
    make_task,
)
from sklearn_simlearn.datasets import make_visual_words
from sklearn_simlearn.report._measurement import Measured
from sklearn_simlearn.similarities import CosineSimilarity


def plant(name, precision, *, at_1=None, fit=1.0, query=1e-4, **kind):
    """A result with the average precision of each query as given."""
    precision = np.asarray(precision, dtype=float)
    report = Bunch(
        query=np.arange(len(precision)),
        average_precision=precision,
        precision_at_1=precision if at_1 is None else np.full(len(precision), at_1),
    )
    row = Row(name, lambda task: None, **kind)
    return Result(row, Measured(CosineSimilarity(), report, fit, query))


def advise(results, n_objects=None):
    """The name to take, and the text."""
    n_queries = len(results[0].measured.report.query)
    y = (
        np.arange(n_queries) % 10
        if n_objects is None
        else np.arange(n_queries) % n_objects
    )
    split = "samples" if n_objects is None else "objects"
    task = Bunch(split=split, y_test=y)
    chosen, words = _advice.choose(Comparison(results), task)
    return chosen.row.name, " ".join(words)


@pytest.fixture
def base(rng):
    return 0.5 + 0.1 * rng.random(100)


def test_surely_ahead(base, rng):
    learned = base + 0.05 + 0.02 * rng.standard_normal(100)
    results = [
        plant("cosine", base - 0.1, is_rival=True),
        plant("LDA", base, is_rival=True),
        plant("learned", learned),
    ]
    name, words = advise(results)
    assert name == "learned"
    gain = (learned - base).mean()
    assert f"ahead of LDA, the best row without this package, by {gain:.3f}" in words
    wins = np.count_nonzero(learned > base)
    assert f"better for {wins} queries, worse for {100 - wins}" in words
    assert "p < 0.0001 by a signed-rank test over 100 queries" in words
    assert "allowance" not in words  # one was tried
    assert "--split objects measures for new ones" in words


def test_surely_behind(base, rng):
    learned = base - 0.05 + 0.02 * rng.standard_normal(100)
    name, words = advise([plant("LDA", base, is_rival=True), plant("learned", learned)])
    assert name == "LDA"
    assert "The best of this package, learned, is behind it by 0.0" in words
    assert "hardly chance" in words


def test_chance(base, rng):
    noise = rng.standard_normal(100)
    learned = base + 0.03 * (noise - noise.mean()) + 0.001
    name, words = advise(
        [plant("cosine", base, is_rival=True), plant("learned", learned)]
    )
    assert name == "cosine"
    assert "learned, is ahead of it by 0.001" in words
    assert "which may be chance" in words


def test_one_of_many_tries_is_ahead_by_luck(base):
    """What would pass for sure, had it been the only one."""
    rng = np.random.default_rng(25)
    tries = [
        plant(f"learned {i}", base + 0.05 * rng.standard_normal(100)) for i in range(20)
    ]
    best = max(tries, key=lambda result: result.mean_average_precision)
    rival = plant("cosine", base, is_rival=True)
    assert advise([rival, best])[0] == best.row.name
    name, words = advise([rival, *tries])
    assert name == "cosine"
    assert "with an allowance for 20 tries" in words


def test_much_on_few_queries_and_little_lost_on_most(base):
    learned = base - 0.01
    learned[:20] += 0.3
    name, words = advise(
        [plant("cosine", base, is_rival=True), plant("learned", learned)]
    )
    assert learned.mean() > base.mean()
    assert name == "cosine"
    assert "better for 20 queries, worse for 80" in words
    assert "which is due to few queries: p = 0.0" in words


def test_queries_of_one_new_object_count_as_one(base, rng):
    """All gains come from two of twenty objects."""
    learned = base + 1e-4 * rng.standard_normal(100)
    learned[np.arange(100) % 20 < 2] += 0.4
    results = [plant("cosine", base, is_rival=True), plant("learned", learned)]
    name, words = advise(results, n_objects=20)
    assert name == "cosine"
    assert "signed-rank test over 20 objects" in words
    assert "With 20 objects all this is in doubt" in words
    assert "--split samples measures for classes" in words
    assert "by 0.040 in mAP, over objects, " in words
    everywhere = plant("learned", base + 0.05)
    assert advise([results[0], everywhere], n_objects=20)[0] == "learned"


def test_remarks(base, rng):
    noise = 1e-4 * rng.standard_normal(100)
    noise -= noise.mean()
    results = [
        plant("cosine", base, is_rival=True, at_1=0.9),
        plant("learned", base + 0.1, at_1=0.8, fit=10.0, query=1e-3),
        plant(
            "light", base + 0.1 + noise - noise.mean(), at_1=0.7, fit=0.1, query=2e-4
        ),
        plant("5 together", np.full(20, 0.95), in_sets=True),
    ]
    # `light` is a hair worse: by chance, of course.
    results[1].measured.report.average_precision += 1e-5
    name, words = advise(results)
    assert name == "learned"
    assert "look at cosine: its P@1 is 0.900, against 0.800" in words
    assert "light answers 5 times faster and light is fitted 100 times faster" in words
    assert "5 together reaches 0.950" in words
    few = [
        plant(r.row.name, r.measured.report.average_precision[:12], is_rival=i == 0)
        for i, r in enumerate(results[:2])
    ]
    assert "With 12 queries all this is in doubt" in advise(few)[1]


def test_queries_without_relevant_items(base):
    base[3] = np.nan
    results = [plant("cosine", base, is_rival=True), plant("learned", base + 0.1)]
    name, words = advise(results)
    assert name == "learned"
    assert "over 99 queries" in words


def test_nothing_to_compare_with(base):
    rival, ours = plant("cosine", base, is_rival=True), plant("learned", base)
    for results in ([rival], [ours]):
        name, words = advise(results)
        assert name == results[0].row.name
        assert "nothing to compare it with" in words
    sets = [plant("5 together", base, in_sets=True)]
    assert _advice.choose(Comparison(sets), Bunch(split="samples")) is None


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
        lines = _advice.write_lines(result, task, ["from data import X, y"])
        names = {"X": X, "y": y}
        exec("\n".join(lines).replace("from data import X, y\n", ""), names)
        check_is_fitted(names["model"])
        fitted = result.measured.estimator
        if hasattr(fitted, "similarity"):
            assert repr(names["model"]) == repr(fitted)
            continue
        # Fitted on the same samples, it does the same.
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
    for name, is_rival in [("LDA", True), ("class posteriors", False)]:
        rows = [row for row in ROWS if row.name == name]
        [result] = compare(task, rows, lambda *args: None).results
        lines = _advice.write_lines(result, task, [])
        names = {"X": X, "y": y}
        exec("\n".join(lines), names)
        assert (len(names["y"]) == 56) == is_rival
