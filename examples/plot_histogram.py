"""
===============================
What is a pair of counts worth?
===============================

Hand-made similarities of histograms prescribe what it means that the query shows a
word :math:`j` times and the item :math:`l` times: their product, the smaller of the
two, their difference. :class:`~sklearn_simlearn.HistogramRankSVM` learns a weight for
each pair instead. Does that rank better, and can one read from the weights how the data
came about? The maths is in the :ref:`User Guide <histogram>`.
"""

# %%
# Data
# ----
# We make histograms of which we know how they came about. A picture shows some of the
# words of its object, each once; clutter, in which some words are far more frequent
# than others; and a few words that some texture repeats many times. Four pictures each
# of 100 objects are for training, those of 100 other objects for the test.

import numpy as np

rng = np.random.default_rng(0)
n_words = 3000
frequency = 1 / np.arange(1, n_words + 1) ** 0.8
frequency /= frequency.sum()

y = np.repeat(np.arange(200), 4)
words_of = [rng.choice(n_words, 60, p=frequency, replace=False) for _ in range(200)]
X = np.zeros((len(y), n_words))
for histogram, label in zip(X, y, strict=True):
    histogram[rng.choice(words_of[label], 30, replace=False)] += 1
    clutter = rng.choice(n_words, rng.integers(40, 160), p=frequency)
    np.add.at(histogram, clutter, 1)
    histogram[rng.choice(n_words, 6)] += rng.geometric(0.15, 6)

X_train, y_train = X[y < 100], y[y < 100]
X_test, y_test = X[y >= 100], y[y >= 100]

# %%
# Learning
# --------
# Held-out objects decide whether the learned similarity ranks better than the best
# hand-made one, and how much of each to take. The problem is convex, and the solver
# says how close it came.

from sklearn_simlearn import HistogramRankSVM

learned = HistogramRankSVM(n_word_groups=3, random_state=0).fit(X_train, y_train)
print(
    f"Share of the hand-made similarity: {learned.shrinkage_}; gain over it "
    f"{learned.holdout_gain_:.3f} +- {learned.holdout_error_:.3f}"
)
print(
    f'loss="{learned.loss_}", {learned.n_iter_} passes; objective '
    f"{learned.objective_:.3f}, at most {learned.dual_gap_:.4f} above the minimum"
)

# %%
# Does it rank better?
# --------------------
# The hand-made similarities each deal with one of the difficulties. The learned one had
# to find out, and deals with all of them.

import matplotlib.pyplot as plt

from sklearn_simlearn.similarities import (
    AsymmetricSimilarity,
    BurstinessSimilarity,
    CosineSimilarity,
    NegativeEvidenceSimilarity,
)

models = {
    "cosine": CosineSimilarity(use_idf=False),
    "cosine, tf-idf": CosineSimilarity(),
    "negative evidence": NegativeEvidenceSimilarity(),
    "burstiness": BurstinessSimilarity(),
    "asymmetric": AsymmetricSimilarity(lam=10),
}
scores = {
    name: model.fit(X_train).score(X_test, y_test) for name, model in models.items()
}
scores["learned"] = learned.score(X_test, y_test)
fig, ax = plt.subplots(figsize=(6, 2.6), layout="constrained")
colors = ["#0072B2" if name == "learned" else "#9a9a9a" for name in scores]
bars = ax.barh(list(scores), list(scores.values()), color=colors)
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(
    title="Histograms of known making",
    xlabel="mean average precision on new objects",
    xlim=(0, 1.1),
)
ax.invert_yaxis()

# %%
# What are the weights?
# ---------------------
# Only differences within a row matter to the ranking of one query, so each row is shown
# less its first entry: what an item gains by showing a word that the query shows
# :math:`j` times. A word that both have once counts most, as objects show theirs once,
# and larger counts are worth less than in proportion: bursts. All weights are smaller
# for the most common words: idf. And a word that the query lacks costs the item a
# little: negative evidence.

from sklearn_simlearn.display import WeightTableDisplay

_ = WeightTableDisplay.from_estimator(learned)

# %%
# And in photographs?
# -------------------
# There nobody has said how counts come about. Photographs of twelve places are for
# training, those of eleven others for the test. Walls and meadows repeat themselves,
# and idf does harm. By default, held-out spots decide between what was learned and the
# best hand-made similarity; ``holdout=None`` is what was learned alone, here with one
# table for all words.

from sklearn_simlearn.datasets import load_places

places = load_places()
train, test = places.place % 2 == 0, places.place % 2 == 1
X, y = places.data, places.target
table_alone = HistogramRankSVM(n_word_groups=1, holdout=None, random_state=0)
models["learned, alone"] = table_alone
models["learned"] = HistogramRankSVM(random_state=0)
scores = {
    name: model.fit(X[train], y[train]).score(X[test], y[test])
    for name, model in models.items()
}
fig, ax = plt.subplots(figsize=(6, 3), layout="constrained")
colors = ["#0072B2" if name.startswith("learned") else "#9a9a9a" for name in scores]
bars = ax.barh(list(scores), list(scores.values()), color=colors)
ax.bar_label(bars, fmt="%.2f", padding=3)
ax.set(
    title="Photographs of places",
    xlabel="mean average precision on new spots",
    xlim=(0, 1.1),
)
ax.invert_yaxis()
print(f"Share of the hand-made similarity: {models['learned'].shrinkage_}, which is")
print(models["learned"].hand_made_)

# %%
# There is no gain over the best hand-made similarity here, and the hold-out found that
# out. But one need not know which that is: the table, learned from nothing, is as good.
# It has found the bursts: a row has its largest weight where the item has a word about
# as often as the query, and from there it grows far less than a product of counts.

fig, ax = plt.subplots(figsize=(5.5, 4), layout="constrained")
_ = WeightTableDisplay.from_estimator(table_alone, name="Bursts in photographs", ax=ax)
