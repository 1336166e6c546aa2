"""Descriptors of images from a neural network in an ONNX file."""

import hashlib
import os
from collections.abc import Sequence
from functools import lru_cache
from numbers import Integral
from pathlib import Path

import numpy as np
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn.feature_extraction._reader import ImageVectors


class ONNXDescriptors(ImageVectors):
    """Activations of a neural network, one vector per image.

    Any network for images in the ONNX format can be used. Pictures are scaled to cover
    the input of the network, cropped to their centre, and normalised. Feature maps are
    averaged over all positions.

    Parameters
    ----------
    model_path : path-like
        File of the network.

    layer : str or None, default=None
        Name of an output, or of any value inside the network. If None, the first
        output. A value that is not an output requires the package onnx.

    image_size : int, default=224
        Height and width of the input, if the network does not fix them.

    mean : sequence of float, default=(0.485, 0.456, 0.406)
        Values that are subtracted from red, green and blue, which range from 0 to 1.

    std : sequence of float, default=(0.229, 0.224, 0.225)
        Values by which red, green and blue are divided after the subtraction.

    batch_size : int, default=32
        Number of images per batch, if the network does not fix it.

    Attributes
    ----------
    n_components_ : int
        Length of the vectors.

    digest_ : str
        SHA-256 digest of the file, and of files next to it that hold its weights.

    Notes
    -----
    A fitted transformer opens the file when it is used, even after the transformer was
    stored and loaded. If the file has changed since the fit, `transform` raises an
    error.
    """

    _parameter_constraints: dict = {
        "model_path": [str, os.PathLike],
        "layer": [str, None],
        "image_size": [Interval(Integral, 1, None, closed="left")],
        "mean": ["array-like"],
        "std": ["array-like"],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        **ImageVectors._parameter_constraints,
    }

    def __init__(
        self,
        model_path: str | os.PathLike[str],
        layer: str | None = None,
        *,
        image_size: int = 224,
        mean: Sequence[float] = (0.485, 0.456, 0.406),
        std: Sequence[float] = (0.229, 0.224, 0.225),
        batch_size: int = 32,
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.model_path = model_path
        self.layer = layer
        self.image_size = image_size
        self.mean = mean
        self.std = std
        self.batch_size = batch_size
        self.n_jobs = n_jobs
        self.verbose = verbose

    def _prepare(self):
        for name in ("mean", "std"):
            values = np.asarray(getattr(self, name), dtype=float)
            if values.shape != (3,) or not np.isfinite(values).all():
                raise ValueError(f"{name} must hold 3 numbers; got {values}.")
        if not np.all(self.std):
            raise ValueError("std must not be 0, because colours are divided by it.")
        self.digest_ = self._open()[0]
        _, height, width = self._input_shape()
        blank = np.zeros((1, height, width, 3), dtype=np.uint8)
        self.n_components_ = self._run(blank).shape[1]

    def _transform(self, images):
        check_is_fitted(self)
        n_fixed, height, width = self._input_shape()
        batch_size = n_fixed or self.batch_size
        V = np.zeros((len(images), self.n_components_), dtype=np.float32)
        rows, batch = [], []

        def flush():
            V[rows] = self._run(np.stack(batch))
            rows.clear()
            batch.clear()

        crops = self._map(
            images, lambda pixels: _cover(pixels, height, width), "network"
        )
        for row, crop in enumerate(crops):
            if crop is not None:
                rows.append(row)
                batch.append(crop)
            if len(batch) == batch_size:
                flush()
        if batch:
            flush()
        return V

    def _open(self):
        """Return the digest of the file, and a session."""
        return _open_network(
            os.fspath(self.model_path),
            os.stat(self.model_path).st_mtime_ns,
            self.layer,
            count_threads(self.n_jobs),
        )

    def _session(self):
        digest, session = self._open()
        if digest != self.digest_:
            raise ValueError(
                f"{self.model_path} is not the network that the transformer was "
                "fitted with. Restore the file, or fit again."
            )
        return session

    def _input_shape(self):
        """Return the fixed number of images or None, the height and the width."""
        shape = self._session().get_inputs()[0].shape
        if len(shape) != 4 or 3 not in (shape[1], shape[3]):
            raise ValueError(
                "The network must accept images of shape (n, 3, height, width) or (n, "
                f"height, width, 3); {self.model_path} accepts {shape}."
            )
        sides = shape[2:] if shape[1] == 3 else shape[1:3]
        # Sizes that a network does not fix are names instead of numbers.
        height, width = (n if isinstance(n, int) else self.image_size for n in sides)
        return shape[0] if isinstance(shape[0], int) else None, height, width

    def _run(self, batch):
        session = self._session()
        entry = session.get_inputs()[0]
        colors = batch.astype(np.float32) / 255
        colors -= np.asarray(self.mean, dtype=np.float32)
        colors /= np.asarray(self.std, dtype=np.float32)
        if entry.shape[1] == 3:
            colors = colors.transpose(0, 3, 1, 2)
        if entry.type == "tensor(float16)":
            colors = colors.astype(np.float16)
        n_images = len(colors)
        if isinstance(entry.shape[0], int):
            missing = entry.shape[0] - n_images
            colors = np.concatenate([colors, np.repeat(colors[-1:], missing, axis=0)])
        names = [output.name for output in session.get_outputs()]
        wanted = names[0] if self.layer is None else self.layer
        colors = np.ascontiguousarray(colors)
        (out,) = session.run([wanted], {entry.name: colors})
        if np.ndim(out) == 0 or len(out) != len(colors):
            raise ValueError(
                f"{wanted!r} of {self.model_path} does not have one row per image: its "
                f"shape is {np.shape(out)} for {len(colors)} images. Choose another "
                "layer."
            )
        out = np.asarray(out, dtype=np.float32)[:n_images]
        if out.ndim == 4:
            # Feature maps have the layout of the input.
            out = out.mean(axis=(2, 3) if entry.shape[1] == 3 else (1, 2))
        return out.reshape(n_images, -1)

    @property
    def _n_features_out(self):
        return self.n_components_

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_components_")

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = True
        return tags


@lru_cache(maxsize=4)
def _open_network(path, modified, layer, n_threads):
    """Return the digest and a session of a file; `modified` is a key of the cache."""
    runtime = import_optional("onnxruntime", "onnx", "ONNXDescriptors")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = n_threads
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    try:
        session = runtime.InferenceSession(path, options, providers=providers)
    except Exception as error:  # the runtime raises errors of many types
        raise ValueError(f"{path} is not a network in ONNX: {error}") from error
    names = [output.name for output in session.get_outputs()]
    if layer is not None and layer not in names:
        model = _add_output(path, layer)
        session = runtime.InferenceSession(model, options, providers=providers)
    return _compute_digest(path), session


def _compute_digest(path):
    """Return a digest of the file of a network, and of files with its weights."""
    onnx = import_optional("onnx", "onnx", "ONNXDescriptors")
    network = onnx.load(path, load_external_data=False)
    places = {
        entry.value
        for tensor in network.graph.initializer
        for entry in tensor.external_data
        if entry.key == "location"
    }
    files = [Path(path)]
    for place in sorted(places):
        files.append(files[0].parent / place)
        # An untrusted network could name any file of the machine.
        is_outside = Path(place).is_absolute() or ".." in Path(place).parts
        if is_outside or not files[-1].is_file():
            raise ValueError(
                f"{path} names weights in {place!r}, which is not a file in its folder."
            )
    digest = hashlib.sha256()
    for name in files:
        with open(name, "rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()


def _add_output(path, layer):
    """Return the model with one more output, as bytes."""
    onnx = import_optional("onnx", "onnx", f"layer={layer!r}, which is not an output,")
    model = onnx.load(path)
    values = [name for node in model.graph.node for name in node.output]
    if layer not in values:
        raise ValueError(
            f"{path} has no value {layer!r}. Some of its values are "
            f"{', '.join(values[-5:])}."
        )
    model.graph.output.append(onnx.ValueInfoProto(name=layer))
    return model.SerializeToString()


def _cover(pixels, height, width):
    """Return the centre of an image that is scaled to cover a rectangle."""
    if pixels.size == 0:
        return None
    cv2 = import_optional("cv2", "vision", "ONNXDescriptors")
    scale = max(height / pixels.shape[0], width / pixels.shape[1])
    new_height, new_width = (
        max(side, round(n * scale))
        for side, n in zip((height, width), pixels.shape[:2], strict=True)
    )
    shrinks = scale < 1
    pixels = cv2.resize(
        pixels,
        (new_width, new_height),
        interpolation=cv2.INTER_AREA if shrinks else cv2.INTER_LINEAR,
    )
    top, left = (new_height - height) // 2, (new_width - width) // 2
    return pixels[top : top + height, left : left + width]
