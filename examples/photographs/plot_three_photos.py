"""
===========================================
How do you search with several photographs?
===========================================

If you have several photographs of a place, you can search with each of them or with all
together. :class:`~sklearn_simlearn.MemoryVectorQuery` makes one query of several
samples (:ref:`User Guide <memory>`). This example compares three methods, first for
different photographs and then for bursts of near duplicates.
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
# Every choice of one, two or three photographs of a spot is a query. The score is the
# mean average precision over all choices. An item is relevant if it shows the same
# spot.

from itertools import combinations

from sklearn_simlearn import MemoryVectorQuery
from sklearn_simlearn.metrics import average_precision

memory = MemoryVectorQuery().fit(X_database)
relevant = np.arange(69)[:, None] == y_database


def search(way, samples, spots):
    """Return similarities of sets of photographs, one per spot, to the database."""
    return way.similarity(samples, X_database, groups=spots)


for size in (1, 2, 3):
    scores = []
    for chosen in combinations(range(3), size):
        rows = np.isin(view, chosen)
        found = search(memory, X[rows], y[rows])
        scores.append(average_precision(relevant, found).mean())
    print(f"photographs in the query: {size}, mAP {np.mean(scores):.3f}")

# %%
# A burst of photographs
# ----------------------
# People often take several photographs from the same place. Here, the first photograph
# of each spot has near duplicates, which lack a tenth of the words. The average of all
# photographs is then close to the first one. The memory vector gives near duplicates
# lower weights. The largest of the similarities hardly depends on duplicates, but it
# needs one search per photograph.

from scipy import sparse

ways = {
    "largest similarity": MemoryVectorQuery(method="max").fit(X_database),
    "memory vector": memory,
    "average": MemoryVectorQuery(method="average").fit(X_database),
}
rng = np.random.default_rng(0)
counts = places.data[view == 0].astype(int)


def make_burst(n_copies):
    """Return near duplicates of the first photograph of each spot."""
    copies = []
    for _ in range(n_copies):
        copy = counts.copy()
        copy.data = rng.binomial(copy.data, 0.9)
        copies.append(copy.astype(float).sqrt())
    return copies


numbers = [0, 1, 2, 4, 6, 8, 10]
scores = {name: [] for name in ways}
for n_copies in numbers:
    in_query = sparse.vstack([X[~in_database], *make_burst(n_copies)], "csr")
    spots = np.concatenate([y[~in_database], *[y[view == 0]] * n_copies])
    for name, way in ways.items():
        found = search(way, in_query, spots)
        scores[name].append(average_precision(relevant, found).mean())

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
looks = ["#009E73", "#0072B2", "#D55E00"]
for (name, values), color, marker in zip(scores.items(), looks, "^os", strict=True):
    ax.plot(numbers, values, marker=marker, color=color, label=name)
ax.set(
    title="Three photographs, and near duplicates of the first",
    xlabel="near duplicates in the query",
    ylabel="mean average precision",
)
ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
for name, values in scores.items():
    print(f"{name:20} {values[0]:.3f} without, {values[-1]:.3f} with 10 duplicates")

# %%
# Spot with a large gain
# ----------------------
# The plot shows a spot with a large gain: the results of each of its photographs alone,
# and in the last row the results of all three together.

from sklearn_simlearn.display import NeighborsDisplay

alone = [search(memory, X[view == i], y[view == i]) for i in range(3)]
together = search(memory, X[~in_database], y[~in_database])
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
# The memory vector is about equally similar to all photographs of the query. Therefore
# a photograph that is similar to many others, such as those of a burst, has a low
# weight.

from sklearn_simlearn.display import GramDisplay

rows = np.flatnonzero((y == spot) & ~in_database)
burst = [copies[[spot]] for copies in make_burst(3)]
weights, (gram,) = memory.query_weights(
    sparse.vstack([X[rows], *burst], "csr"),
    groups=np.zeros(6, dtype=int),
    return_gram=True,
)
_ = GramDisplay(
    gram,
    weights,
    images=images[[*rows, *rows[[0] * 3]]],
    name="Three photographs, and three near duplicates of the first",
).plot()
