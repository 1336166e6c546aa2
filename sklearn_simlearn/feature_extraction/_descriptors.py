"""Local descriptors as input, and the base of the transformers that take them."""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    TransformerMixin,
)

from sklearn_simlearn._core.docstrings import append_entries
from sklearn_simlearn._core.sklearn import DocLinkMixin, fit_context, num_samples
from sklearn_simlearn.base import replacing_state
from sklearn_simlearn.feature_extraction._local_features import LocalFeatures
from sklearn_simlearn.feature_extraction._words import StackedRows

OF_THREADS = """\
n_jobs : int, default=None
    Number of threads.
"""
OF_COMPONENTS = """\
n_features_in_ : int
    Number of components of a descriptor.
"""


class DescriptorTransformer(
    DocLinkMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator
):
    """Base of the transformers from local descriptors to one row per image.

    A subclass has the parameter `n_jobs`, sets `n_features_in_` in `_fit`, and learns
    words there.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        append_entries(cls, "Parameters", OF_THREADS)
        append_entries(cls, "Attributes", OF_COMPONENTS)

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: LocalFeatures | Sequence[ArrayLike], y: object = None) -> Self:
        """Learn words from descriptors.

        Parameters
        ----------
        X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)
            Descriptors of the training images. Their division into arrays has no effect
            on the words. Arrays may be mapped from files.

        y : Ignored
            Not used, present for API consistency.

        Returns
        -------
        self : object
            The transformer itself.
        """
        with replacing_state(self):
            self._fit(X)
        return self

    def _fit(self, X) -> None:
        raise NotImplementedError

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        return tags


def check_descriptors(X, n_components: int | None = None, *, join: bool = True):
    """Return the offsets of images among the descriptors, and the descriptors.

    Parameters
    ----------
    X : LocalFeatures, or sequence of arrays of shape (n_points, n_components)

    n_components : int, default=None
        Required number of components; any number if None.

    join : bool, default=True
        Whether to concatenate the arrays of several images. Otherwise they are used
        without a copy.

    Returns
    -------
    offsets : ndarray of shape (n_images + 1,)

    descriptors : ndarray or StackedRows of shape (n_points, n_components)
    """
    if isinstance(X, LocalFeatures):
        if X.descriptors is None:
            raise ValueError(
                "The features have no descriptors. Extract or load them with "
                "descriptors."
            )
        offsets, descriptors = X.offsets, X.descriptors
    else:
        if isinstance(X, np.ndarray) and X.ndim == 2:
            raise ValueError(
                "X is one array of 2 dimensions, but descriptors must be grouped by "
                "image. Pass LocalFeatures, or a list with one array per image."
            )
        parts = [_check_part(part, i) for i, part in enumerate(X)]
        if num_samples(parts) == 0:
            raise ValueError("There are no images: X is empty.")
        widths = {part.shape[1] for part in parts}
        if len(widths) > 1:
            raise ValueError(
                "All descriptors must have the same number of components; got "
                f"{sorted(widths)}."
            )
        offsets = np.append(0, np.cumsum([len(part) for part in parts]))
        if len(parts) == 1:
            descriptors = parts[0]
        else:
            descriptors = np.concatenate(parts) if join else StackedRows(parts)
    if n_components is not None and descriptors.shape[1] != n_components:
        raise ValueError(
            f"The descriptors have {descriptors.shape[1]} components, but those of the "
            f"training images had {n_components}."
        )
    return offsets, descriptors


def _check_part(part, i):
    part = np.asarray(part)
    if part.ndim != 2 or part.dtype.kind not in "biuf" or part.shape[1] == 0:
        raise ValueError(
            "Descriptors of an image must be numbers of shape (n_points, "
            f"n_components); got {part.dtype} of shape {part.shape} for image {i}."
        )
    return part
