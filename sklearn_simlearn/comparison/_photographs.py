"""Folder of photographs with several kinds of features, for the command line."""

import os
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.pipeline import FeatureUnion, make_pipeline

from sklearn_simlearn._core.optional import has_faiss
from sklearn_simlearn._core.progress import progress
from sklearn_simlearn._core.rows import are_counts
from sklearn_simlearn._core.unwrap import find_model
from sklearn_simlearn.comparison._recipe import write_features
from sklearn_simlearn.comparison._rows import Row
from sklearn_simlearn.comparison._source import Source
from sklearn_simlearn.comparison._task import Features, Task
from sklearn_simlearn.compose import SimilarityUnion
from sklearn_simlearn.datasets import load_image_folder
from sklearn_simlearn.feature_extraction import (
    ColorHistograms,
    GistDescriptors,
    ImageReader,
    ImageSequence,
    LocalDescriptors,
    ONNXDescriptors,
    VisualVocabulary,
)
from sklearn_simlearn.feature_extraction._images import describe_failures
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

# Number of descriptors per word, and maximum number of words, as in the papers.
POINTS_PER_WORD, MAX_WORDS = 30, 20_000

# Rows that are replaced by a cosine of each kind of features.
COSINES = ("cosine", "cosine of tf-idf")

# First step of the progress.
READING = "reading photographs"

# Name of the combination of all kinds of features.
TOGETHER = "all features"


@dataclass
class PhotographSource(Source):
    """Photographs with several kinds of features.

    `X` is the default kind: the network if there is one, otherwise words.

    Attributes
    ----------
    paths, names : ndarray of shape (n_images,), dtype str
        Readable files, and their paths below the folder.

    class_names : list of str
        Class of each photograph; empty for distractors.

    images : ImageSequence
        Images of these files.

    reader : ImageReader
        First step of a saved pipeline.

    kinds : dict of Features
        Features by their name.

    failures : str
        Sentence about the files that could not be read; empty if all were read.

    scores : dict of float
        Mean average precision of the cosine on the training half, by kind.
    """

    paths: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=str))
    names: np.ndarray = field(default_factory=lambda: np.empty(0, dtype=str))
    class_names: list[str] = field(default_factory=list)
    images: ImageSequence | None = None
    reader: ImageReader | None = None
    kinds: dict[str, Features] = field(default_factory=dict)
    failures: str = ""
    scores: dict[str, float] = field(default_factory=dict)

    def describe(self, task: Task) -> str:
        """Return sentences about the data, the split and the features."""
        scores = ", ".join(f"{s:.3f} with {name}" for name, s in self.scores.items())
        return (
            f"{self.name}: {len(self.paths)} photographs of "
            f"{len(np.unique(self.y[self.y >= 0]))} classes, {len(task.train_rows)} to "
            f"fit, {len(task.test_rows)} held out by {task.split}; each held-out "
            f"photograph queries the others. On the training half, the mAP of the "
            f"cosine is {scores}. Rows that do not name their features use "
            f"{self._find_best()}."
        )

    def describe_index(self) -> str:
        """Describe the training data and the items of a saved index."""
        return f"the training half, with all {len(self.paths)} photographs"

    @property
    def default(self) -> Row:
        """Return the row for photographs without labels."""
        return self._make_cosine(next(reversed(self.kinds)))

    def load_images(self) -> ImageSequence | None:
        """Return the images of all photographs."""
        return self.images

    def list_rows(self, task: Task, rows: list[Row]) -> list[Row]:
        """Return cosines of all kinds, their sum, and the rows with the best kind.

        The best kind is the one whose cosine ranks the training half best.
        """
        task.names = self.names[task.test_rows]
        task.label_names = [self.class_names[row] for row in task.test_rows]
        for name, kind in self.kinds.items():
            kind.task = task.on(kind.X)
            cosine = CosineSimilarity(use_idf=are_counts(kind.X))
            X, y = kind.task.X_train, kind.task.y_train
            self.scores[name] = cosine.fit(X).score(X, y)
        best = self.kinds[self._find_best()]
        return [
            *(self._make_cosine(name) for name in self.kinds),
            self._make_union(task),
            *(replace(row, features=best) for row in rows if row.name not in COSINES),
        ]

    def make_index(self, estimator, row: Row) -> SimilarityIndex:
        """Return an index of all photographs, which takes files as queries.

        Ids are paths below the folder. The features are not computed again.
        """
        features = row.features
        assert features is not None
        pipeline = make_pipeline(self.reader, *features.steps, estimator)
        prepared = find_model(estimator).prepare_items(features.X)
        index = SimilarityIndex(pipeline, n_jobs=-1)
        metadata = None
        if any(self.class_names):
            metadata = [{"class": name} for name in self.class_names]
        return index._fit_prepared(self.paths, prepared, self.names, metadata)

    def _find_best(self):
        """Return the best kind; among ties the last, which is the network if given."""
        return max(reversed(self.scores), key=lambda name: self.scores[name])

    def _make_cosine(self, name):
        kind = self.kinds[name]
        use_idf = are_counts(kind.X)
        return Row(
            f"cosine of {name}",
            lambda task: CosineSimilarity(use_idf=use_idf),
            is_baseline=True,
            features=kind,
        )

    def _make_union(self, task):
        """Return the row of a weighted sum of the cosines of all kinds."""
        kinds = self.kinds
        X = sparse.hstack([sparse.csr_array(k.X) for k in kinds.values()], "csr")
        stops = np.cumsum([kind.X.shape[1] for kind in kinds.values()]).tolist()
        parts = [
            (
                name,
                CosineSimilarity(use_idf=are_counts(kind.X)),
                slice(stop - kind.X.shape[1], stop),
            )
            for (name, kind), stop in zip(kinds.items(), stops, strict=True)
        ]
        union = FeatureUnion(
            [(name, make_pipeline(*kind.steps)) for name, kind in kinds.items()]
        )
        features = Features([union], X, _write_code(self.name, [union]), task.on(X))
        return Row(
            TOGETHER,
            lambda task: SimilarityUnion(
                parts, holdout=task.split, random_state=task.seed
            ),
            ("labels",),
            features=features,
        )


def read_photographs(
    folder: str, network: str | None = None, *, seed: int = 0
) -> PhotographSource:
    """Describe the photographs of a folder by several kinds of features.

    Each sub-folder is a class. Files that cannot be read are skipped. Visual words are
    learned from all photographs, because this does not use the labels.

    Parameters
    ----------
    folder : str
        Folder, or CSV file.

    network : str, default=None
        Network in the ONNX format.

    seed : int, default=0
        Seed of k-means.
    """
    data = load_image_folder(folder)
    # The last kind is the default for photographs without labels.
    extract = {
        "colours": _extract_colors,
        "Gist": _extract_gist,
        "words": _extract_words,
    }
    if network is not None:
        # Open the network first, so that a wrong file raises before any work is done.
        vectors = ONNXDescriptors(os.path.abspath(network), n_jobs=-1).fit(data.data)
        extract["network"] = lambda images, seed: ([vectors], vectors.transform(images))
    kinds = {}
    with progress([READING, *extract]) as show:
        show(READING)
        reader = ImageReader(on_error="skip", n_jobs=-1)
        images = reader.fit_transform(data.data)
        kept = images.is_readable
        if not kept.any():
            raise ValueError(describe_failures(images))
        pictures = images[kept]
        for name, function in extract.items():
            show(name)
            steps, X = function(pictures, seed)
            kinds[name] = Features(steps, X, _write_code(folder, steps))
    y, default = data.target[kept], next(reversed(kinds.values()))
    class_names = np.append(data.target_names, "")
    return PhotographSource(
        folder,
        default.X,
        y if y.max() >= 0 else None,
        None,
        default.code,
        paths=data.data[kept],
        names=_find_names(folder, data.data[kept]),
        class_names=class_names[y].tolist(),
        images=pictures,
        reader=reader.set_params(on_error="raise"),
        kinds=kinds,
        failures=describe_failures(images) if images.failures else "",
    )


def _extract_words(images, seed):
    describe = LocalDescriptors(n_jobs=-1)
    features = describe.fit_transform(images)
    vocabulary = VisualVocabulary(
        int(np.clip(features.n_points // POINTS_PER_WORD, 1, MAX_WORDS)),
        search="hnsw" if has_faiss() else "exact",
        random_state=seed,
        n_jobs=-1,
    )
    return [describe, vocabulary], vocabulary.fit_transform(features)


def _extract_colors(images, seed):
    colors = ColorHistograms(n_jobs=-1)
    return [colors], colors.fit_transform(images)


def _extract_gist(images, seed):
    gist = GistDescriptors(n_jobs=-1)
    return [gist], gist.fit_transform(images)


def _find_names(folder, paths):
    """Return paths below the folder, or below the folder of a CSV file."""
    root = Path(folder) if Path(folder).is_dir() else Path(folder).parent
    return np.array([Path(os.path.relpath(path, root)).as_posix() for path in paths])


def _write_code(folder, steps):
    """Return lines of Python that make features X and labels y."""
    return [
        "from sklearn_simlearn.datasets import load_image_folder",
        "from sklearn_simlearn.feature_extraction import ImageReader",
        f"paths, y = load_image_folder({folder!r}, return_X_y=True)",
        'images = ImageReader(on_error="skip").fit_transform(paths)',
        "images, y = images[images.is_readable], y[images.is_readable]",
        *write_features(steps),
    ]
