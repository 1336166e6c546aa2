"""The command line, as a newcomer calls it."""

import contextlib
import csv
import os
import pty
import subprocess
import sys

import numpy as np
import pytest
from scipy import sparse

from sklearn_simlearn.__main__ import ROWS, main
from sklearn_simlearn.datasets import make_visual_words


def read_table(path):
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture
def user_file(tmp_path):
    X, y = make_visual_words(10, 8, n_words=200, return_X_y=True, random_state=0)
    path = tmp_path / "mine.npz"
    np.savez(path, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)
    return path


def test_embedded_data(tmp_path, capsys):
    stem = tmp_path / "result"
    assert main(["--output", str(stem)]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    title, header, *lines, written = captured.out.splitlines()
    assert "1797 samples of 200 features, 898 to fit, 899 held out" in title
    assert [line.split("  ")[0] for line in lines] == [row.name for row in ROWS]
    assert len({len(line) for line in [header, *lines]}) == 1  # aligned
    assert written == f"wrote {stem}.csv and {stem}.png"

    table = read_table(tmp_path / "result.csv")
    scores = {row["similarity"]: float(row["mAP"]) for row in table}
    baselines = {row.name for row in ROWS if row.baseline}
    best = max(scores[name] for name in baselines)
    for row in table:
        assert 0 < float(row["P@10"]) < 1
        assert 0 < float(row["P@1"]) < 1
        gain = float(row["gain"].rstrip("%")) / 100
        assert gain == pytest.approx(scores[row["similarity"]] / best - 1, abs=2e-3)
    assert all(score > best for name, score in scores.items() if name not in baselines)
    assert (tmp_path / "result.png").read_bytes()[:4] == b"\x89PNG"


def test_a_reader_that_has_seen_enough_is_no_error(tmp_path, user_file):
    command = [sys.executable, "-m", "sklearn_simlearn", "--data", str(user_file)]
    command += ["--output", str(tmp_path / "own")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait() == 0
    assert len(read_table(tmp_path / "own.csv")) > 5


@pytest.mark.parametrize("split", ["samples", "objects"])
def test_own_counts(split, user_file, tmp_path, capsys):
    stem = str(tmp_path / "own")
    assert main(["--data", str(user_file), "--split", split, "--output", stem]) == 0
    assert "80 samples of 200 features, 40 to fit" in capsys.readouterr().out
    # Half of 8 images of an object are too few for sets of 5.
    n_rows = len(ROWS) - (2 if split == "samples" else 0)
    assert len(read_table(tmp_path / "own.csv")) == n_rows


def test_embeddings_get_the_rows_that_fit_them(tmp_path, rng):
    y = np.repeat(np.arange(6), 10)
    X = rng.standard_normal((6, 12))[y] + rng.standard_normal((60, 12))
    path = tmp_path / "dense.npz"
    np.savez(path, X=X.astype(np.float32), y=y.astype(str))
    assert main(["--data", str(path), "--output", str(tmp_path / "own")]) == 0
    names = [row["similarity"] for row in read_table(tmp_path / "own.csv")]
    assert {"cosine", "OASIS", "angular"} <= set(names)
    assert "asymmetric" not in names
    assert "cosine of tf-idf" not in names


def test_query_mask_and_relevance_matrix(tmp_path, user_file):
    arrays = dict(np.load(user_file))
    matrix = sparse.csr_array((arrays["y"][:, None] == np.arange(10)).astype(float))
    y_parts = {
        f"y_{part}": getattr(matrix, part) for part in ("data", "indices", "indptr")
    }
    del arrays["y"]
    path = tmp_path / "masked.npz"
    query_mask = np.arange(80) % 8 == 0
    np.savez(path, **arrays, **y_parts, y_shape=matrix.shape, query_mask=query_mask)
    assert main(["--data", str(path), "--output", str(tmp_path / "own")]) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data", "nowhere.npz"], "nowhere.npz: no such file"),
        (["--seed", "x"], "argument --seed: invalid int value"),
        (["--colour"], "unrecognized arguments: --colour"),
    ],
)
def test_bad_calls_get_one_line_and_exit_code_2(arguments, message, capsys):
    try:
        code = main(arguments)
    except SystemExit as stop:
        code = stop.code
    captured = capsys.readouterr()
    assert code == 2
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_bad_targets_get_one_line_and_exit_code_2(tmp_path, capsys):
    path = tmp_path / "one_class.npz"
    np.savez(path, X=np.eye(6), y=np.zeros(6, int))
    assert main(["--data", str(path)]) == 2
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1


def test_progress_shows_on_a_terminal_and_not_in_a_pipe(tmp_path):
    command = [sys.executable, "-m", "sklearn_simlearn", "--output", tmp_path / "out"]
    piped = subprocess.run(command, capture_output=True, text=True, check=True)
    assert piped.stderr == ""
    leader, follower = pty.openpty()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=follower)
    os.close(follower)
    shown = b""
    with contextlib.suppress(OSError):  # Linux says so when the other end closes
        while part := os.read(leader, 4096):
            shown += part
    os.close(leader)
    assert process.wait() == 0
    assert b"fitting" in shown


def test_help(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["--help"])
    assert stop.value.code == 0
    assert "--data FILE.npz" in capsys.readouterr().out
