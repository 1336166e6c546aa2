"""The comparison of photographs: features, the report, and the saved index."""

import html
import re
import shutil
import sys
from dataclasses import replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from sklearn_simlearn.comparison import _command_line as command
from sklearn_simlearn.comparison._photographs import READING, read_photographs
from sklearn_simlearn.comparison._task import Features, make_task
from sklearn_simlearn.feature_extraction import LocalDescriptors
from sklearn_simlearn.index import SimilarityIndex

cv2 = pytest.importorskip("cv2")

N_OBJECTS, N_VIEWS = 6, 4


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Write views of textured objects in two colours, and a file without an image."""
    root = tmp_path_factory.mktemp("photographs")
    rng = np.random.default_rng(0)
    for i in range(N_OBJECTS):
        texture = rng.integers(0, 256, (14, 14, 3), dtype=np.uint8)
        texture[:, :, i % 2] //= 4
        texture = cv2.resize(texture, (140, 140), interpolation=cv2.INTER_CUBIC)
        place = root / f"object {i}"
        place.mkdir()
        for view in range(N_VIEWS):
            turn = cv2.getRotationMatrix2D((70, 70), 20 * view, 1 - 0.05 * view)
            image = cv2.warpAffine(texture, turn, (140, 140), borderValue=(99, 99, 99))
            cv2.imwrite(str(place / f"view {view}.jpg"), image)
    (root / "object 0" / "notes.jpg").write_text("no image")
    return root


@pytest.fixture(scope="module")
def source(folder):
    return read_photographs(str(folder), seed=0)


@pytest.fixture
def few_rows(monkeypatch):
    names = ("cosine", "cosine of tf-idf", "negative evidence")
    rows = [row for row in command.ROWS if row.name in names]
    monkeypatch.setattr(command, "ROWS", rows)


@pytest.fixture
def network(tmp_path):
    """Write a network that returns the mean colour of an image."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("ReduceMean", ["x", "axes"], ["out"], keepdims=0)],
        "network",
        [helper.make_tensor_value_info("x", kind, ("n", 3, "h", "w"))],
        [helper.make_tensor_value_info("out", kind, ("n", 3))],
        [helper.make_tensor("axes", onnx.TensorProto.INT64, (2,), [2, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.save(model, tmp_path / "colours.onnx")
    return tmp_path / "colours.onnx"


def test_comparison_report_and_index(folder, few_rows, run, tmp_path, monkeypatch):
    report, saved = tmp_path / "report.html", tmp_path / "index"
    monkeypatch.chdir(tmp_path)
    code, out, err = run("--images", folder, "--report", report, "--save", saved)
    assert code == 0
    assert "24 photographs of 6 classes" in " ".join(out.split())
    assert "1 of 25 images cannot be read" in err
    assert "notes.jpg is not a JPEG" in err
    table = [line.split("  ")[0] for line in out.splitlines()]
    for name in ("cosine of colours", "cosine of Gist", "cosine of words"):
        assert name in table
    assert {"all features", "negative evidence"} <= set(table)
    assert not {"cosine", "cosine of tf-idf"} & set(table)
    page = html.unescape(report.read_text(encoding="utf-8"))
    assert "data:image/jpeg" in page
    assert re.search(r"Query object \d/view \d.jpg · label object \d", page)
    # The advised similarity is saved.
    advised = re.search(r"^Use (.*?)[.,]", out, re.M)[1]
    assert f"saved {advised}, fitted on" in " ".join(out.split())
    index = SimilarityIndex.load(saved, trusted=())
    assert index.ids_[5] == "object 1/view 1.jpg"
    assert index.metadata_[5] == {"class": "object 1"}
    code, out, _ = run("search", saved, folder / "object 1" / "view 0.jpg", "-k", 3)
    assert code == 0
    assert "object 1/view 0.jpg" in out


@pytest.mark.parametrize("name", ["cosine of colours", "all features", "OASIS"])
def test_saved_index_is_the_measured_similarity(source, tmp_path, name):
    task = make_task(source.X, source.y, None, "samples", 0)
    rows = {row.name: row for row in source.list_rows(task, command.ROWS)}
    row, own = rows[name], rows[name].find_task(task)
    estimator = row.make(own).fit(own.X_train, own.y_train)
    expected = estimator.similarity(row.features.X[:3], row.features.X)
    with pytest.MonkeyPatch.context() as patched:
        # The features are not computed again.
        patched.setattr(LocalDescriptors, "transform", None)
        source.make_index(estimator, row).save(tmp_path)
    index = SimilarityIndex.load(tmp_path, trusted=())
    scores, ids = index.search(source.paths[:3], k=len(source.paths))
    order = {name: i for i, name in enumerate(source.names)}
    for i in range(3):
        found = np.array([order[id_] for id_ in ids[i]])
        assert_allclose(scores[i], expected[i, found], rtol=1e-5, atol=1e-6)


def test_rows_use_the_features_that_rank_the_training_half_best(source):
    task = make_task(source.X, source.y, None, "samples", 0)
    rows = {row.name: row for row in source.list_rows(task, command.ROWS)}
    best = max(reversed(source.scores), key=source.scores.get)
    assert rows["OASIS"].features is source.kinds[best]
    assert f"Rows that do not name their features use {best}." in source.describe(task)
    tied = replace(source, scores=dict.fromkeys(source.kinds, 1.0))
    assert tied._find_best() == list(source.kinds)[-1]
    # Held-out photographs have no influence on the choice.
    order = np.arange(len(source.paths))
    order[task.test_rows] = task.test_rows[::-1]
    kinds = {
        name: Features(kind.steps, kind.X[order], kind.code)
        for name, kind in source.kinds.items()
    }
    changed = replace(source, kinds=kinds, scores={})
    changed.list_rows(make_task(source.X, source.y, None, "samples", 0), [])
    assert changed.scores == source.scores


def test_suggested_lines_make_the_same_features(source):
    task = make_task(source.X, source.y, None, "samples", 0)
    rows = {row.name: row for row in source.list_rows(task, command.ROWS)}
    for name in ("cosine of colours", "cosine of words", "all features"):
        names: dict = {}
        exec("\n".join(rows[name].features.code), names)
        assert abs(names["X"] - rows[name].features.X).max() == 0
        assert_array_equal(names["y"], source.y)


def test_network(folder, few_rows, run, tmp_path, network, monkeypatch):
    monkeypatch.chdir(tmp_path)
    sources = []

    def read(*args, **options):
        sources.append(read_photographs(*args, **options))
        return sources[-1]

    with monkeypatch.context() as patched:
        patched.setattr(command, "read_photographs", read)
        code, out, _ = run("--images", folder, "--onnx", network.name)
    assert code == 0
    assert "cosine of network" in out
    assert " with network" in " ".join(out.split())
    (source,) = sources
    assert list(source.kinds)[-1] == "network"
    assert source.default.name == "cosine of network"
    # The saved path does not depend on the current folder.
    assert source.kinds["network"].steps[0].model_path == str(network)
    code, _, err = run("--onnx", network)
    assert (code, err) == (2, "sklearn_simlearn: --onnx requires --images\n")
    (tmp_path / "wrong.onnx").write_text("not a network")
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(LocalDescriptors, "transform", None)  # before any work
        code, _, err = run("--images", folder, "--onnx", tmp_path / "wrong.onnx")
    assert code == 2
    assert "is not a network in ONNX" in err


def test_bad_folders(run, tmp_path):
    code, _, err = run("--images", tmp_path / "none")
    assert code == 2
    assert "neither a folder nor a CSV file" in err
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.jpg").write_text("no image")
    code, _, err = run("--images", tmp_path)
    assert code == 2
    assert "1 of 1 images cannot be read" in err


def test_photographs_without_labels(folder, few_rows, run, tmp_path):
    place = tmp_path / "photographs"
    place.mkdir()
    for i in range(3):
        shutil.copy(folder / f"object {i}" / "view 0.jpg", place / f"{i}.jpg")
    code, out, _ = run("--images", place, "--save", tmp_path / "index")
    assert code == 0
    assert "saved cosine of words with all 3 items" in " ".join(out.split())
    index = SimilarityIndex.load(tmp_path / "index", trusted=())
    assert index.ids_.tolist() == ["0.jpg", "1.jpg", "2.jpg"]
    assert index.metadata_ is None


def test_each_step_is_shown(folder, monkeypatch):
    shown = []
    monkeypatch.setattr(
        "sklearn_simlearn._core.progress._Lines.draw",
        lambda self, name, step: shown.append((name, step)),
    )
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    read_photographs(str(folder))
    names = list(dict.fromkeys(name for name, _ in shown))
    assert names == [READING, "colours", "Gist", "words"]
    steps = [step for name, step in shown if name == "words"]
    assert "local features: 24 of 24" in steps
    assert any(step.startswith("cells of words: ") for step in steps)
