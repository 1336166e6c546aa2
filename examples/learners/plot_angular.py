"""
==================================================
Angular ranker: how many labels does a query need?
==================================================

A ranking SVM for each query needs labelled candidates for each query. With few
candidates, it ranks worse than the cosine.
:class:`~sklearn_simlearn.AngularBilinearRanker` also keeps the angle between the
learned weights and those of the cosine small. This example measures how many candidates
are needed for a gain, and which weight of the angle is best. The maths is in the
:ref:`User Guide <angular>`.
"""

# %%
# Data
# ----
# The data are digits after PCA. The principal axes have different meanings, so it makes
# sense to weight them. The baseline is the cosine.

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
# Each of 200 reference queries has between 4 and 50 labelled candidates, half of them
# relevant. ``sigma=0`` is the plain ranking SVM. ``holdout=None`` learns without a
# hold-out.

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
# With few candidates, the plain ranking SVM is worse than the cosine: its weights are
# almost at a right angle to those of the cosine. If the angle is kept small, four
# candidates are enough for a gain. With more labels, a lower weight of the angle is
# enough.

import matplotlib.pyplot as plt

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), layout="constrained")
for i, (sigma, marker) in enumerate(zip(sigmas, "os^Dv", strict=True)):
    look = {"marker": marker, "color": plt.cm.viridis(i / len(sigmas))}
    left.plot(n_candidates, score[i], **look, label=f"sigma = {sigma:g}")
    right.plot(n_candidates, angle[i], **look)
left.axhline(cosine, color="black", linestyle=":", label="cosine")
left.set(title="Ranking", ylabel="mean average precision")
right.set(title="Distance from the cosine", ylabel="mean angle to the cosine (radians)")
fig.legend(loc="outside right", frameon=False)
for ax in (left, right):
    ax.set(xscale="log", xlabel="labelled candidates of a query")
    ax.set_xticks(n_candidates, [str(n) for n in n_candidates])
    ax.minorticks_off()

# %%
# Use of the hold-out
# -------------------
# By default, held-out samples choose the form of the matrices and the share of the
# query in its surrogate. ``holdout="samples"`` declares that queries are of the classes
# in y. The curves show the measurements.

from sklearn_simlearn.display import HoldoutDisplay

ranker = AngularBilinearRanker(holdout="samples", random_state=0)
ranker.fit(X_train, y_train)
HoldoutDisplay.from_estimator(ranker)
print(f"{ranker.matrix_} matrices, {ranker.share_:.0%} of the query kept")
print(f"cosine {cosine:.3f}, learned {ranker.score(X_test, y_test):.3f}")
