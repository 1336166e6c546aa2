"""Calls of the command line."""

import base64
import contextlib
import csv
import errno
import html
import io
import os
import re
import subprocess
import sys
import textwrap
import time
import warnings

import numpy as np
import pytest
from scipy import sparse

import sklearn_simlearn
from sklearn_simlearn._core.progress import progress, show_step
from sklearn_simlearn.comparison import _command_line as command
from sklearn_simlearn.comparison import _files
from sklearn_simlearn.comparison._rows import ROWS, Row
from sklearn_simlearn.comparison._task import make_task
from sklearn_simlearn.comparison._wording import WIDTH
from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.similarities import CosineSimilarity

BASELINES = {row.name for row in ROWS if row.is_baseline}
# The others take most of the time; `test_own_counts` runs all rows.
EMBEDDED_ROWS = [
    row
    for row in ROWS
    if row.name in ("cosine", "cosine of tf-idf", "burstiness", "OASIS")
    or row.name == "class posteriors"
    or row.in_sets
]
LIGHT_ROWS = [row for row in ROWS if row.name in ("cosine", "negative evidence")]


def read_table(path):
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def run(arguments, capsys):
    """Return exit code, output and errors."""
    try:
        code = command.main([str(argument) for argument in arguments])
    except SystemExit as stop:
        code = stop.code
    return code, *capsys.readouterr()


@pytest.fixture
def light(monkeypatch):
    """Compare only two rows, which are fast."""
    monkeypatch.setattr(command, "ROWS", LIGHT_ROWS)


# -- the comparison --


@pytest.fixture(scope="module")
def embedded(tmp_path_factory):
    """Return output, errors and folder of the comparison on the digits."""
    folder = tmp_path_factory.mktemp("embedded")
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(command, "ROWS", EMBEDDED_ROWS)
        patch.chdir(folder)
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            assert command.main(["--output", "result", "--report", "report.html"]) == 0
    return out.getvalue(), err.getvalue(), folder


def test_embedded_data(embedded):
    out, err, folder = embedded
    assert err == ""
    assert max(map(len, out.splitlines())) <= WIDTH
    table, advice, hint, _ = out.split("\n\n", maxsplit=3)
    title, held_out, header, units, *lines, written, report = table.splitlines()
    assert title.endswith("1797 samples of 200 features, 898 to fit,")
    assert held_out.startswith("899 held out by samples")
    lines, choices = np.split(lines, [lines.index("Choices of the hold-outs:")])
    names = [row.name for row in EMBEDDED_ROWS]
    assert [line.split("  ")[0] for line in lines] == names
    assert choices[1].startswith("OASIS: share of the start ")
    assert choices[1].endswith(" in mAP")
    assert len({len(line) for line in [header, units, *lines]}) == 1  # aligned
    assert written == "wrote result.csv and result.png"
    picture = (folder / "result.png").read_bytes()
    assert picture[:4] == b"\x89PNG"
    # One panel: sets of queries are not drawn.
    assert int.from_bytes(picture[16:20], "big") > int.from_bytes(picture[20:24], "big")
    assert report == "wrote report.html"
    names = {"result.csv", "result.png", "report.html"}
    assert {path.name for path in folder.iterdir()} == names
    assert advice.startswith("Use class posteriors. Its mAP is 0.956, compared with ")
    assert "To save it as an index for searches, add --save FOLDER." in advice
    assert hint == "To fit it:"


def test_report_of_the_comparison(embedded):
    out, _, folder = embedded
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert len(page) < 2e6
    _, words, _, code = out.split("\n\n", maxsplit=3)
    advice = re.findall("<p>(.*?)</p>", page[page.index('id="advice"') :])
    assert html.unescape(" ".join(advice[:3])) == " ".join(words.split())
    assert html.escape(textwrap.dedent(code).rstrip()) in page
    assert "fitted in" in page.lower()


def test_report_shows_the_images_of_the_held_out_samples(embedded):
    image = pytest.importorskip("PIL.Image")
    page = (embedded[2] / "report.html").read_text(encoding="utf-8")
    pattern = r"\.i(\d+)\{background-image:url\(data:image/png;base64,(.*?)\)"
    shown = re.findall(pattern, page)
    assert len(shown) > 20
    digits = load_digit_words()
    task = make_task(digits.data, digits.target, None, "samples", 0)
    for row, data in shown:
        pixels = np.asarray(image.open(io.BytesIO(base64.b64decode(data))), dtype=float)
        expected = 16 - digits.images[task.test_rows[int(row)]]
        assert np.corrcoef(pixels.ravel(), expected.ravel())[0, 1] > 0.999


def test_gain_is_over_the_best_baseline(embedded):
    _, _, folder = embedded
    table = read_table(folder / "result.csv")
    scores = {row["similarity"]: float(row["mAP"]) for row in table}
    best = max(scores[name] for name in BASELINES & set(scores))
    assert scores["class posteriors"] > best
    assert scores["OASIS"] > scores["cosine"]
    for row in table:
        name = row["similarity"]
        if name.startswith("5 queries"):
            assert row["gain"] == ""
        else:
            assert float(row["gain"]) == pytest.approx(scores[name] - best, abs=1.1e-3)
        is_tested = not name.startswith("5 queries") and name not in BASELINES
        assert (row["p"] != "") == is_tested
        for column in ("P@1", "P@10"):
            assert 0 < float(row[column]) < 1
        assert float(row["query us"]) > 0
        assert float(row["model kB"]) > 0


def test_gains_and_p_values_are_the_same_everywhere(embedded):
    """Check the terminal, the CSV file and the report."""
    out, _, folder = embedded
    page = (folder / "report.html").read_text(encoding="utf-8")
    for row in read_table(folder / "result.csv"):
        name, gain, p = row["similarity"], row["gain"], row["p"]
        [line] = [line for line in out.splitlines() if line.startswith(f"{name}  ")]
        assert f"  {gain or ' '}  " in line
        assert p in line
        if not name.startswith("5 queries") and p:
            start = page.index(f'data-name="{name}"', page.index("<tbody>"))
            line = page[start : page.index("</tr>", start)]
            assert f">{gain}<small>" in line
            assert f">{html.escape(p)}</td>" in line.replace("&lt; ", "&lt;")


@pytest.mark.parametrize("split", ["samples", "objects"])
def test_own_counts(split, user_file, tmp_path, capsys):
    arguments = ["--data", user_file, "--split", split, "--output", tmp_path / "own"]
    code, out, err = run(arguments, capsys)
    out = " ".join(out.split())
    assert code == 0
    assert f"120 samples of 200 features, 60 to fit, 60 held out by {split}" in out
    names = [row["similarity"] for row in read_table(tmp_path / "own.csv")]
    expected = [row.name for row in ROWS if "new classes" not in row.needs]
    if split == "objects":
        expected = [row.name for row in ROWS]
        expected.remove("class posteriors")
        assert "left out: class posteriors (needs known classes) Choices" in out
        assert "OASIS: start kept, since there is too little to hold out" in out
        # Five classes are too few for a hold-out of classes; this is printed once.
        assert err.startswith("warning of OASIS, angular, ")
        assert " ".join(err.split()).count("start is kept") == 1
        assert max(map(len, err.splitlines())) <= WIDTH
    else:
        assert "left out" not in out
    assert names == expected


def test_embeddings_get_the_rows_that_fit_them(tmp_path, rng, capsys):
    y = np.repeat(np.arange(6), 10)
    X = rng.standard_normal((6, 12))[y] + rng.standard_normal((60, 12))
    path = tmp_path / "dense.npz"
    np.savez(path, X=X.astype(np.float32), y=y.astype(str))
    code, out, _ = run(["--data", path, "--output", tmp_path / "own"], capsys)
    assert code == 0
    names = [row["similarity"] for row in read_table(tmp_path / "own.csv")]
    assert {"cosine", "LDA", "logistic posteriors", "NCA", "OASIS"} <= set(names)
    assert (
        "left out: cosine of tf-idf (needs non-negative numbers), burstiness (needs "
        "non-negative numbers), asymmetric (needs counts), histogram (needs counts), "
        "sparse Mahalanobis (needs non-negative numbers), 5 queries: average (needs "
        "classes of more than 5 held-out samples), 5 queries: memory (needs "
        "classes of more than 5 held-out samples) Choices of the hold-outs: OASIS: "
    ) in " ".join(out.split())


def test_relevance_matrix_and_query_mask(tmp_path, user_file, words, capsys):
    _, y = words
    arrays = dict(np.load(user_file))
    matrix = sparse.csr_array((y[:, None] == np.arange(10)).astype(float))
    for part in ("data", "indices", "indptr"):
        arrays[f"y_{part}"] = getattr(matrix, part)
    del arrays["y"]
    path = tmp_path / "masked.npz"
    query_mask = np.zeros(120, dtype=bool)
    query_mask[np.argsort(y, kind="stable").reshape(10, 12)[:, :3]] = True
    np.savez(path, **arrays, y_shape=matrix.shape, query_mask=query_mask)
    code, out, _ = run(["--data", path, "--output", tmp_path / "own"], capsys)
    assert code == 0
    out = " ".join(out.split())
    assert "70 held out" in out  # the queries, and 4 of the 9 other samples per object
    names = "LDA", "logistic posteriors", "logistic product", "NCA", "class posteriors"
    left_out = ", ".join(f"{name} (needs labels)" for name in names)
    assert f"left out: {left_out}" in out


class Failing(CosineSimilarity):
    """Estimator that warns, then fails."""

    def fit(self, X, y=None):
        warnings.warn("one\nline", stacklevel=1)
        raise MemoryError


def test_a_row_that_fails_does_not_end_the_comparison(
    user_file, tmp_path, monkeypatch, capsys
):
    failing = Row("greedy", lambda task: Failing())
    monkeypatch.setattr(command, "ROWS", [failing, *LIGHT_ROWS])
    arguments = ["--data", user_file, "--output", tmp_path / "own"]
    code, out, err = run(arguments, capsys)
    assert code == 0
    assert "left out: greedy (failed: MemoryError)\n" in out
    assert err == "warning of greedy: one line\n"
    names = [row["similarity"] for row in read_table(tmp_path / "own.csv")]
    assert names == ["cosine", "negative evidence"]

    monkeypatch.setattr(command, "ROWS", [failing])
    code, out, err = run(arguments, capsys)
    assert code == 2
    assert out == ""
    assert "nothing could be compared: greedy (failed: MemoryError)" in err


def test_warnings_of_baselines_that_a_user_cannot_act_on(
    user_file, tmp_path, monkeypatch, capsys
):
    def warn_twice(task):
        warnings.warn("Only one sample available. Reshape.", UserWarning, stacklevel=2)
        warnings.warn("The data are odd.", UserWarning, stacklevel=2)
        return CosineSimilarity(use_idf=False)

    rows = [Row("cosine", warn_twice, is_baseline=True), Row("ours", warn_twice)]
    monkeypatch.setattr(command, "ROWS", rows)
    code, _, err = run(["--data", user_file, "--output", tmp_path / "own"], capsys)
    assert code == 0
    assert "warning of cosine, ours: The data are odd." in err
    assert "warning of ours: Only one sample" in err


# -- saving --


def test_the_advised_model_is_saved(
    user_file, words, leading, tmp_path, monkeypatch, capsys
):
    """Check this even if another row ranks slightly better."""
    rows = [
        Row("cosine", lambda task: CosineSimilarity(use_idf=False), is_baseline=True),
        Row("slightly better", lambda task: leading(198)),
    ]
    monkeypatch.setattr(command, "ROWS", rows)
    folder = tmp_path / "index"
    arguments = ["--data", user_file, "--output", tmp_path / "own", "--save", folder]
    for _ in range(2):  # the second index replaces the first
        code, out, err = run(arguments, capsys)
        assert (code, err) == (0, "")
        assert "\nUse cosine, the best baseline." in out
        assert "--save" not in out
        assert (
            "saved cosine, fitted on the training half, with all 120 samples as an "
            f"index in {folder} to search it in a browser: python -m sklearn_simlearn "
            f"serve {folder} Use"
        ) in " ".join(out.split())
    cosine, other = read_table(tmp_path / "own.csv")
    assert other["mAP"] > cosine["mAP"]
    X, y = words
    index = SimilarityIndex.load(folder, trusted=())
    assert index.n_items_ == 120
    task = make_task(X, y, None, "samples", 0)
    report = retrieval_report(index.estimator_, task.X_test, task.y_test)
    assert f"{report.average_precision.mean():.3f}" == cosine["mAP"]


# -- bad calls --


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.npz"], "nowhere.npz: no such file"),
        (["--seed", "x"], "--seed: 'x' is not an integer of at least 0"),
        (["--seed", "-1"], "--seed: '-1' is not an integer of at least 0"),
        (["--colour"], "unrecognized arguments: --colour"),
        (["fetch"], "invalid choice: 'fetch'"),
        (["--data", "{data}", "--max-bytes", "9"], "pass a larger --max-bytes if"),
        (["--data", "{one_class}"], "half of the samples are held out, and each half"),
        (["--data", "{one_class}", "--split", "objects"], "half of the classes are"),
        (["--output", "."], "--output '.' is a folder: add the beginning of a"),
        (["--output", ".."], "such as '../comparison'"),
        (["--output", "{folder}/"], "add the beginning of a file name, such as"),
        (["--output", "{folder}/missing/own"], "missing does not exist: create it"),
        (["--output", "{data}/own"], "mine.npz: Not a directory"),
        (["--output", "{folder}/taken"], "taken.csv is a folder"),
        (["--output", "{folder}/" + 300 * "x"], "File name too long"),
        (["--save", "{folder}/" + 300 * "x"], "File name too long"),
        (["--report", "{folder}"], "is a folder: choose another file"),
        (["--report", "{folder}/missing/a.html"], "missing does not exist: create"),
        (["--save", "{data}"], "mine.npz is not a folder"),
        (["--save", "{folder}"], "does not hold an index"),
        (["--save", "{folder}/missing/index"], "missing does not exist: create it"),
    ],
)
def test_bad_calls_get_one_line_before_any_work(
    arguments, message, user_file, tmp_path, monkeypatch, capsys
):
    def work(*args):
        raise AssertionError("the comparison has begun")

    monkeypatch.setattr(command, "compare", work)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.csv").mkdir()
    one_class = tmp_path / "one_class.npz"
    np.savez(one_class, X=np.eye(6), y=np.zeros(6, int))
    places = {"data": user_file, "folder": tmp_path, "one_class": one_class}
    arguments = [argument.format(**places) for argument in arguments]
    before = sorted(tmp_path.iterdir())
    code, out, err = run(arguments, capsys)
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert message in err
    assert sorted(tmp_path.iterdir()) == before


def test_a_folder_that_is_not_writable_is_found_first(tmp_path, monkeypatch, capsys):
    def refuse(dir):
        raise PermissionError(errno.EACCES, "Permission denied", f"{dir}/tmp12")

    # The user who runs the tests may have all permissions.
    monkeypatch.setattr(_files.tempfile, "TemporaryFile", refuse)
    for arguments in (["--output", tmp_path / "own"], ["--save", tmp_path / "index"]):
        code, out, err = run(arguments, capsys)
        assert (code, out) == (2, "")
        assert err in (
            f"sklearn_simlearn: {tmp_path}: Permission denied\n",
            "sklearn_simlearn: .: Permission denied\n",
        )


def test_a_disk_that_is_full_at_the_end(
    light, user_file, tmp_path, monkeypatch, capsys
):
    (tmp_path / "own.csv").write_text("the old one")

    def fail(source, target):
        raise OSError(errno.ENOSPC, "No space left on device", str(source))

    monkeypatch.setattr("os.replace", fail)
    arguments = ["--data", user_file, "--output", tmp_path / "own"]
    code, out, err = run(arguments, capsys)
    assert code == 2
    assert "cosine" in out  # the table was printed before the error
    assert "wrote" not in out
    assert err.count("\n") == 1
    assert "No space left on device" in err
    assert (tmp_path / "own.csv").read_text() == "the old one"
    assert {path.name for path in tmp_path.iterdir()} == {"own.csv", "mine.npz"}


def test_ctrl_c(light, user_file, tmp_path, monkeypatch, capsys):
    def interrupt(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "compare", interrupt)
    arguments = ["--data", user_file, "--output", tmp_path / "own"]
    assert run(arguments, capsys) == (130, "", "sklearn_simlearn: interrupted\n")


# -- streams --


def start(arguments, redirection="", **options):
    """Start the command line in a shell, as a process with its own streams."""
    command = [sys.executable, "-m", "sklearn_simlearn", *map(str, arguments)]
    return subprocess.Popen(
        ["sh", "-c", f'"$@" {redirection}', "sh", *command],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def test_closed_and_full_outputs(saved, user_file, tmp_path):
    """Try a closed stream, a closed pipe and a full device at the same time."""
    arguments = ["search", saved, user_file, "--output"]
    closed = start([*arguments, tmp_path / "closed.csv"], ">&-")
    reader = start([*arguments, tmp_path / "reader.csv"])
    reader.stdout.close()
    full = None
    if os.path.exists("/dev/full"):
        full = start([*arguments, tmp_path / "full.csv"], ">/dev/full")
    for process in (closed, reader):
        assert process.stderr.read() == ""
        assert process.wait() == 0
        process.stderr.close()
        process.stdout.close()
    if full is not None:
        out, err = full.communicate()
        assert (out, err) == ("", "sklearn_simlearn: No space left on device\n")
        assert full.returncode == 2
    for name in ("closed", "reader"):
        assert len(read_table(tmp_path / f"{name}.csv")) == 1200


def test_an_ascii_terminal(light, user_file, tmp_path, monkeypatch):
    bytes_out = io.BytesIO()
    out = io.TextIOWrapper(bytes_out, encoding="ascii")
    monkeypatch.setattr(sys, "stdout", out)
    command.prepare_streams()
    stem = tmp_path / "größe"
    assert command.main(["--data", str(user_file), "--output", str(stem)]) == 0
    assert rb"gr\xf6\xdfe.csv" in bytes_out.getvalue()
    assert (tmp_path / "größe.csv").exists()


# -- progress --


class Terminal(io.StringIO):
    def isatty(self):
        return True


def test_progress_on_a_terminal(monkeypatch):
    pytest.importorskip("rich")
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress(["cosine", "OASIS"]) as show:
        show("OASIS", "hold-out 7")
        time.sleep(1.1)  # the clock runs without further steps
    shown = terminal.getvalue()
    for part in ("OASIS", "1/2", "hold-out 7"):
        assert part in shown
    assert re.search("0:00:0[1-9]", shown)  # a busy machine may skip a second


def test_progress_without_rich_is_a_line_per_row(
    light, user_file, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    arguments = ["--data", str(user_file), "--output", str(tmp_path / "own")]
    assert command.main(arguments) == 0
    assert terminal.getvalue() == "cosine\nnegative evidence\ncurves\n"


def test_progress_inside_of_another_is_a_step(monkeypatch):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("sklearn_simlearn._core.progress.SECONDS_PER_LINE", 0)
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    show_step("words", "not shown without a progress")
    with progress(["photographs", "words"]) as show:
        show("photographs")
        with progress(["local features"]) as show_inside:
            show_inside("local features", "1 of 2")
        show("words")
        show_step("cells", "3 of 4")
    assert terminal.getvalue().splitlines() == [
        "photographs",
        "photographs: local features: 1 of 2",
        "words",
        "words: cells: 3 of 4",
    ]


def test_version(capsys):
    code, out, _ = run(["--version"], capsys)
    assert (code, out) == (0, f"sklearn_simlearn {sklearn_simlearn.__version__}\n")


def test_help(capsys):
    code, out, _ = run(["--help"], capsys)
    assert code == 0
    assert "--data FILE.npz" in out
    code, out, _ = run(["search", "--help"], capsys)
    assert code == 0
    assert "FILE.npz" in out


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudoterminal")
def test_a_terminal_shows_that_modules_are_loaded():
    terminal, end = os.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "sklearn_simlearn", "--version"],
        stdout=subprocess.PIPE,
        stderr=end,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        check=True,
    )
    os.close(end)
    shown = os.read(terminal, 1000).decode()
    os.close(terminal)
    assert shown == "loading ...\r           \r"
    assert b"sklearn_simlearn 0." in done.stdout
