"""
======================================================
Two covariances: which variation do all classes share?
======================================================

Samples of one class differ from each other: the light on a face, the wording of a
question. If this variation is the same in all classes, a model can learn it from some
classes and ignore it in others. The maths is in the :ref:`User Guide <two_covariance>`.
"""

# %%
# Data
# ----
# The data are sixty classes in two dimensions. The class centres differ in all
# directions. Within a class, the samples vary along one direction. Forty classes are
# known.

import numpy as np

rng = np.random.default_rng(0)
y = np.repeat(np.arange(60), 8)
centres = rng.multivariate_normal([0, 0], [[9, 0], [0, 9]], size=60)
noise = rng.multivariate_normal([0, 0], [[2.0, 1.9], [1.9, 2.0]], size=len(y))
X = centres[y] + noise
known, new = y < 40, y >= 40

# %%
# New classes
# -----------
# The plain model, without a hold-out, estimates the covariances between and within
# classes, and ranks by the likelihood ratio of "same class" and "different classes".

from sklearn_simlearn import TwoCovarianceSimilarity
from sklearn_simlearn.similarities import CosineSimilarity

model = TwoCovarianceSimilarity(holdout=None).fit(X[known], y[known])
cosine = CosineSimilarity(use_idf=False).fit(X[known])
print(f"cosine:            {cosine.score(X[new], y[new]):.2f}")
print(f"likelihood ratio:  {model.score(X[new], y[new]):.2f}")

# %%
# The picture shows the similarity of a query (cross) to every point of the plane. Dots
# are samples of the query's class, which is new. With three queries of the class, the
# model is more certain of where the class is.

import matplotlib.pyplot as plt

rows = np.flatnonzero(y == 47)
ticks = np.linspace(-8, 8, 81)
plane = np.stack(np.meshgrid(ticks, ticks), axis=-1).reshape(-1, 2)
plane[np.all(plane == 0, axis=1)] = 1e-3  # the cosine of a zero vector is undefined
panels = {
    "cosine": (cosine.similarity(X[rows[:1]], plane), 1),
    "likelihood ratio": (model.similarity(X[rows[:1]], plane), 1),
    "of three queries": (model.similarity(X[rows[:3]], plane, groups=[0, 0, 0]), 3),
}
figure, axes = plt.subplots(
    1, 3, figsize=(9, 3.3), sharex=True, sharey=True, layout="constrained"
)
for ax, (title, (S, n_queries)) in zip(axes, panels.items(), strict=True):
    levels = np.quantile(S, [0, 0.8, 0.9, 0.95, 0.98, 0.99, 1])
    ax.contourf(ticks, ticks, S.reshape(81, 81), levels=levels, cmap="Blues")
    ax.plot(*X[rows[n_queries:]].T, "o", color="#D55E00", label="same class")
    ax.plot(*X[rows[:n_queries]].T, "kx", ms=9, mew=2, label="query")
    ax.set(title=title, aspect="equal", xlim=(-8, 8), ylim=(-8, 8))
_ = axes[0].legend(loc="lower left")

# %%
# Sets of queries
# ---------------
# Several samples of one class query together. The likelihood ratio of a set is an inner
# product with the same stored items.

from sklearn_simlearn.model_selection import make_query_sets

for size in (1, 2, 4):
    sets = make_query_sets(y[new], size=size, random_state=0)
    score = model.score(X[new], y[new], groups=sets)
    print(f"{size} queries: {score:.2f}")
