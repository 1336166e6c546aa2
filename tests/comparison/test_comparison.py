"""The comparison itself: tasks, rows, the table, notes on failures."""

import numpy as np
import pytest
from scipy import sparse, stats
from sklearn.model_selection import GridSearchCV

from sklearn_simlearn._core.statistics import allow_for_several, say_p
from sklearn_simlearn.comparison import _rows
from sklearn_simlearn.comparison._advice import advise
from sklearn_simlearn.comparison._comparison import compare, describe_error, find_units
from sklearn_simlearn.comparison._rows import ROWS, Row
from sklearn_simlearn.comparison._task import make_task
from sklearn_simlearn.comparison._wording import (
    WIDTH,
    align,
    list_choices,
    list_start_kept,
)
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.report._findings import Findings
from sklearn_simlearn.similarities import CosineSimilarity


def silence(name, step=""):
    pass


def pick(*names):
    """Return the rows of these names."""
    return [row for row in ROWS if row.name in names]


@pytest.fixture(scope="module")
def task(words):
    return make_task(*words, None, "samples", 3)


# -- tasks and rows --


@pytest.mark.parametrize("split", ["samples", "objects"])
def test_learners_hold_out_the_same_as_the_split(split, words):
    task = make_task(*words, None, split, 3)
    params = [row.make(task).get_params() for row in ROWS if not row.is_baseline]
    assert all(p.get("holdout", split) == split for p in params)
    assert all(p.get("random_state", 3) == 3 for p in params)
    assert sum("holdout" in p for p in params) == 6


def test_distractors_are_not_a_class_of_the_baselines(words):
    X, y = words
    y = np.where(y == 0, -1, y)
    task = make_task(X, y, None, "samples", 0)
    [result] = compare(task, pick("logistic posteriors"), silence).results
    assert result.measured.estimator[-1].chosen_.classes_.tolist() == list(range(9))


def test_wide_data_is_reduced(rng):
    y = np.repeat(np.arange(8), 8)
    X = sparse.csr_array(rng.poisson(0.02 + 0.1 * (rng.random((8, 1200)) < 0.05)[y]))
    task = make_task(X.astype(float), y, None, "samples", 0)
    rows = [row for row in ROWS if row.is_baseline]
    found = compare(task, rows, silence)
    assert found.left_out == {}
    closed_forms = [row for row in rows if row.missing(task) == "new classes"]
    assert len(closed_forms) == 5
    assert len(found.results) == len(rows) - len(closed_forms)


def test_closed_forms_are_baselines_for_new_classes(rng):
    y = np.repeat(np.arange(20), 10)
    # Nearly parallel rows, like those of pictures: all cosines are close to 1.
    noise = rng.standard_normal((200, 30)) * np.linspace(3, 0.1, 30)
    X = 50 + rng.standard_normal((20, 30))[y] + noise
    task = make_task(X, y, None, "objects", 0)
    names = "cosine", "cosine, centred", "cosine, whitened", "RCA", "PLDA 0.1"
    found = compare(task, pick(*names, "LDA", "logistic posteriors"), silence)
    assert found.left_out == {}
    scores = {r.row.name: r.mean_average_precision for r in found.results}
    for name in ("RCA", "PLDA 0.1"):
        assert scores[name] > scores["cosine"] + 0.02


def test_a_kept_start_is_listed(rng):
    y = np.repeat(np.arange(24), 6)
    X = rng.standard_normal((144, 24))
    X[np.arange(144), y] += 3  # what is learned does not carry over to other classes
    task = make_task(X, y, None, "objects", 0)
    found = compare(task, pick("OASIS", "cosine"), silence)
    assert found.start_kept == ["OASIS"]
    assert list_start_kept(found) == "kept the similarity that they start from: OASIS"
    assert found.warnings == {}  # the choices of the hold-outs show the reason
    [choice] = list_choices(found)
    assert choice.startswith("OASIS: start kept (best candidate: gain ")


def test_rows_that_cost_too_much_are_left_out(task, monkeypatch):
    monkeypatch.setattr(_rows, "MAX_NCA", 10)
    monkeypatch.setattr(_rows, "MAX_LOGISTIC", 10)
    rows = pick("logistic posteriors", "NCA")
    assert compare(task, rows, silence).left_out == {
        "logistic posteriors": "needs fewer samples or classes",
        "NCA": "needs at most 2000 samples",
    }


def test_objects_are_held_out_with_their_queries(words):
    X, y = words
    matrix = sparse.csr_array((y[:, None] == np.arange(10)).astype(float))
    query_mask = np.zeros(120, dtype=bool)
    query_mask[np.argsort(y, kind="stable").reshape(10, 12)[:, :3]] = True
    task = make_task(X, matrix, query_mask, "objects", 0)
    assert task.X_test.shape[0] == 60
    assert np.count_nonzero(task.query_mask) == 15


def test_sets_are_whole_and_of_one_class(words):
    X, y = words
    y = np.where(y == 3, 100 + np.arange(120) // 4, y)  # some small classes
    task = make_task(X, y, None, "samples", 0)
    sets = task.sets[task.sets >= 0]
    assert set(np.unique(sets, return_counts=True)[1]) == {5}
    for number in np.unique(sets):
        assert len(np.unique(task.y_test[task.sets == number])) == 1


# -- the table --


def test_gains_and_p_values_are_those_of_paired_queries(task, leading):
    widths = {"best": 200, "narrow": 180, "narrower": 150, "the same": 200}
    rows = [
        Row(name, lambda task, n=n: leading(n), is_baseline=name == "best")
        for name, n in widths.items()
    ]
    table = compare(task, rows, silence).tabulate(task)
    precision = {
        name: retrieval_report(leading(n), task.X_test, task.y_test).average_precision
        for name, n in widths.items()
    }
    differences = [precision[name] - precision["best"] for name in widths]
    assert [line[4] for line in table] == [f"{d.mean():+.3f}" for d in differences]
    raw = [stats.wilcoxon(d).pvalue for d in differences[1:3]]
    corrected = allow_for_several([*raw, 1.0])
    assert raw[0] < corrected[0] < 1
    assert corrected[1] < 1e-4
    assert [line[5] for line in table] == ["", f"{corrected[0]:.2g}", "<0.0001", "1"]


@pytest.mark.parametrize("split", ["samples", "objects"])
def test_table_advice_and_report_have_the_same_p_value(split, words, leading):
    task = make_task(*words, None, split, 3)
    widths = {"plain": 180, "other": 150, "wide": 200, "narrow": 100}
    rows = [
        Row(name, lambda task, n=n: leading(n), is_baseline=name in ("plain", "other"))
        for name, n in widths.items()
    ]
    comparison = compare(task, rows, silence)
    difference = advise(comparison, task).difference
    assert 0 < difference.p < 1
    assert difference.n_tests == 2
    assert difference.n_units == (5 if split == "objects" else 60)
    findings = Findings(
        {result.row.name: result.measured for result in comparison.results},
        task.X_test,
        task.y_test,
        baselines=("plain", "other"),
        units=find_units(task, comparison.results[0]),
    )
    p_values = {line["similarity"]: line["p"] for line in findings.table}
    assert p_values["wide"] == difference.p
    assert p_values["plain"] is p_values["other"] is None
    columns = [line[5] for line in comparison.tabulate(task)]
    assert columns[:3] == ["", "", f"{difference.p:.2g}"]
    assert columns[3] == say_p(p_values["narrow"]).removeprefix("= ").replace(" ", "")


@pytest.mark.parametrize(("seconds", "gap"), [("0.01", "  "), ("1234567890.12", " ")])
def test_tables_fit_a_terminal(seconds, gap):
    columns = ("similarity", *["number"] * 5, "fit s", "query us")
    lines = [("logistic posteriors", *["-0.123"] * 5, seconds, "123456")]
    head, units, line = align(columns, lines).splitlines()
    assert len(line) <= WIDTH
    assert head.startswith("similarity ")
    assert units.split() == ["s", "us"]
    assert len(units) == len(line)
    assert line.endswith(f"{seconds}{gap}123456")
    assert f"-0.123{gap}-0.123" in line


# -- progress --


def test_progress_names_the_steps_of_a_fit(task):
    shown = []
    name = "class posteriors"
    [result] = compare(task, pick(name), lambda *args: shown.append(args)).results
    assert shown[0] == (name,)
    assert shown[1] == (name, "hold-out: candidate 1")
    assert shown[-1] == (name, "measuring on the held-out samples")
    estimator = result.measured.estimator
    assert not hasattr(
        estimator, "_skl_callbacks"
    )  # callbacks are removed after the fit


def test_progress_counts_each_kind_of_step(task):
    shown = []
    compare(task, pick("OASIS"), lambda *args: shown.append(args))
    steps = [step for _, step in shown[1:]]
    assert "hold-out: candidate 2" in steps
    assert "learning: block 1 of triplets" in steps


# -- notes --


class Refusing(CosineSimilarity):
    """Raise from a fit."""

    def fit(self, X, y=None):
        raise ValueError("one\nof two lines")


def fail_in_search():
    search = GridSearchCV(Refusing(), {"use_idf": [True, False]}, cv=2)
    return search.fit(np.eye(8), np.arange(8) % 2)


def test_notes_do_not_quote_tracebacks():
    with pytest.raises(ValueError, match="Traceback") as caught:
        fail_in_search()
    assert describe_error(caught.value) == "ValueError: one"
    assert describe_error(MemoryError()) == "MemoryError"
    assert describe_error(OSError("no\n space")) == "OSError: no space"
    assert len(describe_error(TypeError("word " * 1000))) < 320
