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

import numpy as np

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
# are no more to bring back after that.

import matplotlib.pyplot as plt

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn.similarities import CosineSimilarity

tfidf = CosineSimilarity().fit(X_train)
learners = {
    k: SparseMahalanobisLearner(k, words=data.words, random_state=0).fit(
        X_train, y_train
    )
    for k in range(6)
}
scores = [learner.score(X_test, y_test) for learner in learners.values()]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(list(learners), scores, "o-", label="learned")
ax.axhline(tfidf.score(X_test, y_test), color="grey", ls="--", label="tf-idf")
ax.set(xlabel="Neighbours of a word", ylabel="Mean average precision", ylim=(0, 1))
ax.legend()

# %%
# When to stop
# ------------
# There are many more unknowns than images, so the objective falls long after it does
# any good. Some images of each object are therefore held out. They query the others
# after each iteration, and the best one is kept.

learner = learners[3]
print(f"{learner.support_.nnz} entries of M, {learner.n_hard_triplets_} hard triplets")
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(learner.holdout_scores_)
ax.plot(learner.best_iter_, learner.holdout_scores_.max(), "o", color="C1")
ax.set(xlabel="Iteration", ylabel="Mean average precision\nof the hold-out")

# %%
# What has changed?
# -----------------
# Similarities of test images of the same object, and of others. What counts is how much
# the two overlap. The rarest 8 % on either side are left out.

fig, axes = plt.subplots(1, 2, figsize=(9, 3), layout="constrained", sharey=True)
same = (y_test[:, None] == y_test) & (y_test[:, None] >= 0)
above = np.triu(np.ones_like(same), 1)
for ax, model, name in zip(axes, [tfidf, learner], ["tf-idf", "learned"], strict=True):
    S = model.similarity(X_test)
    for pairs, label in [(above & same, "same object"), (above & ~same, "other pairs")]:
        values = np.sort(S[pairs])
        shown = values[int(0.08 * len(values)) : int(0.92 * len(values))]
        weights = np.full(len(shown), 1 / len(values))
        ax.hist(shown, bins=30, weights=weights, alpha=0.6, label=label)
    ax.set(title=name, xlabel="Similarity")
axes[0].set_ylabel("Share of pairs")
axes[1].legend()
plt.show()
