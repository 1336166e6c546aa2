"""
=====================================
Which photographs show the same spot?
=====================================

A first search: photographs as counts of visual words, a similarity, an index, and the
best results for a few queries as a picture. No labels are needed to search; here they
say which results are right. How to prepare data of one's own is in the
:ref:`User Guide <retrieval>`.
"""

# %%
# Photographs
# -----------
# Three directions at each of 23 places, and five views of each. The views overlap, but
# turn, zoom and expose differently. Each photograph is a histogram: how often it shows
# each of 200 small patterns, its visual words.

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
# The cosine of the counts, behind an index that encodes the database once. `search`
# gives the rows of the best items and their similarities.

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

index = SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X_database)
scores, ids = index.search(X_queries, k=8)
ids[0]

# %%
# Six queries with their results. Four in each row can be right: a tick and a solid
# frame mark those that show the query's spot.

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
# A wall, a meadow or a curtain repeats one pattern many times, and the counts give it
# most of the say. Square roots of the counts tame that: the same search, no learning.

index = SimilarityIndex(CosineSimilarity(use_idf=False, power=0.5)).fit(X_database)
_, better_ids = index.search(X_queries, k=8)
_ = show(better_ids, "Cosine of the square roots of the counts")

# %%
# How good is it?
# ---------------
# Over all 69 queries: how many of the four other views are among the results.

import matplotlib.pyplot as plt


def count_right(ids):
    right = y[~is_query][ids] == y[is_query][:, None]
    return right.cumsum(axis=1).mean(axis=0)


figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ranks = np.arange(1, 9)
ax.plot(ranks, np.minimum(ranks, 4), "k:", label="the most there can be")
ax.plot(ranks, count_right(better_ids), "o-", color="#0072B2", label="square roots")
ax.plot(ranks, count_right(ids), "s--", color="#D55E00", label="counts")
ax.set(
    title="How many of the four views are found?",
    xlabel="results looked at",
    ylabel="right results, mean",
    ylim=(0, 4.3),
)
ax.legend(loc="lower right", frameon=False)
print(f"first result right: {count_right(ids)[0]:.0%} of the queries by counts,")
print(f"{count_right(better_ids)[0]:.0%} by square roots")

# %%
# What to do next: let labels choose the similarity
# (:ref:`sphx_glr_auto_examples_plot_compare.py`), learn one from them
# (:ref:`sphx_glr_auto_examples_plot_oasis.py`), or search with several photographs at
# once (:ref:`sphx_glr_auto_examples_plot_three_photos.py`).
