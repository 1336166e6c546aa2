"""
========================================================
Memory vectors: which query represents five images best?
========================================================

If several images of an object are available, the query is often their average.
:class:`~sklearn_simlearn.MemoryVectorQuery` instead uses the shortest vector that is
equally similar to all of them. Similar images then share their weight. This example
compares both. The maths is in the :ref:`User Guide <memory>`.
"""

# %%
# Weights of images
# -----------------
# The images show the digit 5: three in a similar handwriting, two in others. The Gram
# matrix shows the similarities between the images. Images that are similar to others
# have lower weights.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.display import GramDisplay
from sklearn_simlearn.model_selection import make_query_sets

X, y = load_digits(return_X_y=True)
X, y = X[::2], y[::2]
Z = PCA(32, random_state=0).fit_transform(X)

queries = [788, 591, 188, 465, 846]
weights, (gram,) = (
    MemoryVectorQuery(alpha=0)
    .fit(Z)
    .query_weights(Z[queries], groups=np.zeros(5), return_gram=True)
)

images = X[queries].reshape(-1, 8, 8)
_ = GramDisplay(gram, weights, images=images, name="Five images of a digit").plot(
    cmap="gray_r"
)

# %%
# Comparison of methods
# ---------------------
# :func:`~sklearn_simlearn.model_selection.make_query_sets` draws sets of five images of
# one digit. Each set searches all other images, and the score is the mean average
# precision. The fewer dimensions remain after PCA, the worse the plain memory vector
# (``alpha=0``) ranks. It must satisfy five constraints in a few dimensions, so it
# becomes long and has large scores with unrelated items. The default ridge prevents
# this. The maximum of the five scores (``method="max"``) needs five searches.

dimensions = [4, 6, 8, 12, 16, 32, 48]
sets = make_query_sets(y, size=5, random_state=0)
methods = {
    "average query": MemoryVectorQuery(method="sum"),
    "memory vector, alpha=0": MemoryVectorQuery(alpha=0),
    "memory vector, default": MemoryVectorQuery(),
    "largest score": MemoryVectorQuery(method="max"),
}
scores = {name: [] for name in ["one image", *methods]}
for d in dimensions:
    Z = PCA(d, random_state=0).fit_transform(X)
    scores["one image"].append(MemoryVectorQuery().fit(Z).score(Z, y))
    for name, memory in methods.items():
        scores[name].append(memory.fit(Z).score(Z, y, groups=sets))

figure, ax = plt.subplots(layout="constrained")
colors = ["#9a9a9a", "#D55E00", "#E69F00", "#0072B2", "#009E73"]
for (name, values), color, marker in zip(scores.items(), colors, "xs^oD", strict=True):
    ax.plot(dimensions, values, marker=marker, color=color, label=name)
ax.set(
    title="Five images of a digit as one query",
    xlabel="dimensions after PCA",
    ylabel="mean average precision",
    xscale="log",
)
ax.set_xticks(dimensions, dimensions)
ax.minorticks_off()
_ = ax.legend(loc="lower right", frameon=False)

# %%
# The ratio of queries to dimensions
# ----------------------------------
# Random directions show the reason. The squared length of a vector is the variance of
# its scores with unrelated items, in units of 1 / d. For the sum it grows like n. For
# the plain memory vector it follows :math:`n / (1 - n / d)`, with a pole at n = d; for
# larger n, no vector satisfies all constraints, and the least-squares solution is used.
# For small n / d, both lengths agree, so the memory vector has no disadvantage.

d, n_sets = 64, 100
rng = np.random.default_rng(0)
sizes = [1, 2, 4, 8, 16, 24, 32, 40, 48, 56, 60, 64, 68, 72, 80, 96, 128, 192, 256]
lengths = {name: [] for name in list(methods)[:3]}
for n in sizes:
    directions = rng.standard_normal((n_sets * n, d))
    groups = np.repeat(np.arange(n_sets), n)
    for name, length in lengths.items():
        M = methods[name].fit_transform(directions, groups=groups)
        length.append(np.median((M**2).sum(axis=1)))

figure, ax = plt.subplots(layout="constrained")
ratio = np.array(sizes) / d
for (name, length), color, marker in zip(
    lengths.items(), colors[1:], "s^o", strict=False
):
    ax.plot(ratio, length, marker=marker, color=color, label=name)
below = ratio[ratio < 1]
ax.plot(below, d * below / (1 - below), "k:", label="n / (1 - n / d)")
ax.set(
    title="Queries of random directions",
    xlabel="n / d",
    ylabel="squared length, median",
    xscale="log",
    yscale="log",
)
_ = ax.legend(loc="upper left", frameon=False)
