"""
======================================================
Histograms: which weight should a pair of counts have?
======================================================

A hand-made similarity of histograms compares a count of :math:`j` in the query with a
count of :math:`l` in the item by a formula: their product, their minimum or their
difference. :class:`~sklearn_simlearn.HistogramRankSVM` learns a weight for each pair of
counts instead. This example compares the rankings and shows what the weights reveal
about the data. The maths is in the :ref:`User Guide <histogram>`.
"""

# %%
# Data
# ----
# We generate histograms by a known process. An image shows
#
# - some of the words of its object, each once;
# - clutter, in which some words are far more frequent than others;
# - a few words that a texture repeats many times.
#
# Four images of each of 100 objects are for training. The images of 100 other objects
# are for the test.

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
# hand-made one, and choose the mixture of both. The problem is convex, and the solver
# reports a bound on the distance to the minimum.

from sklearn_simlearn import HistogramRankSVM

learned = HistogramRankSVM(n_word_groups=3, random_state=0).fit(X_train, y_train)
print(
    f"Share of the hand-made similarity: {learned.share_}; gain over it "
    f"{learned.holdout_gain_:.3f} +- {learned.holdout_error_:.3f}"
)
print(
    f'loss="{learned.loss_}", {learned.n_iter_} passes; objective '
    f"{learned.objective_:.3f}, at most {learned.dual_gap_:.4f} above the minimum"
)

# %%
# Comparison with hand-made similarities
# --------------------------------------
# Each hand-made similarity deals with one of the three difficulties. The learned
# similarity deals with all of them.

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
    title="Generated histograms",
    xlabel="mean average precision on new objects",
    xlim=(0, 1.1),
)
ax.invert_yaxis()

# %%
# Weights
# -------
# Only differences within a row change the ranking of a query. The gain of an item with
# a word over an item without it is a weight minus the first weight of the row. The
# learned weights reproduce three known rules:
#
# - The gain of a rare word that both have once is as large as that of a word that both
#   have four times, since objects show their words once (burstiness).
# - Gains are smaller for the most common words (idf).
# - Most weights of words that the query lacks are slightly negative (negative
#   evidence).

from sklearn_simlearn.display import WeightTableDisplay

_ = WeightTableDisplay.from_estimator(learned)

# %%
# Weights of photographs
# ----------------------
# For photographs, the process is unknown. Photographs of twelve places are for
# training, those of eleven others for the test. Walls and meadows repeat themselves,
# and idf makes the rankings worse. By default, held-out spots choose between the
# learned and the best hand-made similarity; ``holdout=None`` is the learned similarity
# alone, here with one table for all words.

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
print(f"Share of the hand-made similarity: {models['learned'].share_}, which is")
print(models["learned"].hand_made_)

# %%
# The hold-out chose a mixture that consists of three quarters of the best hand-made
# similarity. The learned table alone ranks as well as the mixture, without any
# hand-made similarity. The table represents bursts: a row has its largest weight if the
# item has a word about as often as the query, and the weight grows far less than a
# product of counts.

fig, ax = plt.subplots(figsize=(5.5, 4), layout="constrained")
_ = WeightTableDisplay.from_estimator(table_alone, name="Bursts in photographs", ax=ax)
