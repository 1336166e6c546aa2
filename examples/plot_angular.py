"""
=====================================================
How many labels does a similarity of one's own take?
=====================================================

A ranking SVM for every query needs labelled candidates for every query, and few of them
are worse than none. :class:`~sklearn_simlearn.AngularBilinearRanker` also keeps the
angle between the learned weights and the plain cosine small. From how many candidates
on does learning pay, and how much angle should be allowed? The maths is in the
:ref:`User Guide <angular>`.
"""

# %%
# Data
# ----
# Digits after PCA: the axes have a meaning of their own, so that weighting them makes
# sense. The cosine is what has to be beaten.

from sklearn.datasets import load_digits
from sklearn.decomposition import PCA

from sklearn_simlearn.similarities import CosineSimilarity

X, y = load_digits(return_X_y=True)
pca = PCA(40, random_state=0).fit(X[:900])
X_train, y_train = pca.transform(X[:900]), y[:900]
X_test, y_test = pca.transform(X[900:]), y[900:]
cosine = CosineSimilarity(use_idf=False).fit(X_train).score(X_test, y_test)
round(cosine, 3)

# %%
# Learning with few and with many labels
# --------------------------------------
# Each of 200 reference queries gets between 4 and 50 labelled candidates, half of them
# relevant. ``sigma=0`` is the plain ranking SVM, ``holdout=None`` learns all the way.

import numpy as np

from sklearn_simlearn import AngularBilinearRanker

n_candidates = [4, 6, 10, 20, 50]
sigmas = [0.0, 0.5, 0.8, 0.95, 0.99]
score = np.empty((len(sigmas), len(n_candidates)))
angle = np.empty_like(score)
for i, sigma in enumerate(sigmas):
    for j, n in enumerate(n_candidates):
        ranker = AngularBilinearRanker(
            sigma=sigma,
            n_candidates=n,
            n_references=200,
            n_neighbors=10,
            holdout=None,
            random_state=0,
        ).fit(X_train, y_train)
        score[i, j] = ranker.score(X_test, y_test)
        angle[i, j] = ranker.angles_.mean()

# %%
# Result
# ------
# With few candidates the plain ranking SVM is worse than no learning at all: its
# weights stand almost at a right angle to the cosine's. With the angle held small,
# four candidates are enough for a gain. The more labels there are, the less it takes.

import matplotlib.pyplot as plt

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for i, sigma in enumerate(sigmas):
    color = plt.cm.viridis(i / len(sigmas))
    left.plot(n_candidates, score[i], "o-", color=color, label=f"sigma = {sigma:g}")
    right.plot(n_candidates, angle[i], "o-", color=color, label=f"sigma = {sigma:g}")
left.axhline(cosine, color="black", linestyle=":", label="cosine")
left.set(
    xscale="log", xlabel="Candidates of a reference", ylabel="Mean average precision"
)
left.legend()
right.set(
    xscale="log",
    xlabel="Candidates of a reference",
    ylabel="Mean angle to the identity (radians)",
)
for ax in (left, right):
    ax.set_xticks(n_candidates, [str(n) for n in n_candidates])
    ax.minorticks_off()

# %%
# How far to go
# -------------
# By default held-out samples choose the form of the matrices, and how much of the query
# stays in its surrogate. ``holdout="samples"`` says that queries will be of the classes
# in y. The curve shows what the choice was made from.

ranker = AngularBilinearRanker(holdout="samples", random_state=0)
ranker.fit(X_train, y_train)
results = ranker.holdout_results_
fig, ax = plt.subplots(layout="constrained")
for form in ("diagonal", "full"):
    points = [
        (setting.shrinkage, value)
        for setting, value in zip(
            results["candidates"], results["mean_average_precision"], strict=True
        )
        if setting is not None and setting.matrix == form
    ]
    ax.plot(*zip(*points, strict=True), "o-", label=form)
ax.set(xlabel="Shrinkage", ylabel="Mean average precision, held-out samples")
ax.legend()
ranker.matrix_, ranker.shrinkage_, round(ranker.score(X_test, y_test), 3)
