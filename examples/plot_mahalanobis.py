"""
=========================================
What do words have to do with each other?
=========================================

The cosine of tf-idf vectors lets a word match itself and nothing else, and takes its
weight from how rare it is. When features are turned into visual words, some fall to the
wrong side of a border, and the match is lost.
:class:`~sklearn_simlearn.SparseMahalanobisLearner` learns both: what a word is worth,
and what it is worth that the query shows one word and the item its neighbour. The maths
is in the :ref:`User Guide <mahalanobis>`.
"""

# %%
# Data
# ----
# Images of ten objects, and others of none of them. Words come in groups of four, and
# half of the words of an object are counted as another one of their group. Each word
# has a vector, and the vectors of a group are close together.

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
# Do neighbours help?
# -------------------
# With no neighbours only the weights of the words are learned. Each neighbour that may
# match brings back some of the lost matches, up to the three others of a group. There
# are no more to bring back after that. The queries to come show the objects that we
# learn from, and ``holdout="samples"`` says so.

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
    title="Words that may match",
    xlabel="neighbours of a word",
    ylabel="mean average precision",
    ylim=(0, 1),
)
ax.legend(loc="lower right", frameon=False)

# %%
# How far to go
# -------------
# There are many more unknowns than images, so the objective falls long after it does
# any good. Some images of each object are therefore held out. They say after how many
# iterations to stop, and how much of the start to mix in.

from sklearn_simlearn.display import HoldoutDisplay

learner = learners[3]
HoldoutDisplay.from_estimator(learner)
print(f"Chosen: {learner.n_iter_} iterations, {learner.shrinkage_:.0%} of the start")
print(f"{learner.support_.nnz} entries of M, {learner.n_hard_triplets_} hard triplets")

# %%
# What has changed?
# -----------------
# Similarities of test images of the same object, and of others. What counts is how much
# the two overlap.

from sklearn_simlearn.display import SimilarityDistributionDisplay

fig, axes = plt.subplots(2, 1, figsize=(8, 5.6), layout="constrained")
for ax, model, name in zip(axes, [tfidf, learner], ["tf-idf", "learned"], strict=True):
    SimilarityDistributionDisplay.from_estimator(
        model, X_test, y_test, trim=0.08, name=name, ax=ax
    )
