"""
====================================================
Sparse Mahalanobis: should neighbouring words match?
====================================================

In the cosine of tf-idf vectors, a word matches only itself, and its weight depends only
on its frequency. If features are quantised to visual words, two similar features may
get different words, and the match is lost.
:class:`~sklearn_simlearn.SparseMahalanobisLearner` learns the weight of each word and
the weight of a match between neighbouring words. The maths is in the :ref:`User Guide
<mahalanobis>`.
"""

# %%
# Data
# ----
# The data are images of ten objects, and distractors. Words form groups of four. Half
# of the words of an object are replaced by another word of their group. Each word has a
# vector, and the vectors of a group are close together.

from sklearn_simlearn.datasets import make_visual_words

data = make_visual_words(
    n_objects=10,
    n_images_per_object=60,
    n_distractors=400,
    n_words=2000,
    n_words_per_object=40,
    noise=0.5,
    n_clutter=40,
    zipf_exponent=0.5,
    random_state=0,
)
X_train, y_train = data.data[::2], data.target[::2]
X_test, y_test = data.data[1::2], data.target[1::2]

# %%
# Number of neighbours
# --------------------
# Without neighbours, the learner learns only the weights of the words. Each additional
# neighbour recovers some of the lost matches, up to the three other words of a group.
# Future queries show the objects in the training data, so we pass
# ``holdout="samples"``.

import matplotlib.pyplot as plt

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn.similarities import CosineSimilarity

tfidf = CosineSimilarity().fit(X_train)
learners = {
    k: SparseMahalanobisLearner(
        k, words=data.words, holdout="samples", random_state=0
    ).fit(X_train, y_train)
    for k in range(6)
}
scores = [learner.score(X_test, y_test) for learner in learners.values()]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(list(learners), scores, "o-", color="#0072B2", label="learned")
ax.axhline(tfidf.score(X_test, y_test), color="black", ls=":", label="tf-idf")
ax.set(
    title="Matches between neighbouring words",
    xlabel="neighbours of a word",
    ylabel="mean average precision",
    ylim=(0, 1),
)
ax.legend(loc="lower right", frameon=False)

# %%
# Use of the hold-out
# -------------------
# There are many more unknowns than images, so the learner overfits. Therefore some
# images of each object are held out. They choose the number of iterations and the share
# of the start.

from sklearn_simlearn.display import HoldoutDisplay

learner = learners[3]
HoldoutDisplay.from_estimator(learner)
print(f"Chosen: {learner.n_iter_} iterations, {learner.share_:.0%} of the start")
print(f"{learner.support_.nnz} entries of M, {learner.n_hard_triplets_} hard triplets")

# %%
# Distributions of similarities
# -----------------------------
# The plot shows similarities of test images of the same object, and of others. The
# smaller the overlap, the better the ranking.

from sklearn_simlearn.display import SimilarityDistributionDisplay

fig, axes = plt.subplots(2, 1, figsize=(8, 5.6), layout="constrained")
for ax, model, name in zip(axes, [tfidf, learner], ["tf-idf", "learned"], strict=True):
    SimilarityDistributionDisplay.from_estimator(
        model, X_test, y_test, trim=0.08, name=name, ax=ax
    )
