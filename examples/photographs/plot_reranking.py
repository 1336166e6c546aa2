"""
====================================
Does re-ranking improve the results?
====================================

A histogram of visual words does not contain the positions of the words. Two images of
one object share words *in the same arrangement*; two images that are similar by chance
do not. This example re-ranks the best results of a search by geometry and by their
neighbours. The :ref:`User Guide <reranking>` describes the methods.
"""

# %%
# Images
# ------
# We generate objects as arrangements of words. An image shows two thirds of an object,
# rotated, scaled and shifted, and the same amount of clutter. Some words are replaced
# by others. The images are stored as
# :class:`~sklearn_simlearn.feature_extraction.LocalFeatures`, like features of
# photographs.

import numpy as np
from scipy import sparse

from sklearn_simlearn.feature_extraction import LocalFeatures

rng = np.random.default_rng(0)
N_OBJECTS, N_IMAGES, N_POINTS, N_WORDS, SIZE = 60, 5, 30, 500, 300


def draw_image(x, y, scale, angle, words):
    """Return the features of an object as a camera sees them, and clutter."""
    seen = rng.random(N_POINTS) < 0.66
    turn, zoom = rng.uniform(-40, 40), np.exp(rng.uniform(-0.4, 0.4))
    c, s = zoom * np.cos(np.radians(turn)), zoom * np.sin(np.radians(turn))
    shift = rng.uniform(100, 200, 2)
    words = np.where(rng.random(N_POINTS) < 0.3, rng.integers(0, N_WORDS, 30), words)
    n = 2 * seen.sum()
    place = rng.uniform(0, SIZE, (2, n))
    noise = rng.normal(0, 2, (2, n // 2))
    place[:, : n // 2] = np.stack([c * x - s * y, s * x + c * y])[:, seen]
    place[:, : n // 2] += noise + shift[:, None]
    return LocalFeatures(
        [0, n],
        *place,
        scale=np.append(scale[seen] * zoom, rng.uniform(2, 20, n // 2)),
        angle=np.append(angle[seen] + turn, rng.uniform(0, 360, n // 2)),
        words=np.append(words[seen], rng.integers(0, N_WORDS, n // 2)),
        image_sizes=[[SIZE, SIZE]],
    )


images, y = [], np.repeat(np.arange(N_OBJECTS), N_IMAGES)
for _ in range(N_OBJECTS):
    parts = (
        *rng.uniform(-80, 80, (2, N_POINTS)),
        rng.uniform(2, 20, N_POINTS),
        rng.uniform(0, 360, N_POINTS),
        rng.integers(0, N_WORDS, N_POINTS),
    )
    images += [draw_image(*parts) for _ in range(N_IMAGES)]
features = LocalFeatures.concatenate(images)
X = sparse.coo_array(
    (np.ones(features.n_points), (features.image_of_point, features.words)),
    shape=(len(features), N_WORDS),
).tocsr()
features

# %%
# Steps
# -----
# An index applies its steps in turn to the hundred best items. Every image queries the
# others. The score is the share of the first four results that show the object of the
# query.

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.reranking import (
    Diffusion,
    KReciprocal,
    QueryExpansion,
    SpatialVerification,
)
from sklearn_simlearn.similarities import CosineSimilarity

verifier = SpatialVerification().fit(features)
chains = {
    "tf-idf": [],
    "verified": [verifier],
    "expanded, verified": [QueryExpansion(2, verifier=verifier), verifier],
    "k-reciprocal": [KReciprocal()],
    "verified, k-reciprocal": [verifier, KReciprocal()],
    "verified, diffusion": [verifier, Diffusion(4)],
}
index = SimilarityIndex(CosineSimilarity(), store_items=True).fit(X)
numbers = np.arange(len(y))
precision = {}
for name, steps in chains.items():
    index.set_params(rerank=steps)
    scores, ids = index.search(X, k=4, exclude=numbers, features=features)
    precision[name] = (y[ids] == y[:, None]).mean()

import matplotlib.pyplot as plt

fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
bars = ax.barh(list(precision), list(precision.values()))
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.invert_yaxis()
ax.set(xlabel="precision of the first four results", xlim=(0, 1.1))
plt.show()

# %%
# Inliers
# -------
# `verify` returns the inliers and the transform. The left plot shows a wrong first
# result by tf-idf alone, the right plot the first result for the same query after
# verification.

first = index.set_params(rerank=[]).search(X, k=1, exclude=numbers)[1][:, 0]
second = index.set_params(rerank=[verifier]).search(
    X, k=1, exclude=numbers, features=features
)[1][:, 0]
query = np.flatnonzero((y[first] != y) & (y[second] == y))[0]
answers = [first[query], second[query]]
found = verifier.verify(features[query], [answers], return_inliers=True)

fig, axes = plt.subplots(1, 2, figsize=(9, 2.6), layout="constrained")
for ax, answer, pairs in zip(axes, answers, found.inliers[0], strict=True):
    q, d = features[query], features[int(answer)]
    ax.scatter(q.x, q.y, s=4, color="0.7")
    ax.scatter(d.x + 1.2 * SIZE, d.y, s=4, color="0.7")
    for i, j in pairs:
        ax.plot([q.x[i], d.x[j] + 1.2 * SIZE], [q.y[i], d.y[j]], "C0.-", lw=0.6)
    ax.set_title(f"inliers: {len(pairs)}")
    ax.set(aspect="equal", xticks=[], yticks=[])
plt.show()
found.transforms[0, 1].round(2)
