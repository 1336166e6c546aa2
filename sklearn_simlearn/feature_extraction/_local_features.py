"""Local features of many images: positions, descriptors and words."""

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from sklearn_simlearn._core.storage import HEADER, open_folder, write_folder

KIND = "local features"
GEOMETRY = ("x", "y", "scale", "angle")
OF_POINTS = (*GEOMETRY, "descriptors", "words")
DESCRIPTOR_TYPES = ("uint8", "float16", "float32", "float64")

# Number of values that are checked at a time, to avoid a copy of all of them.
BLOCK = 2**20


class LocalFeatures:
    """Local features of several images, concatenated.

    A feature has a position, a scale and an angle in its image. It may have a
    descriptor, and a visual word after a vocabulary has assigned one. Images are
    indexed like the rows of an array: ``len(features)`` is the number of images, and
    ``features[rows]`` are the features of some images.

    Parameters
    ----------
    offsets : array-like of shape (n_images + 1,)
        The features of image i are those from ``offsets[i]`` to ``offsets[i + 1] - 1``.

    x, y : array-like of shape (n_points,)
        Positions, in pixels from the left and from the top.

    scale : array-like of shape (n_points,)
        Diameters of the described regions in pixels; positive.

    angle : array-like of shape (n_points,)
        Orientations in degrees.

    descriptors : array-like of shape (n_points, n_components), default=None
        One descriptor per feature, of type uint8, float16, float32 or float64.

    words : array-like of shape (n_points,), default=None
        Visual words, as integers from 0.

    image_sizes : array-like of shape (n_images, 2), default=None
        Width and height of every image in pixels.

    Attributes
    ----------
    offsets : ndarray of shape (n_images + 1,), dtype int64

    x, y, scale, angle : ndarray of shape (n_points,), dtype float32

    descriptors : ndarray of shape (n_points, n_components) or None

    words : ndarray of shape (n_points,), dtype int32, or None

    image_sizes : ndarray of shape (n_images, 2), dtype int32, or None

    Examples
    --------
    Two images, with two features and with one:

    >>> from sklearn_simlearn.feature_extraction import LocalFeatures
    >>> features = LocalFeatures(
    ...     [0, 2, 3], x=[5, 9, 4], y=[1, 7, 4], scale=[2, 3, 2], angle=[0, 90, 45]
    ... )
    >>> features
    LocalFeatures(n_images=2, n_points=3)
    >>> features[1].x
    array([4.], dtype=float32)
    """

    def __init__(
        self,
        offsets: ArrayLike,
        x: ArrayLike,
        y: ArrayLike,
        scale: ArrayLike,
        angle: ArrayLike,
        descriptors: ArrayLike | None = None,
        words: ArrayLike | None = None,
        image_sizes: ArrayLike | None = None,
    ) -> None:
        self.offsets = _check_offsets(offsets)
        n_points = int(self.offsets[-1])
        self.x = _check_geometry("x", x, n_points)
        self.y = _check_geometry("y", y, n_points)
        self.scale = _check_geometry("scale", scale, n_points)
        self.angle = _check_geometry("angle", angle, n_points)
        self.descriptors = _check_descriptors(descriptors, n_points)
        self.words = _check_words(words, n_points)
        self.image_sizes = _check_image_sizes(image_sizes, len(self))

    # -- images as rows --

    @property
    def shape(self) -> tuple[int]:
        """Return (n_images,), which scikit-learn's splitters require."""
        return (len(self),)

    @property
    def n_points(self) -> int:
        """Return the number of features of all images."""
        return len(self.x)

    @property
    def points_per_image(self) -> np.ndarray:
        """Return the number of features of each image."""
        return np.diff(self.offsets)

    @property
    def image_of_point(self) -> np.ndarray:
        """Return the image of each feature."""
        return np.repeat(np.arange(len(self)), self.points_per_image)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator["LocalFeatures"]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, rows: Any) -> "LocalFeatures":
        """Return the features of some images, in the order of `rows`.

        For an integer, return the features of one image. Features of consecutive images
        share memory with this object.
        """
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn indexes rows like this
        images = np.atleast_1d(np.arange(len(self))[rows])
        if images.ndim != 1:
            raise IndexError("Images are indexed by one integer, slice, list or mask.")
        counts = self.points_per_image[images]
        offsets = np.append(0, np.cumsum(counts))
        if len(images) == 0:
            points = slice(0, 0)
        elif (np.diff(images) == 1).all():
            points = slice(self.offsets[images[0]], self.offsets[images[-1] + 1])
        else:
            points = np.arange(offsets[-1]) + np.repeat(
                self.offsets[images] - offsets[:-1], counts
            )
        return self._make(
            offsets,
            {name: array[points] for name, array in self._point_arrays().items()},
            None if self.image_sizes is None else self.image_sizes[images],
        )

    def replace_words(self, words: ArrayLike) -> "LocalFeatures":
        """Return the same features with other words.

        Parameters
        ----------
        words : array-like of shape (n_points,)
            Word of each point.

        Returns
        -------
        features : LocalFeatures
            Features that share all other arrays with this object.
        """
        words = _check_words(words, self.n_points)
        return self._make(
            self.offsets, {**self._point_arrays(), "words": words}, self.image_sizes
        )

    @classmethod
    def concatenate(cls, parts: Sequence["LocalFeatures"]) -> Self:
        """Concatenate the images of several objects.

        If one of the objects has no words, the result has no words. This holds for the
        other optional arrays, too.

        Parameters
        ----------
        parts : sequence of LocalFeatures
            At least one.

        Returns
        -------
        features : LocalFeatures
        """
        parts = list(parts)
        if not parts:
            raise ValueError("There is nothing to concatenate. Pass at least one part.")
        names = [
            name
            for name in parts[0]._point_arrays()
            if all(getattr(part, name) is not None for part in parts)
        ]
        have_sizes = all(part.image_sizes is not None for part in parts)
        counts = np.concatenate([part.points_per_image for part in parts])
        return cls._make(
            np.append(0, np.cumsum(counts)),
            {n: np.concatenate([getattr(part, n) for part in parts]) for n in names},
            np.concatenate([part.image_sizes for part in parts])
            if have_sizes
            else None,
        )

    @classmethod
    def _make(cls, offsets, point_arrays, image_sizes):
        """Return an object of valid arrays, without checks."""
        self = cls.__new__(cls)
        self.offsets, self.image_sizes = offsets, image_sizes
        for name in OF_POINTS:
            setattr(self, name, point_arrays.get(name))
        return self

    def _point_arrays(self):
        return {n: getattr(self, n) for n in OF_POINTS if getattr(self, n) is not None}

    def __repr__(self) -> str:
        extras = [f"n_images={len(self)}", f"n_points={self.n_points}"]
        if self.descriptors is not None:
            extras.append(f"n_components={self.descriptors.shape[1]}")
        extras += [n for n in ("words", "image_sizes") if getattr(self, n) is not None]
        return f"LocalFeatures({', '.join(extras)})"

    # -- storage --

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Store the features in a folder. Replace features that the folder holds.

        A process that opens the folder during a save sees either the old or the new
        features. If a save is interrupted, the old features are kept. Arrays are stored
        as .npy files with checksums; nothing is pickled.

        Parameters
        ----------
        folder : path-like
            Folder, created if it does not exist.
        """
        if (Path(folder) / HEADER).exists() and not _holds_features(folder):
            raise ValueError(
                f"{folder} holds other data than local features, such as an index. "
                "Save the features in another folder."
            )
        write_folder(folder, {"kind": KIND}, self._to_arrays())

    @classmethod
    def load(
        cls,
        folder: str | os.PathLike[str],
        *,
        mmap: bool = True,
        verify: bool = False,
    ) -> Self:
        """Open features that `save` stored.

        All arrays except the descriptors are read and checked. Nothing is unpickled.

        Parameters
        ----------
        folder : path-like
            The folder.

        mmap : bool, default=True
            Whether to map the arrays into memory instead of reading them. Then they may
            be larger than the memory.

        verify : bool, default=False
            Whether to check the checksums of memory-mapped descriptors, too. This reads
            all descriptors. Without `mmap`, they are always checked.

        Returns
        -------
        features : LocalFeatures
            Features with read-only arrays.
        """
        header, arrays, _ = open_folder(folder, mmap=mmap, verify=verify)
        if header.get("kind") != KIND:
            raise ValueError(f"{folder} does not hold local features.")
        arrays.verify_all(name for name in arrays if name != "descriptors")
        try:
            return cls._from_arrays(arrays)
        except ValueError as error:
            raise ValueError(
                f"The features in {folder} are damaged: {error} Extract them again."
            ) from None

    def _to_arrays(self):
        arrays = {"offsets": self.offsets, **self._point_arrays()}
        if self.image_sizes is not None:
            arrays["image_sizes"] = self.image_sizes
        return arrays

    @classmethod
    def _from_arrays(cls, arrays):
        """Return features from stored arrays; raise unless the arrays are valid."""
        missing = {"offsets", *GEOMETRY} - set(arrays)
        if missing:
            raise ValueError(f"{', '.join(sorted(missing))} missing.")
        names = ("offsets", *OF_POINTS, "image_sizes")
        return cls(**{name: arrays[name] for name in names if name in arrays})


def _holds_features(folder):
    try:
        return open_folder(folder)[0].get("kind") == KIND
    except ValueError:
        return False


def _check_offsets(offsets):
    offsets = np.asarray(offsets)
    if offsets.ndim != 1 or len(offsets) == 0 or offsets.dtype.kind not in "iu":
        raise ValueError(
            "offsets must be a one-dimensional array of n_images + 1 integers; got "
            f"{offsets.dtype} of shape {offsets.shape}."
        )
    # Values are compared, because a difference of unsigned integers is never negative.
    if offsets[0] != 0 or (offsets[1:] < offsets[:-1]).any():
        raise ValueError("offsets must start at 0 and never descend.")
    return np.ascontiguousarray(offsets, dtype=np.int64)


def _check_geometry(name, values, n_points):
    values = np.asarray(values)
    if values.shape != (n_points,) or (values.dtype.kind not in "fiu" and n_points):
        raise ValueError(
            f"{name} must hold {n_points} numbers to match offsets; got {values.dtype} "
            f"of shape {values.shape}."
        )
    with np.errstate(over="ignore"):
        values = np.ascontiguousarray(values, dtype=np.float32)
    for start in range(0, n_points, BLOCK):
        block = values[start : start + BLOCK]
        if not np.isfinite(block).all():
            raise ValueError(f"{name} must be finite in single precision.")
        if name == "scale" and block.min() <= 0:
            raise ValueError("scale must be positive.")
    return values


def _check_descriptors(descriptors, n_points):
    if descriptors is None:
        return None
    descriptors = np.asarray(descriptors)
    if (
        descriptors.ndim != 2
        or len(descriptors) != n_points
        or descriptors.dtype.name not in DESCRIPTOR_TYPES
    ):
        raise ValueError(
            f"descriptors must have {n_points} rows to match offsets, and one of the "
            f"types {', '.join(DESCRIPTOR_TYPES)}; got {descriptors.dtype} of shape "
            f"{descriptors.shape}."
        )
    return np.ascontiguousarray(descriptors)


def _check_words(words, n_points):
    if words is None:
        return None
    words = np.asarray(words)
    if words.shape != (n_points,) or (words.dtype.kind not in "iu" and n_points):
        raise ValueError(
            f"words must hold {n_points} integers to match offsets; got {words.dtype} "
            f"of shape {words.shape}."
        )
    if n_points and (words.min() < 0 or words.max() >= 2**31):
        raise ValueError("words must be integers from 0 to 2**31 - 1.")
    return np.ascontiguousarray(words, dtype=np.int32)


def _check_image_sizes(image_sizes, n_images):
    if image_sizes is None:
        return None
    image_sizes = np.asarray(image_sizes)
    if image_sizes.shape != (n_images, 2) or (
        image_sizes.dtype.kind not in "iu" and n_images
    ):
        raise ValueError(
            "image_sizes must hold a width and a height, both integers, for each of "
            f"the {n_images} images; got {image_sizes.dtype} of shape "
            f"{image_sizes.shape}."
        )
    if n_images and (image_sizes.min() < 1 or image_sizes.max() >= 2**31):
        raise ValueError("image_sizes must be integers from 1 to 2**31 - 1.")
    return np.ascontiguousarray(image_sizes, dtype=np.int32)
