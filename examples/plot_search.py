"""
===================================================
How does one serve a model, and keep it up to date?
===================================================

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
# Three queries with their results, the best first, and the scores below.

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
# More images come in and others go. A filter on the metadata restricts the search to
# the writers that came last.

index.add(X[new], ids=names[new], metadata=metadata[new])
index.remove(names[:100]).compact()
scores, ids = index.search(
    X[queries], k=8, filter=lambda metadata: metadata["writer"] >= 10
)
show("Images of the last writers")

# %%
# A new model for the same items
# ------------------------------
# With the new images there is more to learn from. The stored item of the plain form of
# OASIS is the tf-idf vector, whatever was learned. So the database stays as long as the
# weights of the words do: here the pipeline keeps the fitted ones, and trains its last
# step. An index that does not store its items refuses an estimator that encodes them in
# another way.

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
