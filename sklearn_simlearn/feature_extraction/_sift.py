"""Local descriptors of images with OpenCV's SIFT."""

from numbers import Integral, Real

import numpy as np

from sklearn_simlearn._core.optional import import_optional
from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn._core.typing import ImagesLike
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._reader import ImageTransformer

N_COMPONENTS = 128


class LocalDescriptors(ImageTransformer):
    """SIFT features of images, computed by OpenCV.

    Parameters
    ----------
    max_features : int, default=1000
        Largest number of features per image. The strongest features are kept. Several
        features with different orientations may have the same position.

    descriptor : {"rootsift", "sift"}, default="rootsift"
        "rootsift" divides descriptors by their sum and takes square roots. Their
        Euclidean distance is then the Hellinger distance of the original descriptors,
        which ranks better [1]_. The type is float32. "sift" keeps the original
        descriptors in uint8, which take a quarter of the memory.

    contrast_threshold : float, default=0.04
        Smallest contrast of a feature. Smaller values give more features.

    References
    ----------
    .. [1] R. Arandjelovic and A. Zisserman. Three things everyone should know to
       improve object retrieval. CVPR, 2012.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn.feature_extraction import LocalDescriptors
    >>> image = np.kron(np.random.default_rng(0).random((8, 8)), np.ones((16, 16)))
    >>> features = LocalDescriptors(max_features=50).fit_transform([image])
    >>> features.descriptors.shape[1]
    128
    """

    _parameter_constraints: dict = {
        "max_features": [Interval(Integral, 1, None, closed="left")],
        "descriptor": [StrOptions({"rootsift", "sift"})],
        "contrast_threshold": [Interval(Real, 0, None, closed="left")],
        **ImageTransformer._parameter_constraints,
    }

    def __init__(
        self,
        max_features: int = 1000,
        *,
        descriptor: str = "rootsift",
        contrast_threshold: float = 0.04,
        n_jobs: int | None = None,
        verbose: bool = False,
    ):
        self.max_features = max_features
        self.descriptor = descriptor
        self.contrast_threshold = contrast_threshold
        self.n_jobs = n_jobs
        self.verbose = verbose

    def transform(self, X: ImagesLike) -> LocalFeatures:
        """Find and describe features.

        Parameters
        ----------
        X : ImageSequence, or sequence of paths, bytes or arrays
            Images. Other inputs than an :class:`ImageSequence` are read by
            :class:`ImageReader` with default parameters.

        Returns
        -------
        features : LocalFeatures
            Features, with the sizes of the images. An image that could not be read has
            no features.
        """
        found = self._map(X, self._describe, "local features", mode="gray")
        sizes, points, descriptors = zip(*found, strict=True)
        x, y, scale, angle = np.concatenate(points).T
        return LocalFeatures(
            np.append(0, np.cumsum([len(part) for part in descriptors])),
            x,
            y,
            scale,
            angle,
            descriptors=np.concatenate(descriptors),
            image_sizes=np.array(sizes),
        )

    def _describe(self, pixels):
        """Return the size of an image, and positions and descriptors of features."""
        height, width = pixels.shape
        size = max(width, 1), max(height, 1)
        dtype = np.float32 if self.descriptor == "rootsift" else np.uint8
        if pixels.size == 0:
            return size, np.zeros((0, 4)), np.zeros((0, N_COMPONENTS), dtype=dtype)
        cv2 = import_optional("cv2", "vision", "LocalDescriptors")
        sift = cv2.SIFT_create(
            nfeatures=self.max_features, contrastThreshold=self.contrast_threshold
        )
        keypoints, descriptors = sift.detectAndCompute(pixels, None)
        if descriptors is None:
            return size, np.zeros((0, 4)), np.zeros((0, N_COMPONENTS), dtype=dtype)
        # OpenCV also returns further features that are as strong as the last one.
        response = np.array([point.response for point in keypoints])
        kept = np.sort(np.argsort(-response, kind="stable")[: self.max_features])
        points = [(*p.pt, p.size, p.angle) for p in (keypoints[i] for i in kept)]
        descriptors = descriptors[kept]
        if self.descriptor == "rootsift":
            total = descriptors.sum(axis=1, keepdims=True)
            descriptors = np.sqrt(descriptors / np.maximum(total, 1))
        return size, np.array(points), descriptors.astype(dtype)
