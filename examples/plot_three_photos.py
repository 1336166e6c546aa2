"""
======================================
Are three photographs better than one?
======================================

If you have several photographs of a place, you can search with each of them or with all
together. :class:`~sklearn_simlearn.MemoryVectorQuery` makes one query of several
samples (:ref:`User Guide <memory>`). This example compares three methods.
"""

# %%
# Photographs
# -----------
# The data are five views of each of 69 spots. Two views of each spot are the database,
# 138 in all. The other three are the queries.

import numpy as np

from sklearn_simlearn.datasets import load_places

places = load_places()
X, y, images = places.data.sqrt(), places.target, places.images
view = np.arange(len(y)) % 5
in_database = view >= 3
X_database, y_database = X[in_database], y[in_database]

# %%
# Number of photographs
# ---------------------
# Every choice of one, two or three of the photographs of a spot is a query, and the
# score is the mean average precision over all of them. An item is relevant if it shows
# the same spot. We compare the average, the memory vector, and the maximum of the
# similarities, which needs a search per photograph.

from itertools import combinations

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.metrics import average_precision

ways = {
    "memory vector": MemoryVectorQuery(),
    "average": MemoryVectorQuery(method="average"),
    "largest similarity": MemoryVectorQuery(method="max"),
}
sizes = [1, 2, 3]


def search(way, chosen):
    """Return similarities of sets of photographs, one per spot, to the database."""
    rows = np.isin(view, chosen)
    way.fit(X_database)
    return way.similarity(X[rows], X_database, groups=y[rows])


relevant = np.arange(69)[:, None] == y_database
scores = {
    name: [
        np.mean(
            [
                average_precision(relevant, search(way, chosen))
                for chosen in combinations(range(3), size)
            ]
        )
        for size in sizes
    ]
    for name, way in ways.items()
}

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
looks = ["#0072B2", "#D55E00", "#009E73"]
for (name, values), color, marker in zip(scores.items(), looks, "os^", strict=True):
    size = 11 if name == "memory vector" else 6  # it has the same curve as the average
    ax.plot(sizes, values, marker=marker, ms=size, color=color, label=name)
ax.set(
    title="Several photographs as one query",
    xlabel="photographs in the query",
    ylabel="mean average precision",
    xticks=sizes,
)
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
for name, (one, two, three) in scores.items():
    print(f"{name:20} {one:.3f} with one, {two:.3f} with two, {three:.3f} with three")

# %%
# Where it helps most
# -------------------
# The plot shows a spot with a large gain: the results of each of its photographs alone,
# and in the last row the results of all three together.

from sklearn_simlearn.display import NeighborsDisplay

alone = [search(ways["memory vector"], [i]) for i in range(3)]
together = search(ways["memory vector"], [0, 1, 2])
gain = average_precision(relevant, together) - np.mean(
    [average_precision(relevant, S) for S in alone], axis=0
)
spot = int(np.argsort(-gain)[1])
in_hand = images[(y == spot) & ~in_database]
all_three = np.full_like(in_hand[0], 255)
for corner, image in zip(np.ndindex(2, 2), in_hand, strict=False):
    top, left = 48 * corner[0], 64 * corner[1]
    all_three[top : top + 48, left : left + 64] = image[::2, ::2]
NeighborsDisplay.from_predictions(
    np.argsort(-np.stack([S[spot] for S in [*alone, together]]), axis=1)[:, :7],
    y_database,
    np.full(4, spot),
    images=images[in_database],
    query_images=[*in_hand, all_three],
    name=f"{places.target_names[spot]}: three photographs alone, and together",
)

# %%
# Weights of photographs
# ----------------------
# The memory vector is equally similar to all photographs of the query. A photograph
# that is similar to the others has a lower weight. The views of this spot are about
# equally similar, so the weights hardly differ, and the average is as good. The average
# is worse if a set has near duplicates (:ref:`sphx_glr_auto_examples_plot_memory.py`).

from sklearn_simlearn.display import GramDisplay

rows = (y == spot) & ~in_database
weights, (gram,) = (
    MemoryVectorQuery()
    .fit(X_database)
    .query_weights(X[rows], groups=y[rows], return_gram=True)
)
_ = GramDisplay(gram, weights, images=in_hand, name="Similarities and weights").plot()
