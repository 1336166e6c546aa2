"""Images in files, bytes or arrays as a sequence, and their reader."""

import os
from collections.abc import Callable, Iterator, Sequence
from numbers import Integral
from pathlib import Path
from typing import Any, Self

import numpy as np
from joblib import Parallel, delayed
from sklearn.base import BaseEstimator, TransformerMixin

from sklearn_simlearn._core.progress import progress
from sklearn_simlearn._core.sklearn import (
    DocLinkMixin,
    Interval,
    StrOptions,
    fit_context,
    num_samples,
)
from sklearn_simlearn._core.warn import warn_user
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
    """Raised by :class:`ImageReader` if images cannot be read.

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
            Show the progress on a terminal.

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
            Show progress.

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

        with quiet_decoder():
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
        with progress([doing] if verbose else []) as show:
            results = parallel(delayed(function)(row) for row in range(len(self)))
            for i, result in enumerate(results):
                if verbose:
                    show(doing, f"{i + 1} of {len(self)}")
                yield result

    def _decode(self, row, mode, max_size):
        source = self._sources[row]
        if isinstance(source, np.ndarray):
            return shrink(as_pixels(source, mode), max_size)
        data = source if isinstance(source, bytes) else _read_file(source)
        return decode(data, mode=mode, max_size=max_size, max_pixels=self._max_pixels)


class ImageReader(DocLinkMixin, TransformerMixin, BaseEstimator):
    """Read images from files or arrays.

    Pictures are rotated by their EXIF orientation, converted to 8 bits, and scaled down
    to `max_size`. Transparent pixels become white. All images that cannot be read are
    listed in one message.

    Parameters
    ----------
    max_size : int or None, default=1024
        Largest number of pixels along a side. Larger images are scaled down, because
        SIFT takes seconds and gigabytes for the pictures of a camera. None keeps the
        original size.

    on_error : {"raise", "warn", "skip"}, default="raise"
        Behaviour if images cannot be read: raise an :class:`UnreadableImagesError`,
        warn, or continue. The error and the warning name the images. With "warn" and
        "skip", these images have no pixels, so that the rows still match the labels;
        ``images.failures`` and ``images.is_readable`` list them.

    max_pixels : int, default=100_000_000
        Largest number of pixels of a picture. Larger pictures cannot be read. The check
        happens before memory is allocated, because a file of a kilobyte may declare
        billions of pixels.

    n_jobs : int, default=None
        Number of threads.

    verbose : bool, default=False
        Show the progress on a terminal.

    Notes
    -----
    The first picture of JPEG, PNG, TIFF, WebP, BMP and GIF files is read. 16-bit values
    are scaled down to 8 bits. Floating-point values must be from 0 to 1, or from 0 to
    255 if one of them is above 1.

    `transform` decodes all files once to find the failures. They are decoded again when
    they are used, so that the number of pictures in memory is at most the number of
    threads.

    Damage is detected by the checksums of PNG, by missing ends of files, by misplaced
    markers in JPEG files, and by the decoders. A few wrong bytes in the middle of a
    JPEG file may change the rest of the picture without an error of the decoder.
    Compare your own checksums to detect this.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import ImageReader
    >>> images = ImageReader(max_size=8).fit_transform([np.zeros((16, 12)), np.eye(4)])
    >>> images
    ImageSequence(n_images=2)
    >>> images[0].shape, images[1].shape
    ((8, 6, 3), (4, 4, 3))
    """

    _parameter_constraints: dict = {
        "max_size": [Interval(Integral, 1, None, closed="left"), None],
        "on_error": [StrOptions({"raise", "warn", "skip"})],
        "max_pixels": [Interval(Integral, 1, None, closed="left")],
        "n_jobs": [Integral, None],
        "verbose": ["boolean"],
    }

    def __init__(
        self,
        max_size: int | None = 1024,
        on_error: str = "raise",
        *,
        max_pixels: int = 100_000_000,
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.max_size = max_size
        self.on_error = on_error
        self.max_pixels = max_pixels
        self.n_jobs = n_jobs
        self.verbose = verbose

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y=None) -> Self:
        """Check the parameters. Nothing is learned.

        Parameters
        ----------
        X : sequence
            Images, as in `transform`. They are not read.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The reader itself.
        """
        check_sources(X)
        return self

    def transform(self, X) -> ImageSequence:
        """Check which images can be read, and return them.

        Parameters
        ----------
        X : sequence of path, bytes or array
            Names of files; contents of files as bytes; or arrays of shape (height,
            width) or (height, width, n_channels). Channels are grey; grey and alpha;
            red, green and blue; or red, green, blue and alpha.

        Returns
        -------
        images : ImageSequence
            The images of `X`, in the same order.
        """
        images = ImageSequence(
            check_sources(X), max_size=self.max_size, max_pixels=self.max_pixels
        ).check(n_jobs=self.n_jobs, verbose=self.verbose)
        if images.failures and self.on_error != "skip":
            message = (
                f"{describe_failures(images)} Repair or remove them, or pass "
                'on_error="skip".'
            )
            if self.on_error == "raise":
                raise UnreadableImagesError(message, images.failures)
            warn_user(message)
        return images

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        tags.input_tags.string = True
        return tags


def as_images(X) -> ImageSequence:
    """Return an ImageSequence; use :class:`ImageReader` for other inputs."""
    return X if isinstance(X, ImageSequence) else ImageReader().transform(X)


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
    sources = []
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
