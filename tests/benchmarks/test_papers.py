"""The frame of the papers' experiments: claims, verdicts, records, the page."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.papers.__main__ import PAPERS, print_missing  # noqa: E402
from benchmarks.papers._data import FILES  # noqa: E402
from benchmarks.papers._frame import (  # noqa: E402
    Claim,
    Experiment,
    Panel,
    Paper,
    Result,
    cells_of,
    claim_gain,
    measure,
    measure_scores,
    note_first_page,
    run_experiment,
    spread,
    verdict,
)
from benchmarks.papers._page import summarize, write_page  # noqa: E402
from benchmarks.papers._plot import read_curves  # noqa: E402
from sklearn_simlearn.similarities import CosineSimilarity  # noqa: E402


def make_paper(run, **options):
    experiment = Experiment("Table 1", "a table", "made-up data", run, **options)
    paper = Paper("some", "Someone: A Paper", "An", "An()", "the rest", [experiment])
    return paper, experiment


def one_claim(quick):
    return Result(["", "mAP"], [["ours", "0.5"]], [Claim("ahead", True, "0.5 to 0.4")])


def test_verdicts():
    held, failed = Claim("a", True, ""), Claim("b", False, "")
    assert verdict([held, held]) == "reproduced"
    assert verdict([held, failed]) == "partly"
    assert verdict([failed]) == "not reproduced"


def test_a_gain_must_exceed_its_error():
    assert claim_gain("", [0.50, 0.51, 0.52], [0.40, 0.41, 0.42]).holds
    assert not claim_gain("", [0.3, 0.6, 0.5], [0.4, 0.4, 0.4]).holds
    assert not claim_gain("", [0.4, 0.4], [0.5, 0.5]).holds
    assert claim_gain("", [0.5], [0.4]).evidence.endswith("over 1 run")
    assert claim_gain("", [0.5, 0.6], [0, 0], over="queries").evidence.endswith(
        "over 2 queries"
    )
    claim = claim_gain("", [0.52, 0.54], [0.50, 0.50], "P@1")
    assert "P@1 0.530 against 0.500, difference +0.030 ± 0.010" in claim.evidence


def test_a_gain_off_the_first_page_is_said():
    plain = [{"mAP": 0.4, "P@1": 0.9, "P@10": 0.8}]
    learned = [{"mAP": 0.5, "P@1": 0.8, "P@10": 0.8}]
    [note] = note_first_page("It", learned, plain)
    assert "gains 0.100 mAP but loses 0.100 P@1" in note
    assert note_first_page("It", plain, learned) == []


def test_spread():
    assert spread([0.5]) == "0.500"
    assert spread([0.4, 0.6], 2) == "0.50 ± 0.14"


def test_scores_are_measured_as_estimators_are():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 5)), np.arange(60) % 3
    model = CosineSimilarity(use_idf=False).fit(X)
    expected = measure(model, X, y)
    same = np.eye(60, dtype=bool)
    found = measure_scores((y[:, None] == y) & ~same, model.similarity(X), junk=same)
    assert found == pytest.approx(expected)
    assert cells_of([found, found])[0] == f"{found['mAP']:.3f} ± 0.000"


def test_a_record_is_kept_and_read_again(tmp_path):
    calls = []

    def run(quick):
        calls.append(quick)
        return Result(["a"], [["1"]], [Claim("c", np.bool_(True), "e")])

    paper, experiment = make_paper(run)
    options = {"quick": True, "again": False}
    first = run_experiment(paper, experiment, tmp_path, **options)
    assert run_experiment(paper, experiment, tmp_path, **options) == json.loads(
        json.dumps(first)
    )
    assert calls == [True]
    run_experiment(paper, experiment, tmp_path, quick=True, again=True)
    run_experiment(paper, experiment, tmp_path, quick=False, again=False)
    assert calls == [True, True, False]


def test_an_interrupted_run_leaves_no_record(tmp_path):
    def run(quick):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_experiment(*make_paper(run), tmp_path, quick=True, again=False)
    assert list(tmp_path.iterdir()) == []


def test_missing_data_is_named(tmp_path, monkeypatch):
    _, experiment = make_paper(one_claim, needs=("here.npz", "there.npz"))
    monkeypatch.delenv("SIMLEARN_DATA", raising=False)
    assert experiment.missing() == ["here.npz", "there.npz"]
    (tmp_path / "here.npz").touch()
    monkeypatch.setenv("SIMLEARN_DATA", str(tmp_path))
    assert experiment.missing() == ["there.npz"]


@pytest.mark.parametrize("name", PAPERS)
def test_every_data_file_has_a_source(name):
    paper = importlib.import_module(f"benchmarks.papers.{name}").PAPER
    names = [experiment.name for experiment in paper.experiments]
    assert len(set(names)) == len(names)  # they name the records
    for experiment in paper.experiments:
        assert set(experiment.needs) <= set(FILES)
        assert experiment.has_quick or experiment.needs


def test_missing_data_is_named_with_its_source(monkeypatch, capsys):
    monkeypatch.delenv("SIMLEARN_DATA", raising=False)
    print_missing(make_paper(one_claim, needs=("mnist.npz",))[1])
    printed = capsys.readouterr().out
    assert "SIMLEARN_DATA names (not set)" in printed
    assert "- mnist.npz: MNIST, from http" in printed


def test_curves_are_read_from_tables():
    header = ["loss", "1 passes", "2 passes"]
    rows = [["max", "0.1 ± 0.2", "3.1"], ["other", "", "2.5"]]
    curves = read_curves(header, rows, "rows")
    assert curves == {"max": [(1.0, 0.1), (2.0, 3.1)], "other": [(2.0, 2.5)]}
    header = ["", "published", "mAP", "fit s"]
    rows = [["cosine", "9", "0.3", "1"], ["1,000", "9", "0.4 ± 0.1", "2"]]
    assert read_curves(header, rows, "columns") == {"mAP": [(1000.0, 0.4)]}


def test_the_page_says_first_what_failed(tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("SIMLEARN_DATA", raising=False)

    def run(quick):
        claims = [Claim("it is ahead", False, "0.4 to 0.5")]
        panel = Panel("", "rank", "precision", {"ours": [(1, 0.5), (2, 0.25)]})
        return Result(
            ["", "mAP"],
            [["ours", "0.4"]],
            claims,
            ["A note."],
            ["another seed: 0.3"],
            [panel],
        )

    done = []
    for number, function in enumerate((one_claim, run)):
        paper, experiment = make_paper(function)
        experiment.name = f"Table {number + 1}"
        record = run_experiment(paper, experiment, tmp_path, quick=True, again=False)
        done.append((paper, experiment, record))
    absent = Experiment("Table 3", "more", "data", run, needs=("mnist.npz",))
    write_page(tmp_path / "page.rst", done, [(paper, absent)])
    page = (tmp_path / "page.rst").read_text()
    assert summarize(done) in page
    assert "1 are reproduced, 0 partly and 1 not" in summarize(done)
    assert page.index("not reproduced\n") < page.index("     - reproduced\n")
    failed = "- some, Table 2: it is ahead (0.4 to 0.5). Tried: another seed: 0.3."
    assert page.index(failed) < page.index("list-table")
    assert "A note." in page
    assert "- Table 3 would run with mnist.npz" in page
    assert ".. image:: page/some-table-2.svg" in page
    assert "precision" in (tmp_path / "page" / "some-table-2.svg").read_text()
