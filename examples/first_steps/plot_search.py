"""
===========================================
How do you build, change and save an index?
===========================================

This example puts the best pipeline of a grid search into a
:class:`~sklearn_simlearn.index.SimilarityIndex`, searches it, adds and removes items,
and replaces the model. See the :ref:`User Guide <serving>`.
"""

# %%
# A model
# -------
# The data are digits as counts of visual words. The pipeline consists of tf-idf and a
# learned similarity; a grid search chooses `C` by mean average precision.

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
# The index takes the fitted search: items and queries pass through the best pipeline.
# Ids and metadata are optional. A query can be restricted by the metadata.

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
# The plot shows three queries with their results, the best first, and the scores.

from sklearn_simlearn.display import NeighborsDisplay


def show(name, shown=(0, 5, 10)):
    shown = list(shown)
    NeighborsDisplay.from_predictions(
        np.searchsorted(names, ids[shown]),
        y,
        y[queries][shown],
        similarity=scores[shown],
        images=digits.images,
        query_images=digits.images[queries][shown],
        name=name,
        cmap="gray_r",
    )


show("The first thousand images")

# %%
# Changes
# -------
# Add and remove images. A filter on the metadata restricts the search to the last
# writers.

index.add(X[new], ids=names[new], metadata=metadata[new])
index.remove(names[:100]).compact()
scores, ids = index.search(
    X[queries], k=8, filter=lambda metadata: metadata["writer"] >= 10
)
show("Images of the last writers")

# %%
# A new model for the same items
# ------------------------------
# The new images are additional training data. The stored items of the plain form of
# OASIS are the tf-idf vectors, independently of the learned matrix. They stay valid if
# the weights of the words do not change. Here the pipeline keeps the fitted weights and
# fits its last step again. If an index does not store its items and the new estimator
# encodes them differently, `set_estimator` raises an error.

from sklearn.frozen import FrozenEstimator

weights = FrozenEstimator(search.best_estimator_[0])
learner = OASIS(
    search.best_params_["oasis__C"], holdout=None, n_triplets=100_000, random_state=0
)
retrained = make_pipeline(weights, learner).fit(X[:1700], y[:1700])
index.set_estimator(retrained)


def precision(index, k=10):
    _, ids = index.search(X[queries], k)
    return np.mean(y[np.searchsorted(names, ids)] == y[queries, None])


better = precision(index)
index.set_estimator(search)
print(f"precision of the first ten: {precision(index):.3f}, retrained {better:.3f}")

# %%
# Save and load
# -------------
# The folder contains arrays, a JSON header, and the estimator in the format of skops.
# `load` does not unpickle anything. It reads the estimator only on request, and only if
# its types are trusted.

import tempfile

with tempfile.TemporaryDirectory() as folder:
    index.save(folder)
    opened = SimilarityIndex.load(folder, trusted=(), mmap=False)
np.array_equal(opened.search(X[queries])[1], index.search(X[queries])[1])
