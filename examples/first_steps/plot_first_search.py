"""
=================================
How do you search without labels?
=================================

This example builds an index of photographs, which are represented by counts of visual
words, and plots the best results of a few queries. A search needs no labels. Here,
labels only show which results are correct. The :ref:`User Guide <data>` describes how
to prepare your own data.
"""

# %%
# Photographs
# -----------
# The photographs show 23 places in three directions each. We call a direction a spot.
# Each spot has five views, which overlap but differ in rotation, zoom and exposure.
# Each photograph is a histogram that counts 200 small patterns, the visual words.

from sklearn_simlearn.datasets import load_places

places = load_places()
X, y, images = places.data, places.target, places.images
X.shape, images.shape

# %%
# The last view of each spot is a query, the other four are the database.

import numpy as np

is_query = np.arange(len(y)) % 5 == 4
X_database, X_queries = X[~is_query], X[is_query]

# %%
# The search
# ----------
# The similarity is the cosine of the counts. The index encodes the database once.
# `search` returns the similarities and the rows of the best items.

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X_database)
scores, ids = index.search(X_queries, k=8)
ids[0]

# %%
# The plot shows six queries with their results. In each row, four results can be
# correct. A tick and a solid frame mark results that show the spot of the query.

from sklearn_simlearn.display import NeighborsDisplay

shown = [1, 13, 26, 40, 51, 66]


def show(ids, name):
    return NeighborsDisplay.from_predictions(
        ids[shown],
        y[~is_query],
        y[is_query][shown],
        images=images[~is_query],
        query_images=images[is_query][shown],
        name=name,
    )


_ = show(ids, "Cosine of the counts")

# %%
# A better similarity
# -------------------
# A wall, a meadow or a curtain repeats one pattern many times. This pattern then
# dominates the counts. Square roots of the counts reduce this effect without learning.

index = SimilarityIndex(CosineSimilarity(use_idf=False, power=0.5)).fit(X_database)
_, better_ids = index.search(X_queries, k=8)
_ = show(better_ids, "Cosine of the square roots of the counts")

# %%
# Evaluation
# ----------
# The plot shows how many of the four other views are found, on average over all 69
# queries.

import matplotlib.pyplot as plt


def count_right(ids):
    right = y[~is_query][ids] == y[is_query][:, None]
    return right.cumsum(axis=1).mean(axis=0)


figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ranks = np.arange(1, 9)
ax.plot(ranks, np.minimum(ranks, 4), "k:", label="maximum")
ax.plot(ranks, count_right(better_ids), "o-", color="#0072B2", label="square roots")
ax.plot(ranks, count_right(ids), "s--", color="#D55E00", label="counts")
ax.set(
    title="Views of the same spot that are found",
    xlabel="number of results",
    ylabel="relevant results, mean",
    ylim=(0, 4.3),
)
ax.legend(loc="lower right", frameon=False)
print(f"first result relevant: {count_right(ids)[0]:.0%} of the queries by counts,")
print(f"{count_right(better_ids)[0]:.0%} by square roots")

# %%
# Next steps: choose a similarity by labels
# (:ref:`sphx_glr_auto_examples_evaluation_plot_compare.py`), learn one from labels
# (:ref:`sphx_glr_auto_examples_learners_plot_oasis.py`), or search with several
# photographs at once (:ref:`sphx_glr_auto_examples_photographs_plot_three_photos.py`).
