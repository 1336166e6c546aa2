"""
==========================================
How do you search a folder of photographs?
==========================================

This example builds an index from a folder of photographs, searches it by photographs,
and compares several kinds of features. Each step is a transformer of
:mod:`sklearn_simlearn.feature_extraction`. The :ref:`User Guide <images>` describes the
steps.
"""

# %%
# A folder of photographs
# -----------------------
# The package contains photographs of places. We write them to files, with one
# sub-folder per spot. Each spot has five views. One additional file is not an image.

from pathlib import Path
from tempfile import TemporaryDirectory

import cv2
import matplotlib.pyplot as plt
import numpy as np

from sklearn_simlearn.datasets import load_image_folder, load_places

places = load_places()
folder = TemporaryDirectory()
for i, (image, spot) in enumerate(zip(places.images, places.target, strict=True)):
    file = Path(folder.name, places.target_names[spot], f"{i:03}.png")
    file.parent.mkdir(exist_ok=True)
    cv2.imwrite(str(file), image[:, :, ::-1])
Path(folder.name, "apartment 1", "notes.jpg").write_text("no image")

paths, y = load_image_folder(folder.name, return_X_y=True)
len(paths), len(np.unique(y))

# %%
# :class:`~sklearn_simlearn.feature_extraction.ImageReader` first checks which files it
# can read. By default, files that it cannot read raise an error that names all of them;
# here they are skipped.

from sklearn_simlearn.feature_extraction import ImageReader

images = ImageReader(on_error="skip").fit_transform(paths)
for row, reason in images.failures.items():
    print(Path(paths[row]).name, reason)
paths, y = paths[images.is_readable], y[images.is_readable]

# %%
# Local features
# --------------
# A circle is a SIFT feature with its position, scale and orientation.

from matplotlib.patches import Circle

from sklearn_simlearn.feature_extraction import LocalDescriptors

reader = ImageReader()
describe = LocalDescriptors(max_features=300, contrast_threshold=0.01)
views = np.flatnonzero(y == y[150])[:3]
features = describe.fit_transform(reader.fit_transform(paths[views]))
figure, axes = plt.subplots(1, 3, figsize=(9, 2.6), layout="constrained")
for ax, path, found in zip(axes, paths[views], features, strict=True):
    ax.imshow(plt.imread(path))
    for x, y_, scale, angle in zip(
        found.x, found.y, found.scale, np.radians(found.angle), strict=True
    ):
        ax.add_patch(Circle((x, y_), scale / 2, fill=False, color="yellow", lw=0.5))
        end = x + scale / 2 * np.cos(angle), y_ + scale / 2 * np.sin(angle)
        ax.plot([x, end[0]], [y_, end[1]], color="yellow", lw=0.5)
    ax.set(title=f"{found.n_points} features", xticks=[], yticks=[])

# %%
# Comparison of features
# ----------------------
# Half of the spots are used to learn vocabularies. The photographs of the others query
# each other. We compare
#
# - visual words of local features,
# - VLAD, the differences between local features and a few words,
# - words that are blocks of the image, described by texture and colour,
# - histograms of colours, and
# - Gist, the energies of filters in a grid.

from sklearn.base import clone
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.feature_extraction import (
    VLAD,
    BlockVisterms,
    ColorHistograms,
    GistDescriptors,
    VisualVocabulary,
)
from sklearn_simlearn.similarities import CosineSimilarity

train, test = y % 2 == 0, y % 2 == 1
local = make_pipeline(reader, describe)
train_features = local.fit_transform(paths[train])
test_features = local.transform(paths[test])


def score(extractor, X_train, X_test, similarity):
    model = make_pipeline(extractor, similarity).fit(X_train, y[train])
    return model[-1].score(model[:-1].transform(X_test), y[test])


tf_idf, cosine = CosineSimilarity(), CosineSimilarity(use_idf=False)
results = {}
for n_words in (100, 500, 2000):
    words = VisualVocabulary(n_words, random_state=0)
    results[f"{n_words} words"] = score(words, train_features, test_features, tf_idf)
for n_words in (8, 32):
    vlad = VLAD(n_words, random_state=0)
    results[f"VLAD of {n_words} words"] = score(
        vlad, train_features, test_features, cosine
    )
blocks = BlockVisterms(300, block_size=32, step=16, random_state=0)
results["300 blocks"] = score(
    make_pipeline(reader, blocks), paths[train], paths[test], tf_idf
)
for name, vectors in (("colours", ColorHistograms()), ("Gist", GistDescriptors())):
    results[name] = score(
        make_pipeline(reader, vectors), paths[train], paths[test], cosine
    )

figure, ax = plt.subplots(figsize=(6.4, 3.2), layout="constrained")
bars = ax.barh(list(results), list(results.values()), color="tab:blue")
ax.bar_label(bars, fmt="%.2f", padding=2)
_ = ax.set(xlabel="mean average precision on new spots", xlim=(0, 1.08))
ax.invert_yaxis()

# %%
# A larger vocabulary distinguishes more patterns. VLAD keeps the differences between
# descriptors and words, so few words are enough. Blocks and Gist are not invariant to
# rotation, and the views are rotated. Colours take the least time.
#
# One pipeline, from files to results
# -----------------------------------
# All steps and a learner form one estimator. An index of this estimator takes files as
# queries and returns files. If learning does not help, the learner keeps a hand-made
# similarity.

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn.index import SimilarityIndex

model = make_pipeline(
    reader,
    clone(describe),
    VisualVocabulary(2000, random_state=0),
    HistogramRankSVM(random_state=0),
).fit(paths[train], y[train])
index = SimilarityIndex(model).fit(paths[test], ids=paths[test])

queries = [7, 52, 101]  # rows of the items
files = paths[test][queries]
scores, answers = index.search(files, k=5, exclude=files)
[Path(path).name for path in answers[0]]

# %%
# :class:`~sklearn_simlearn.display.NeighborsDisplay` shows results by their row
# numbers.

from sklearn_simlearn.display import NeighborsDisplay

rows = {path: row for row, path in enumerate(paths[test])}
photographs = reader.transform(paths[test])
_ = NeighborsDisplay.from_predictions(
    np.vectorize(rows.get)(answers),
    y[test],
    y[test][queries],
    images=photographs,
    query_images=[photographs[row] for row in queries],
)

# %%
# A tick and a solid frame mark results of the same spot. Each spot has only four other
# views, so the fifth result always shows another spot.

folder.cleanup()
