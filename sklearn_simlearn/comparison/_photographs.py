"""A folder of photographs as word counts, for the comparison on the command line."""

import os
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from sklearn.pipeline import Pipeline, make_pipeline

from sklearn_simlearn.datasets import load_image_folder
from sklearn_simlearn.feature_extraction import (
    ImageReader,
    ImageSequence,
    LocalDescriptors,
    VisualVocabulary,
)
from sklearn_simlearn.feature_extraction._images import describe_failures

# Descriptors per word and maximum number of words, as in the papers.
POINTS_PER_WORD, MAX_WORDS = 30, 20_000


@dataclass
class Photographs:
    """Counts of visual words, with the images and the extractor.

    Attributes
    ----------
    folder : str
        The folder.

    paths : ndarray of shape (n_images,), dtype str
        Readable files.

    images : ImageSequence
        Images of these files.

    X : csr_array of shape (n_images, n_words)
        Word counts of the images.

    y : ndarray of shape (n_images,)
        Class of each image.

    extractor : Pipeline
        Fitted steps from files to word counts.

    failures : str
        Sentence on the files that could not be read; empty if all were read.
    """

    folder: str
    paths: np.ndarray
    images: ImageSequence
    X: sparse.csr_array
    y: np.ndarray
    extractor: Pipeline
    failures: str

    def extend(self, estimator) -> Pipeline:
        """Return a pipeline from files to a fitted estimator for word counts."""
        return make_pipeline(*(step for _, step in self.extractor.steps), estimator)

    def write_lines(self) -> list[str]:
        """Return lines of Python that make X and y."""
        vocabulary = self.extractor[-1]
        words = (
            f"VisualVocabulary({vocabulary.n_words}, "
            f"random_state={vocabulary.random_state})"
        )
        return [
            "from sklearn_simlearn.datasets import load_image_folder",
            "from sklearn_simlearn.feature_extraction import ImageReader",
            "from sklearn_simlearn.feature_extraction import LocalDescriptors",
            "from sklearn_simlearn.feature_extraction import VisualVocabulary",
            f"paths, y = load_image_folder({self.folder!r}, return_X_y=True)",
            'images = ImageReader(on_error="skip").fit_transform(paths)',
            "images, y = images[images.is_readable], y[images.is_readable]",
            "features = LocalDescriptors().fit_transform(images)",
            f"X = {words}.fit_transform(features)",
        ]


def read_photographs(folder: str | os.PathLike[str], seed: int) -> Photographs:
    """Count the visual words in the photographs of a folder.

    Each sub-folder is a class. Files that cannot be read are skipped. The words are
    learned from all photographs, because this does not use the labels.
    """
    data = load_image_folder(folder)
    reader = ImageReader(on_error="skip", n_jobs=-1, verbose=True)
    describe = LocalDescriptors(n_jobs=-1, verbose=True)
    images = reader.fit_transform(data.data)
    kept = images.is_readable
    if not kept.any():
        raise ValueError(describe_failures(images))
    pictures = images[kept]
    features = describe.fit_transform(pictures)
    vocabulary = VisualVocabulary(
        int(np.clip(features.n_points // POINTS_PER_WORD, 1, MAX_WORDS)),
        n_jobs=-1,
        random_state=seed,
    )
    X = vocabulary.fit_transform(features)
    reader.set_params(on_error="raise", verbose=False)
    describe.set_params(verbose=False)
    return Photographs(
        os.fspath(folder),
        data.data[kept],
        pictures,
        X,
        data.target[kept],
        make_pipeline(reader, describe, vocabulary),
        describe_failures(images) if images.failures else "",
    )
