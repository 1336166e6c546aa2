"""Sequence of images in files, bytes or arrays."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed

from sklearn_simlearn._core.progress import progress, show_step
from sklearn_simlearn._core.sklearn import num_samples
from sklearn_simlearn.feature_extraction._decode import (
    MAX_FILE,
    as_pixels,
    decode,
    quiet_decoder,
    shrink,
)

# Largest number of files in a message.
MAX_NAMED = 20


class UnreadableImagesError(ValueError):
    """Error that :class:`ImageReader` raises if images cannot be read.

    Parameters
    ----------
    message : str
        Description of the fault and the remedy.

    failures : dict of {int: str}
        Faults by the number of the image.

    Attributes
    ----------
    failures : dict of {int: str}
        Faults by the number of the image.
    """

    def __init__(self, message: str, failures: dict[int, str]) -> None:
        super().__init__(message, failures)
        self.failures = failures

    def __str__(self) -> str:
        return self.args[0]


class ImageSequence(Sequence):
    """Sequence of images that are decoded on access.

    :class:`ImageReader` returns it. ``images[3]`` is an array of shape (height, width,
    3) of 8-bit red, green and blue; ``images[rows]`` for a slice, a list or a mask is
    another sequence. An image that could not be read is an empty array of shape (0, 0,
    3), so that the rows still match the labels.

    Parameters
    ----------
    sources : list
        Paths, bytes or arrays, one per image.

    max_size : int or None
        Largest number of pixels along a side. Larger images are scaled down.

    max_pixels : int
        Largest number of pixels of an image.

    failures : dict of {int: str}, default=None
        Known faults by the number of the image.

    Attributes
    ----------
    failures : dict of {int: str}
        Faults by the number of the image.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import ImageReader
    >>> images = ImageReader().fit_transform([np.zeros((40, 60, 3), dtype=np.uint8)])
    >>> len(images), images[0].shape
    (1, (40, 60, 3))
    """

    def __init__(
        self,
        sources: list,
        *,
        max_size: int | None,
        max_pixels: int,
        failures: dict[int, str] | None = None,
    ) -> None:
        self._sources = sources
        self._max_size = max_size
        self._max_pixels = max_pixels
        self.failures = failures or {}

    @property
    def shape(self) -> tuple[int]:
        """Return (n_images,), which scikit-learn's splitters require."""
        return (len(self),)

    @property
    def is_readable(self) -> np.ndarray:
        """Return the mask of the images that could be read."""
        readable = np.ones(len(self), dtype=bool)
        readable[list(self.failures)] = False
        return readable

    def __len__(self) -> int:
        return len(self._sources)

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self.read(i) for i in range(len(self)))

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, tuple) and len(rows) == 2 and rows[1] is Ellipsis:
            rows = rows[0]  # scikit-learn indexes rows like this
        rows = np.arange(len(self))[rows]
        if rows.ndim == 0:
            return self.read(int(rows))
        rows = rows.tolist()
        return ImageSequence(
            [self._sources[row] for row in rows],
            max_size=self._max_size,
            max_pixels=self._max_pixels,
            failures={
                i: self.failures[row]
                for i, row in enumerate(rows)
                if row in self.failures
            },
        )

    def __repr__(self) -> str:
        unreadable = f", {len(self.failures)} unreadable" if self.failures else ""
        return f"ImageSequence(n_images={len(self)}{unreadable})"

    def name(self, row: int) -> str:
        """Return the name of an image in messages.

        Parameters
        ----------
        row : int
            Number of the image.

        Returns
        -------
        name : str
            Path or number of the image.
        """
        source = self._sources[row]
        return source if isinstance(source, str) else f"image {row}"

    def read(self, row: int, mode: str = "rgb") -> np.ndarray:
        """Return one image.

        Parameters
        ----------
        row : int
            Number of the image.

        mode : {"rgb", "gray"}, default="rgb"
            Colours or brightness. The brightness of a JPEG file is read without
            conversion.

        Returns
        -------
        pixels : ndarray of shape (height, width, 3) or (height, width), dtype uint8
        """
        if row in self.failures:
            return np.zeros((0, 0, 3) if mode == "rgb" else (0, 0), dtype=np.uint8)
        try:
            return self._decode(row, mode, self._max_size)
        except ValueError as error:
            raise ValueError(f"{self.name(row)} {error}.") from None

    def map(
        self,
        function: Callable[[np.ndarray], Any],
        *,
        mode: str = "rgb",
        n_jobs: int | None = None,
        verbose: bool = False,
        doing: str = "images",
    ) -> Iterator[Any]:
        """Return the results of a function for each image, in order.

        The number of images in memory at a time is the number of threads.

        Parameters
        ----------
        function : callable
            Function that takes the pixels of one image.

        mode : {"rgb", "gray"}, default="rgb"
            As in `read`.

        n_jobs : int, default=None
            Number of threads.

        verbose : bool, default=False
            Whether to show the progress on a terminal.

        doing : str, default="images"
            Label of the progress.

        Returns
        -------
        results : iterator
        """
        return self._in_parallel(
            lambda row: function(self.read(row, mode)), n_jobs, verbose, doing
        )

    def check(self, *, n_jobs: int | None = None, verbose: bool = False) -> Self:
        """Decode all images once, and return them with the failures.

        Parameters
        ----------
        n_jobs : int, default=None
            Number of threads.

        verbose : bool, default=False
            Whether to show the progress on a terminal.

        Returns
        -------
        images : ImageSequence
            The same images, with complete `failures`.
        """

        def find_fault(row):
            try:
                # A small size is enough, because decoders read all data of the file.
                self._decode(row, "gray", min(self._max_size or 64, 64))
            except (OSError, ValueError) as error:
                return _explain(error)

        with quiet_decoder:
            faults = self._in_parallel(find_fault, n_jobs, verbose, "check images")
            failures = {row: fault for row, fault in enumerate(faults) if fault}
        return type(self)(
            self._sources,
            max_size=self._max_size,
            max_pixels=self._max_pixels,
            failures=failures,
        )

    def _in_parallel(self, function, n_jobs, verbose, doing):
        parallel = Parallel(n_jobs, prefer="threads", return_as="generator")
        with progress([doing]) if verbose else nullcontext():
            results = parallel(delayed(function)(row) for row in range(len(self)))
            for i, result in enumerate(results):
                show_step(doing, f"{i + 1} of {len(self)}")
                yield result

    def _decode(self, row, mode, max_size):
        source = self._sources[row]
        if isinstance(source, np.ndarray):
            return shrink(as_pixels(source, mode), max_size)
        data = source if isinstance(source, bytes) else _read_file(source)
        return decode(data, mode=mode, max_size=max_size, max_pixels=self._max_pixels)


def check_sources(X) -> list:
    """Return a list of the sources of images."""
    if isinstance(X, ImageSequence):
        return X._sources
    if isinstance(X, str | bytes | os.PathLike):
        raise ValueError(
            f"Images must be a sequence; got {X!r}. Pass a list, or list a folder with "
            "sklearn_simlearn.datasets.load_image_folder."
        )
    if num_samples(X) == 0:
        raise ValueError("There are no images. At least 1 is required.")
    sources: list = []
    for source in X:
        if isinstance(source, np.bytes_ | np.str_):
            source = source.item()
        elif isinstance(source, os.PathLike):
            source = os.fspath(source)
        elif not isinstance(source, str | bytes):
            source = np.asarray(source)
            if source.ndim not in (2, 3):
                raise ValueError(
                    "Images must be paths, bytes, or arrays of 2 or 3 dimensions; got "
                    f"{source!r:.60} at position {len(sources)}."
                )
        sources.append(source)
    return sources


def _read_file(path):
    path = Path(path)
    if not path.exists():
        raise ValueError("does not exist")
    if not path.is_file():
        raise ValueError("is not a file")
    if path.stat().st_size > MAX_FILE:
        raise ValueError(f"has more than {MAX_FILE} bytes")
    return path.read_bytes()


def _explain(error):
    return getattr(error, "strerror", None) or str(error)


def describe_failures(images: ImageSequence) -> str:
    """Return a sentence that names the images that cannot be read."""
    failures = images.failures
    named = [f"{images.name(i)} {failures[i]}" for i in list(failures)[:MAX_NAMED]]
    more = len(failures) - len(named)
    if more:
        named.append(f"and {more} more; see `failures`")
    return (
        f"{len(failures)} of {len(images)} images cannot be read: {'; '.join(named)}."
    )
