"""ONNXDescriptors with small networks."""

import os
import pickle
import re
import shutil
import sys
from pathlib import Path

import cv2
import numpy as np
import onnx
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from onnx import TensorProto, helper, numpy_helper
from sklearn.base import clone

from sklearn_simlearn.feature_extraction import ImageReader, ONNXDescriptors
from sklearn_simlearn.feature_extraction._onnx import _compute_digest, _open_network
from sklearn_simlearn.index._photographs import compute_fingerprint

PLAIN = {"mean": (0, 0, 0), "std": (1, 1, 1)}


def save_network(path, *, shape=("n", 3, "h", "w"), factor=3.0, **options):
    """Write a network: x -> maps = relu(factor x + 1) -> means of the maps -> twice."""
    axes = [2, 3] if shape[1] == 3 else [1, 2]
    nodes = [
        helper.make_node("Mul", ["x", "factor"], ["scaled"]),
        helper.make_node("Add", ["scaled", "one"], ["shifted"]),
        helper.make_node("Relu", ["shifted"], ["maps"]),
        helper.make_node("ReduceMean", ["maps", "axes"], ["means"], keepdims=0),
        helper.make_node("Add", ["means", "means"], ["out"]),
        helper.make_node("Shape", ["x"], ["shape"]),
    ]
    graph = helper.make_graph(
        nodes,
        "network",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, (shape[0], 3))],
        [
            numpy_helper.from_array(np.float32(factor), "factor"),
            numpy_helper.from_array(np.float32(1.0), "one"),
            # Numbers, not bytes, stay in the file of the network.
            helper.make_tensor("axes", TensorProto.INT64, (2,), axes),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 9
    onnx.save(model, path, **options)
    return str(path)


def make_images(n=5, seed=0):
    rng = np.random.default_rng(seed)
    return list(rng.integers(0, 256, (n, 8, 8, 3), dtype=np.uint8))


@pytest.mark.parametrize(
    "shape", [("n", 3, 8, 8), ("n", 8, 8, 3), (2, 3, 8, 8), ("n", 3, "h", "w")], ids=str
)
def test_layouts_batches_and_layers(tmp_path, shape):
    path = save_network(tmp_path / "net.onnx", shape=shape)
    images = make_images()
    expected = np.array([3 * image.mean(axis=(0, 1)) / 255 + 1 for image in images])
    params = {**PLAIN, "image_size": 8}
    V = ONNXDescriptors(path, **params, batch_size=2).fit_transform(images)
    assert V.dtype == np.float32
    assert_allclose(V, 2 * expected, rtol=1e-5)
    for layer in ("maps", "means"):
        inner = ONNXDescriptors(path, layer, **params, n_jobs=2).fit(images)
        assert_allclose(inner.transform(images), expected, rtol=1e-5)


def test_colours_are_normalised(tmp_path):
    path = save_network(tmp_path / "net.onnx", shape=("n", 3, 8, 8))
    image = np.full((8, 8, 3), 255, dtype=np.uint8)
    mean, std = np.array([0.5, 0.25, 0.0]), np.array([0.5, 0.5, 2.0])
    V = ONNXDescriptors(path, mean=mean, std=std).fit_transform([image])
    assert_allclose(V[0], 2 * (3 * (1 - mean) / std + 1), rtol=1e-5)


def test_images_are_cut_to_their_centre(tmp_path):
    path = save_network(tmp_path / "net.onnx", shape=("n", 3, 8, 8))
    wide = np.zeros((16, 48, 3), dtype=np.uint8)
    wide[:, 16:32] = 51
    tall = wide.swapaxes(0, 1)
    small = np.full((2, 2, 3), 51, dtype=np.uint8)
    V = ONNXDescriptors(path, **PLAIN).fit_transform([wide, tall, small])
    assert_allclose(V, 2 * (3 * 0.2 + 1), rtol=1e-5)


def test_unreadable_images_get_zeros(tmp_path):
    path = save_network(tmp_path / "net.onnx")
    read = ImageReader(on_error="skip").fit_transform([*make_images(2), b"nothing"])
    V = ONNXDescriptors(path).fit_transform(read)
    assert_array_equal((V != 0).any(axis=1), [True, True, False])


def test_conventions_of_estimators(tmp_path):
    path = save_network(tmp_path / "net.onnx")
    images = make_images()
    estimator = ONNXDescriptors(path)
    for name in estimator.get_params():
        bad = clone(estimator).set_params(**{name: object()})
        with pytest.raises(ValueError, match=name):
            bad.fit(images)
    estimator.fit(images)
    V = estimator.transform(images)
    assert list(estimator.get_feature_names_out()) == [
        f"onnxdescriptors{i}" for i in range(3)
    ]
    copy = pickle.loads(pickle.dumps(estimator))
    assert_array_equal(copy.transform(images), V)
    frame = copy.set_output(transform="pandas").transform(images)
    assert_array_equal(frame.to_numpy(), V)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"layer": "nowhere"}, "has no value 'nowhere'. Some of its values are"),
        ({"layer": "shape"}, r"one row per image: its shape is \(4,\) for 1"),
        ({"mean": (0, 0)}, "mean must hold 3 numbers"),
        ({"std": (1, 0, 1)}, "std must not be 0"),
    ],
)
def test_bad_parameters(tmp_path, params, message):
    path = save_network(tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=message):
        ONNXDescriptors(path, **params).fit(make_images())


def test_bad_networks(tmp_path):
    path = save_network(tmp_path / "net.onnx", shape=("n", 4, 8, 8))
    with pytest.raises(ValueError, match=r"must accept images of shape \(n, 3"):
        ONNXDescriptors(path).fit(make_images())
    with pytest.raises(FileNotFoundError):
        ONNXDescriptors(tmp_path / "none.onnx").fit(make_images())
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"no network")
    with pytest.raises(ValueError, match=r"broken\.onnx is not a network"):
        ONNXDescriptors(broken).fit(make_images())


def test_missing_onnxruntime_names_the_extra(tmp_path, monkeypatch):
    path = save_network(tmp_path / "net.onnx")
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    _open_network.cache_clear()
    with pytest.raises(ImportError, match=re.escape(".[onnx]")):
        ONNXDescriptors(path).fit(make_images())


def test_gray_picture_is_the_same_in_all_channels(tmp_path):
    path = save_network(tmp_path / "net.onnx", shape=("n", 3, 8, 8))
    gray = cv2.cvtColor(make_images(1)[0], cv2.COLOR_RGB2GRAY)
    V = ONNXDescriptors(path, **PLAIN).fit_transform([gray])
    assert_allclose(V[0], V[0, 0], rtol=1e-6)


def test_another_network_under_the_same_path_is_refused(tmp_path):
    path, images = save_network(tmp_path / "net.onnx"), make_images()
    first = ONNXDescriptors(path, image_size=8).fit(images)
    moved = shutil.copy(path, tmp_path / "copy.onnx")
    same = ONNXDescriptors(moved, image_size=8).fit(images)
    assert compute_fingerprint([first]) == compute_fingerprint([same])
    save_network(path, factor=4.0)
    os.utime(path, ns=(0, 0))  # a different time even on a coarse clock
    with pytest.raises(ValueError, match="not the network that the transformer was"):
        first.transform(images)
    other = ONNXDescriptors(path, image_size=8).fit(images)
    assert compute_fingerprint([other]) != compute_fingerprint([same])


def test_weights_in_another_file_are_a_part_of_the_network(tmp_path):
    """PyTorch exports a network with its weights in a file next to it."""
    options = {
        "save_as_external_data": True,
        "location": "net.onnx.data",
        "size_threshold": 0,
        "convert_attribute": False,
    }
    images, path, weights = (
        make_images(),
        tmp_path / "net.onnx",
        tmp_path / "net.onnx.data",
    )
    save_network(path, **options)
    first = ONNXDescriptors(path, image_size=8, **PLAIN).fit(images)
    graph = path.read_bytes()
    weights.unlink()
    save_network(path, factor=4.0, **options)
    assert path.read_bytes() == graph
    os.utime(path, ns=(0, 0))
    with pytest.raises(ValueError, match="not the network that the transformer was"):
        first.transform(images)
    other = ONNXDescriptors(path, image_size=8, **PLAIN).fit(images)
    assert compute_fingerprint([other]) != compute_fingerprint([first])
    single = save_network(tmp_path / "single.onnx", factor=4.0)
    expected = ONNXDescriptors(single, image_size=8, **PLAIN).fit_transform(images)
    assert_array_equal(other.transform(images), expected)


@pytest.mark.parametrize("location", ["../other.data", "/dev/zero"])
def test_weights_outside_of_the_folder_are_not_read(location, tmp_path):
    path = save_network(tmp_path / "net.onnx")
    network = onnx.load(path)
    (tmp_path.parent / "other.data").write_bytes(bytes(4096))
    tensor = network.graph.initializer[0]
    tensor.data_location = onnx.TensorProto.EXTERNAL
    tensor.ClearField("raw_data")
    tensor.external_data.add(key="location", value=location)
    Path(path).write_bytes(network.SerializeToString())
    with pytest.raises(ValueError, match=r"not a network|not a file in its folder"):
        ONNXDescriptors(path, image_size=8, **PLAIN).fit(make_images())
    with pytest.raises(ValueError, match="not a file in its folder"):
        _compute_digest(path)
