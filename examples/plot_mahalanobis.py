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
ax.plot(list(learners), scores, "o-", label="learned")
ax.axhline(tfidf.score(X_test, y_test), color="grey", ls="--", label="tf-idf")
ax.set(xlabel="Neighbours of a word", ylabel="Mean average precision", ylim=(0, 1))
ax.legend()

# %%
# How far to go
# -------------
# There are many more unknowns than images, so the objective falls long after it does
# any good. Some images of each object are therefore held out. They say after how many
# iterations to stop, and how much of the start to mix in.

learner = learners[3]
results = learner.holdout_results_
start, *candidates = results["candidates"]
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
for shrinkage in (0.0, 0.5, 0.9):
    places = [
        place
        for place, candidate in enumerate(candidates, start=1)
        if candidate.shrinkage == shrinkage
    ]
    ax.plot(
        [candidates[place - 1].n_iter for place in places],
        results["mean_average_precision"][places],
        "o-",
        label=f"{shrinkage:.0%} of the start",
    )
ax.axhline(results["mean_average_precision"][0], color="grey", ls="--", label="start")
ax.set_xscale("log", base=2)
ax.set(xlabel="Iterations", ylabel="Mean average precision\nof the hold-out")
ax.legend()
print(f"Chosen: {learner.n_iter_} iterations, {learner.shrinkage_:.0%} of the start")
print(f"{learner.support_.nnz} entries of M, {learner.n_hard_triplets_} hard triplets")

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
