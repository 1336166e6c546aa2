"""Claims, verdicts, records and pages of the experiments of the papers."""

import html
import json
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

ROOT = Path(__file__).parents[2]
if not (ROOT / "benchmarks").is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)
sys.path[:0] = [str(ROOT), str(ROOT / "benchmarks")]

from benchmarks.papers import _frame as frame  # noqa: E402
from benchmarks.papers import _page as pages  # noqa: E402
from benchmarks.papers.__main__ import main, print_missing  # noqa: E402
from benchmarks.papers._data import DATA, FILES  # noqa: E402
from benchmarks.papers._frame import (  # noqa: E402
    Claim,
    Entry,
    Panel,
    Paper,
    Result,
    compare,
    effect,
    judge,
    load_papers,
    verdict,
)
from benchmarks.papers._logdet import LogDetOASIS  # noqa: E402
from benchmarks.papers._measures import (  # noqa: E402
    cells_of,
    first_page,
    measure,
    measure_scores,
    spread,
)
from sklearn_simlearn.similarities import CosineSimilarity  # noqa: E402

ENTRIES = [(paper, entry) for paper in load_papers() for entry in paper.entries]
IDS = [f"{paper.name} {entry.name}" for paper, entry in ENTRIES]

LARGE = [0.10, 0.11, 0.12, 0.09, 0.10]
SMALL = [0.010, 0.011, 0.012, 0.009, 0.010]
NOISE = [0.3, -0.3, 0.2, -0.2, 0.05]


def claim(key="a", gain=None, **options):
    return Claim(key, "It is better", "5", "ahead", gain, **options)


def make_paper(entries, runs="some_runs"):
    return Paper(
        "some",
        "Someone: A Paper",
        "OASIS",
        "OASIS()",
        (),
        ("mnist",),
        (),
        runs,
        entries,
    )


def record_of(effects, **options):
    return {
        "header": ["", "P@10"],
        "rows": [["a_b*", "0.5"]],
        "effects": effects,
        "notes": [],
        "panels": [],
        "quick": False,
        "commit": "abc",
        "date": "2020-01-01",
        "seconds": 60.0,
        "cpu_seconds": 120.0,
        "versions": {"numpy": "2"},
        **options,
    }


# -- test of a claim --


@pytest.mark.parametrize(
    ("values", "gain", "state"),
    [
        (LARGE, None, "holds"),
        (LARGE, 0.2, "holds"),
        (LARGE, 0.3, "smaller"),
        (SMALL, 0.1, "smaller"),
        (NOISE, None, "fails"),
        ([-v for v in LARGE], None, "fails"),
        (LARGE[:4], None, "untested"),
        ([0.1], None, "untested"),
        ([0.0] * 5, None, "fails"),
        ([0.1] * 5, None, "holds"),
    ],
)
def test_a_claim_needs_a_test_and_half_of_the_published_gain(values, gain, state):
    assert judge(claim(gain=gain), {"a": effect(values)}).state == state


def test_the_test_is_a_one_sided_t_test():
    outcome = judge(claim(), {"a": effect(LARGE, "splits")})
    values = np.array(LARGE)
    error = values.std(ddof=1) / np.sqrt(5)
    assert outcome.mean == pytest.approx(values.mean())
    assert outcome.error == pytest.approx(error)
    # Density of Student's t with 4 degrees of freedom, integrated above the statistic.
    t = np.linspace(values.mean() / error, 2000, 2_000_000)
    density = 0.375 * (1 + t**2 / 4) ** -2.5
    assert outcome.p == pytest.approx(np.trapezoid(density, t), rel=1e-3)
    assert (outcome.n, outcome.over) == (5, "splits")


def test_a_claim_without_room_for_its_gain_is_untested():
    high, low = compare(NOISE, [0.96] * 5), compare(NOISE, [0.90] * 5)
    assert judge(claim(gain=0.1), {"a": high}).state == "untested"
    assert judge(claim(gain=0.1), {"a": low}).state == "fails"
    assert judge(claim(gain=0.1, unit="N-S"), {"a": high}).state == "fails"
    assert judge(claim(), {"a": high}).state == "fails"


def test_paired_values_are_differences():
    found = compare([0.5, 0.7], [0.4, 0.5], "queries")
    assert found == {
        "values": [0.1, 0.2],
        "over": "queries",
        "ours": 0.6,
        "reference": 0.45,
    }


def test_rounding_errors_are_not_gains():
    values = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    found = compare(values + 1e-17 + np.spacing(values), values)
    assert judge(claim(), {"a": found}).state == "fails"


# -- verdict --


@pytest.mark.parametrize(
    ("effects", "expected"),
    [
        ({"a": LARGE, "b": LARGE}, "reproduced"),
        ({"a": LARGE, "b": NOISE}, "partly"),
        ({"a": SMALL}, "partly"),
        ({"a": NOISE, "b": NOISE}, "not"),
        ({"a": LARGE}, "reproduced"),  # b cannot be tested
        ({"a": LARGE[:2]}, "not run: fewer than 5 values"),
        ({}, "not run: fewer than 5 values"),
    ],
)
def test_verdicts(effects, expected):
    entry = Entry("Table 1", "a table", (claim("a", 0.1), claim("b")))
    record = record_of({key: effect(values) for key, values in effects.items()})
    assert verdict(entry, record) == expected


def test_entries_without_data_have_a_reason():
    entry = Entry("Table 1", "a table", (claim(),))
    record = record_of({"a": effect(LARGE)}, quick=True)
    assert verdict(entry, record) == "not run: quick form"
    assert verdict(Entry("Table 1", "a", missing="no data"), None) == "not run: no data"
    entry = Entry("Table 1", "a", needs=("mnist.npz",))
    assert verdict(entry, None) == "not run: there is no record; it reads mnist.npz"


# -- declarations --


def test_every_table_and_figure_with_results_is_listed():
    counts = {paper.name: len(paper.entries) for paper in load_papers()}
    assert counts == {"yan": 8, "qin": 10, "kuang": 8, "chechik": 11, "sicre": 6}


@pytest.mark.parametrize(("paper", "entry"), ENTRIES, ids=IDS)
def test_claims_are_cited(paper, entry):
    assert re.fullmatch(r"(Table|Figure) [\dIV]+", entry.name)
    keys = [c.key for c in entry.claims]
    assert len(set(keys)) == len(keys)
    assert bool(entry.missing) != bool(entry.claims)
    assert set(entry.needs) <= set(FILES)
    for c in entry.claims:
        assert re.fullmatch(r"[\dIVX]+(\.\d)*(-[A-E])?", c.section), c.section
        assert 0 < len(c.quote.split()) <= 8
        assert c.gain is None or c.gain > 0


@pytest.mark.parametrize("paper", load_papers(), ids=lambda paper: paper.name)
def test_papers_are_complete(paper):
    names = [entry.name for entry in paper.entries]
    assert len(set(names)) == len(names)
    assert set(paper.data) <= set(DATA)
    assert paper.form.startswith(f"{paper.estimator}.from_paper(")


@pytest.mark.parametrize(("paper", "entry"), ENTRIES, ids=IDS)
def test_records_have_the_values_of_the_claims(paper, entry):
    record = frame.read_records(paper.name).get(entry.name)
    if record is None:
        pytest.skip("no record")
    assert not record["quick"]
    assert "verdict" not in record
    assert set(record["effects"]) == {c.key for c in entry.claims if not c.missing}
    for found in record["effects"].values():
        assert len(found["values"]) >= frame.MIN_VALUES
    assert all(len(row) == len(record["header"]) for row in record["rows"])
    assert "/" not in record["command"]


# -- records --


@pytest.fixture
def some_runs(monkeypatch):
    """Return the module of a paper that counts its calls."""
    module = types.ModuleType("some_runs")
    module.calls = []

    def table_1(quick):
        module.calls.append(quick)
        panel = Panel("", "rank", "precision", {"ours": [(1, np.float32(0.5)), (2, 0)]})
        return Result(["a"], [["1"]], {"a": effect(LARGE)}, ["P@10 rose."], [panel])

    module.table_1 = table_1
    monkeypatch.setitem(sys.modules, "some_runs", module)
    return module


def test_a_record_is_kept_and_read_again(tmp_path, some_runs):
    entry = Entry("Table 1", "a table", (claim(),))
    paper = make_paper([entry])
    record = frame.run_entry(paper, entry, quick=True)
    frame.write_record(paper, entry.name, record, tmp_path)
    assert frame.read_records("some", tmp_path) == {"Table 1": record}
    assert record["quick"]
    assert record["seconds"] >= 0
    assert {"command", "commit", "cpu_seconds", "versions"} <= set(record)
    assert [path.name for path in tmp_path.iterdir()] == ["some.json"]
    assert json.loads((tmp_path / "some.json").read_text())["entries"]


def test_values_without_a_claim_are_refused(some_runs):
    entry = Entry("Table 1", "a table", (claim("other"),))
    with pytest.raises(ValueError, match=r"no claim is named \{'a'\}"):
        frame.run_entry(make_paper([entry]), entry, quick=True)


def test_the_command_reads_records_by_default(tmp_path, some_runs, monkeypatch, capsys):
    paper = make_paper([Entry("Table 1", "a table", (claim(),))])
    monkeypatch.setattr("benchmarks.papers.__main__.load_papers", lambda *_: [paper])
    command = ["papers", "--records", str(tmp_path)]
    for options in ([], [], ["--again"], ["--entry", "Table 2", "--again"]):
        monkeypatch.setattr(sys, "argv", command + options)
        main()
    assert some_runs.calls == [False, False]
    printed = capsys.readouterr().out
    assert "holds: It is better" in printed
    assert "reproduced; 0 s" in printed
    assert "1 are reproduced, 0 partly, 0 not, and 0 are not run" in printed


def test_the_quick_form_has_no_verdict_and_keeps_nothing(
    some_runs, monkeypatch, capsys
):
    paper = make_paper([Entry("Table 1", "a table", (claim(),))])
    monkeypatch.setattr("benchmarks.papers.__main__.load_papers", lambda *_: [paper])
    monkeypatch.setattr(frame, "write_record", None)
    monkeypatch.setattr(sys, "argv", ["papers", "--quick"])
    main()
    assert "quick form, no verdict" in capsys.readouterr().out


def test_missing_data_is_listed_with_its_source(tmp_path, monkeypatch, capsys):
    entry = Entry("Table 1", "a table", needs=("mnist.npz",))
    monkeypatch.delenv("SIMLEARN_DATA", raising=False)
    print_missing(entry)
    printed = capsys.readouterr().out
    assert "SIMLEARN_DATA (not set)" in printed
    assert "- mnist.npz: MNIST, from http" in printed
    (tmp_path / "mnist.npz").touch()
    monkeypatch.setenv("SIMLEARN_DATA", str(tmp_path))
    assert frame.needed_files(entry) == []


# -- pages --


def write(tmp_path, monkeypatch, record):
    pytest.importorskip("matplotlib")
    done = Entry("Table 1", "a table", (claim("a", 0.1, unit="P@10"), claim("b")))
    absent = Entry("Figure 2", "a figure", missing="no data")
    paper = make_paper([done, absent])
    frame.write_record(paper, "Table 1", record, tmp_path / "records")
    pages.write_pages(tmp_path / "pages", [paper], tmp_path / "records")
    return {path.name: path for path in (tmp_path / "pages").iterdir()}


def test_pages_list_failures_under_their_entry(tmp_path, monkeypatch):
    panel = {"title": "", "x_label": "rank", "y_label": "precision"}
    panel |= {"curves": {"ours": [[1, 0.5], [2, 0.25]]}, "faint": {}}
    effects = {"a": compare(LARGE, [0] * 5), "b": effect(NOISE)}
    record = record_of(effects, panels=[panel], notes=["P@10 rose."])
    found = write(tmp_path, monkeypatch, record)
    text = found["some.rst"].read_text()
    head, _, section = text.partition("Table 1: a table\n")
    assert "fails" not in head
    section, _, rest = section.partition("Figure 2: a figure\n")
    assert "**Partly reproduced.**" in section
    assert section.count('5: "ahead"') == 1  # both claims have this quotation
    assert "     - **fails**" in section
    assert "+0.104 ± 0.005 P\\@10, 0.104 against 0.000; 5 runs, p = 1.7e-05" in section
    assert ".. image:: some-table_1.svg" in section
    assert "precision" in found["some-table_1.svg"].read_text()
    assert "**Not run: no data.**" in rest
    front = found["index.rst"].read_text()
    assert ":ref:`Table 1 <reproductions-some-table-1>`" in front
    assert "- +0.104 ± 0.005\n" in front
    assert "- partly\n" in front


def test_claims_are_listed_by_protocol():
    claims = (
        claim("a", protocol="near"),
        claim("b", protocol="near", unit="P@10"),
        claim("c", protocol="far"),
        claim("d", protocol="far", unit="P@10", missing="no data"),
        claim("e", protocol="far", unit="recall"),
    )
    entry = Entry("Table 1", "a table", claims)
    effects = {"a": LARGE, "b": NOISE, "c": NOISE, "e": LARGE}
    record = record_of({key: effect(values) for key, values in effects.items()})
    assert pages.count_by_protocol(entry, record) == [
        "- near: 1 of 2 claims hold.",
        "- far: 1 of 2 claims hold.",
    ]
    lines = pages.claims_table(entry, record)
    rows = re.findall(r"\* - It is better\n(.*)\n(.*)\n(.*)\n(.*)", "\n".join(lines))
    cells = [[cell.strip().removeprefix("- ") for cell in row] for row in rows]
    assert [row[1] for row in cells] == ["> 0 mAP", "> 0 P\\@10", "> 0 recall"]
    states = [[cell.partition(":")[0] for cell in row[2:]] for row in cells]
    assert states == [["holds", "**fails**"], ["**fails**", "untested"], ["-", "holds"]]


def test_measures_are_not_links(tmp_path, monkeypatch):
    docutils = pytest.importorskip("docutils.core")
    found = write(tmp_path, monkeypatch, record_of({"a": effect(LARGE)}))
    # Sphinx knows these; docutils alone does not.
    text = re.sub(r":(ref|class|doc):`([^`]*)`", r"\2", found["some.rst"].read_text())
    text = text.replace(".. dropdown:: Measurements", ".. container::")
    page = docutils.publish_string(text, writer="html").decode()
    assert "mailto" not in page
    assert 'class="system-message"' not in page
    page = html.unescape(page)
    assert "P@10" in page
    assert "a_b*" in page


def test_the_front_page_counts_verdicts(tmp_path, monkeypatch):
    found = write(tmp_path, monkeypatch, record_of({"a": effect(LARGE)}))
    front = found["index.rst"].read_text()
    assert "Of 2 tables and figures with results, 1 are reproduced" in front
    assert "and 1 are not run. The runs took 2 minutes of processor time." in front


# -- measures --


def test_spread():
    assert spread([0.5]) == "0.500"
    assert spread([0.4, 0.6], 2) == "0.50 ± 0.14"


def test_a_gain_below_the_first_ranks_is_noted():
    plain = [{"mAP": 0.4, "P@1": 0.9, "P@10": 0.8}]
    learned = [{"mAP": 0.5, "P@1": 0.8, "P@10": 0.8}]
    assert first_page("It", learned, plain) == [
        "It gains 0.100 mAP but loses 0.100 P@1."
    ]
    assert first_page("It", plain, learned) == []


def test_scores_are_measured_as_estimators_are():
    rng = np.random.default_rng(0)
    X, y = rng.random((60, 5)), np.arange(60) % 3
    model = CosineSimilarity(use_idf=False).fit(X)
    expected = measure(model, X, y)
    same = np.eye(60, dtype=bool)
    found = measure_scores((y[:, None] == y) & ~same, model.similarity(X), junk=same)
    assert found == pytest.approx(expected)
    assert cells_of([found, found])[0] == f"{found['mAP']:.3f} ± 0.000"


# -- LogDet --


def test_a_logdet_step_reaches_the_margin_and_stays_positive():
    X, y = np.random.default_rng(0).random((4, 5)), [0, 0, 1, 1]
    W = LogDetOASIS(C=1e9, n_triplets=1).fit(sparse.csr_array(X), np.array(y)).W_
    np.testing.assert_allclose(W, W.T)
    assert np.linalg.eigvalsh(W).min() > 0
    triplets = [(q, q ^ 1, n) for q in range(4) for n in range(4) if y[n] != y[q]]
    margins = [X[q] @ W @ (X[p] - X[n]) for q, p, n in triplets]
    q, p, n = triplets[np.argmin(np.abs(np.subtract(margins, 1)))]
    d = X[p] - X[n]
    assert X[q] @ W @ d == pytest.approx(1)
    # The inverse of W has changed by a multiple of this matrix.
    V = np.outer(X[q], d) + np.outer(d, X[q])
    change = np.eye(5) - np.linalg.inv(W)
    tau = 2 * np.sum(change * V) / np.sum(V**2)
    assert tau > 0
    np.testing.assert_allclose(change, tau / 2 * V, atol=1e-12)
