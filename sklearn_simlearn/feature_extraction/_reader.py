"""Reader of images, and base of the transformers that take images."""

from collections.abc import Callable, Iterator
from numbers import Integral
from typing import Any, Self

import numpy as np
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from sklearn_simlearn._core.docstrings import OF_IMAGES, append_entries
from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.sklearn import (
    DocLinkMixin,
    Interval,
    StrOptions,
    fit_context,
)
from sklearn_simlearn._core.typing import ImagesLike
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn.base import replacing_state
from sklearn_simlearn.feature_extraction._images import (
    ImageSequence,
    UnreadableImagesError,
    check_sources,
    describe_failures,
)


class ImageTransformer(DocLinkMixin, TransformerMixin, BaseEstimator):
    """Base of the transformers that take images.

    A subclass has the parameters `n_jobs` and `verbose`, which are described here.
    """

    _parameter_constraints: dict = {
        "n_jobs": [Integral, None],
        "verbose": ["boolean"],
    }

    n_jobs: int | None
    verbose: bool

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        append_entries(cls, "Parameters", OF_IMAGES)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: ImagesLike, y: object = None) -> Self:
        """Check the parameters. The images are not read.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Images.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The transformer itself.
        """
        check_sources(X)
        import_optional("cv2", "vision", type(self).__name__)
        with replacing_state(self):
            self._prepare()
        return self

    def _prepare(self) -> None:
        """Check combinations of parameters and files; set attributes."""

    def _map(
        self, X: Any, function: Callable, doing: str, mode: str = "rgb"
    ) -> Iterator[Any]:
        """Return the results of a function for the pixels of each image."""
        return as_images(X).map(
            function, mode=mode, n_jobs=self.n_jobs, verbose=self.verbose, doing=doing
        )

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        tags.input_tags.two_d_array = False
        return tags


class ImageVectors(ClassNamePrefixFeaturesOutMixin, ImageTransformer):
    """Base of the transformers from an image to a vector."""

    def transform(self, X: ImagesLike) -> np.ndarray:
        """Describe images by vectors.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Images. Other inputs than an :class:`ImageSequence` are read by
            :class:`ImageReader` with default parameters.

        Returns
        -------
        V : ndarray of shape (n_images, n_features_out), dtype float32
            Vectors; zeros for an image that could not be read.
        """
        return self._transform(as_images(X))

    def _transform(self, images: ImageSequence) -> np.ndarray:
        raise NotImplementedError


class ImageReader(ImageTransformer):
    """Read images from files or arrays.

    Pictures are rotated by their EXIF orientation, converted to 8 bits, and scaled down
    to `max_size`. Transparent pixels become white. All images that cannot be read are
    listed in one message.

    Parameters
    ----------
    max_size : int or None, default=1024
        Largest number of pixels along a side. Larger images are scaled down: SIFT would
        take seconds and gigabytes for a picture of a camera. None keeps the original
        size.

    on_error : {"raise", "warn", "skip"}, default="raise"
        Behaviour if images cannot be read: raise an :class:`UnreadableImagesError`,
        warn, or continue. The error and the warning name the images. With "warn" and
        "skip", these images have no pixels, so that the rows still match the labels;
        ``images.failures`` and ``images.is_readable`` list them.

    max_pixels : int, default=100_000_000
        Largest number of pixels of a picture. Larger pictures cannot be read. The check
        happens before memory is allocated, because a file of a kilobyte may declare
        billions of pixels.

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
        **ImageTransformer._parameter_constraints,
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

    def transform(self, X: ImagesLike) -> ImageSequence:
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

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.string = True
        return tags


def as_images(X) -> ImageSequence:
    """Return an ImageSequence; use :class:`ImageReader` for other inputs."""
    return X if isinstance(X, ImageSequence) else ImageReader().transform(X)
