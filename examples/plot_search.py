"""
===================================
Serving a model: search in an index
===================================

A grid search has found a good similarity. How does one get the ten best images for a
query out of it, keep the database up to date, and retrain? Here the winner of a search
over a pipeline goes into a :class:`~sklearn_simlearn.index.SimilarityIndex`. How that
works is in the :ref:`User Guide <serving>`.
"""

# %%
# A model
# -------
# Digits as counts of visual words. Tf-idf, then a learned similarity; a grid search
# chooses the step size by mean average precision.

from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import OASIS
from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.metrics import map_scorer

digits = load_digit_words()
X, y = digits.data, digits.target
train, new, queries = slice(0, 1000), slice(1000, 1700), slice(1700, None)

search = GridSearchCV(
    make_pipeline(
        TfidfTransformer(), OASIS(holdout=None, n_triplets=20_000, random_state=0)
    ),
    {"oasis__C": [0.01, 0.1, 1.0]},
    scoring=map_scorer,
    cv=StratifiedKFold(3),
).fit(X[train], y[train])
search.best_params_

# %%
# An index
# --------
# It takes the search as it is: items and queries run through the best pipeline. Ids are
# ours, and so is the metadata, by which a query can be restricted.

import numpy as np
import pandas as pd

from sklearn_simlearn.index import SimilarityIndex

names = np.array([f"image-{i:04d}" for i in range(len(y))])
metadata = pd.DataFrame({"writer": np.arange(len(y)) // 130})
index = SimilarityIndex(search).fit(
    X[train], ids=names[train], metadata=metadata[train]
)
scores, ids = index.search(X[queries], k=8)
ids[0]

# %%
# The first result in each row below is the best. Titles show the scores.

import matplotlib.pyplot as plt


def show(query_rows, scores, ids):
    figure, axes = plt.subplots(
        len(query_rows), 1 + ids.shape[1], figsize=(8, 1.2 * len(query_rows))
    )
    for line, query, row_scores, row_ids in zip(
        axes, query_rows, scores, ids, strict=True
    ):
        line[0].imshow(digits.images[query], cmap="Blues")
        line[0].set_title("query", fontsize=8)
        found = np.searchsorted(names, row_ids)
        for ax, image, score in zip(
            line[1:], digits.images[found], row_scores, strict=True
        ):
            ax.imshow(image, cmap="gray_r")
            ax.set_title(f"{score:.2f}", fontsize=8)
    for ax in axes.ravel():
        ax.set(xticks=[], yticks=[])
    figure.tight_layout()


show([1700, 1705, 1710], scores[[0, 5, 10]], ids[[0, 5, 10]])

# %%
# Changes
# -------
# More images come in and others go. A filter on the metadata restricts the search to
# the writers that came last.

index.add(X[new], ids=names[new], metadata=metadata[new])
index.remove(names[:100]).compact()
scores, ids = index.search(
    X[queries], k=8, filter=lambda metadata: metadata["writer"] >= 10
)
show([1700, 1705, 1710], scores[[0, 5, 10]], ids[[0, 5, 10]])

# %%
# A new model for the same items
# ------------------------------
# With the new images there is more to learn from. The stored item of the plain form of
# OASIS is the tf-idf vector, whatever was learned. So the database stays as long as the
# weights of the words do: here the pipeline keeps the fitted ones, and trains its last
# step.

from sklearn.frozen import FrozenEstimator

weights = FrozenEstimator(search.best_estimator_[0])
learner = OASIS(
    search.best_params_["oasis__C"], holdout=None, n_triplets=100_000, random_state=0
)
retrained = make_pipeline(weights, learner).fit(X[:1700], y[:1700])
print(index.set_estimator(retrained))


def precision(index, k=10):
    _, ids = index.search(X[queries], k)
    return np.mean(y[np.searchsorted(names, ids)] == y[queries, None])


better = precision(index)
index.set_estimator(search)
print(f"precision of the first ten: {precision(index):.3f}, retrained {better:.3f}")

# %%
# To disk and back
# ----------------
# The folder holds arrays and a JSON header, and the estimator in the format of skops.
# Nothing is unpickled: the estimator is read only on request, and only if its types are
# trusted.

import tempfile

with tempfile.TemporaryDirectory() as folder:
    index.save(folder)
    opened = SimilarityIndex.load(folder, trusted=(), mmap=False)
np.array_equal(opened.search(X[queries])[1], index.search(X[queries])[1])
