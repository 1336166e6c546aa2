"""The frame of the papers' experiments: claims, verdicts, records, the page."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path.insert(0, str(ROOT))

from benchmarks.papers._frame import (  # noqa: E402
    Claim,
    Experiment,
    Paper,
    Result,
    claim_gain,
    note_first_page,
    run_experiment,
    spread,
    verdict,
)
from benchmarks.papers._page import write_page  # noqa: E402
from benchmarks.papers._plot import read_curves  # noqa: E402


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
    assert claim_gain("", [0.5], [0.4]).holds
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


def test_curves_are_read_from_tables():
    header = ["loss", "1 passes", "2 passes"]
    rows = [["max", "0.1 ± 0.2", "3.1"], ["other", "", "2.5"]]
    curves = read_curves(header, rows, "rows")
    assert curves == {"max": [(1.0, 0.1), (2.0, 3.1)], "other": [(2.0, 2.5)]}
    header = ["", "published", "mAP", "fit s"]
    rows = [["cosine", "9", "0.3", "1"], ["1,000", "9", "0.4 ± 0.1", "2"]]
    assert read_curves(header, rows, "columns") == {"mAP": [(1000.0, 0.4)]}


def test_the_page_says_first_what_failed(tmp_path):
    def run(quick):
        claims = [Claim("it is ahead", False, "0.4 to 0.5")]
        return Result(["", "mAP"], [["ours", "0.4"]], claims, ["A note."])

    done = []
    for number, function in enumerate((one_claim, run)):
        paper, experiment = make_paper(function)
        experiment.name = f"Table {number + 1}"
        record = run_experiment(paper, experiment, tmp_path, quick=True, again=False)
        done.append((paper, experiment, record))
    write_page(tmp_path / "page.rst", done)
    page = (tmp_path / "page.rst").read_text()
    assert page.index("not reproduced\n") < page.index("     - reproduced\n")
    assert "What did not come out:" in page
    assert "- some, Table 2: it is ahead (0.4 to 0.5)" in page
    assert "A note." in page
