"""
================================================
Does a learned similarity help with new classes?
================================================

A learner finds the words that distinguish the classes in the training data. Other
classes may need other words, and then the learned similarity may rank worse than its
start. How far the learner should move away from its start depends on future queries.
The data does not show which queries will come, so you have to choose ``holdout``
(:ref:`holdout`).
"""

# %%
# Data
# ----
# The data are definitions of words in 36 groups. The groups of three of the nine themes
# (food, geography and materials) are new classes. Of the other groups, half of the
# texts are for training.

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.datasets import load_definitions

definitions = load_definitions()
y = definitions.target
is_new = np.isin(definitions.theme, [2, 5, 8])
is_train = ~is_new & (np.arange(len(y)) % 2 == 0)
is_known = ~is_new & ~is_train
print("new:", ", ".join(definitions.target_names[np.unique(y[is_new])]))

texts = np.array(definitions.data, dtype=object)
words = CountVectorizer(min_df=2, dtype=np.float64).fit(texts[is_train])
X_train, X_known, X_new = (
    words.transform(texts[rows]) for rows in (is_train, is_known, is_new)
)

# %%
# Number of triplets
# ------------------
# Without a hold-out, OASIS uses all triplets. On known classes, more triplets improve
# the rankings. On new classes, few triplets change almost nothing, and many triplets
# make the rankings worse.

import matplotlib.pyplot as plt

from sklearn_simlearn import OASIS
from sklearn_simlearn.similarities import CosineSimilarity

start = CosineSimilarity().fit(X_train)
transform = start.transform_database  # tf-idf, at unit length
n_triplets = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
paths = {"known classes": [], "new classes": []}
for n in n_triplets:
    oasis = OASIS(holdout=None, n_triplets=n, random_state=0)
    oasis.fit(transform(X_train), y[is_train])
    paths["known classes"].append(oasis.score(transform(X_known), y[is_known]))
    paths["new classes"].append(oasis.score(transform(X_new), y[is_new]))
starts = start.score(X_known, y[is_known]), start.score(X_new, y[is_new])

figure, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
looks = [("#0072B2", "o"), ("#D55E00", "s")]
for (name, path), begin, (color, marker) in zip(
    paths.items(), starts, looks, strict=True
):
    ax.axhline(begin, color=color, ls=":", label=f"{name}: tf-idf")
    ax.semilogx(n_triplets, path, marker=marker, color=color, label=f"{name}: OASIS")
ax.set(
    title="Score by number of triplets",
    xlabel="triplets",
    ylabel="mean average precision",
)
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

# %%
# Comparison of hold-outs
# -----------------------
# For labels, the default holds out whole classes (``holdout="objects"``) and moves away
# from the start only as far as the rankings of these classes improve.
# ``holdout="samples"`` holds out samples of known classes and moves further. Its
# precision is twice that of tf-idf on known classes, and lower than that of tf-idf on
# new ones. Class probabilities of a classifier represent only the training classes, and
# are worst on new ones.

from sklearn_simlearn import ClassPosteriorSimilarity

models = {
    "tf-idf": start,
    'OASIS, "objects"': OASIS(random_state=0),
    'OASIS, "samples"': OASIS(holdout="samples", random_state=0),
    "posteriors": ClassPosteriorSimilarity(random_state=0),
}
for model in list(models.values())[1:]:
    model.fit(X_train, y[is_train])
on_known = [model.score(X_known, y[is_known]) for model in models.values()]
on_new = [model.score(X_new, y[is_new]) for model in models.values()]

figure, ax = plt.subplots(figsize=(7.5, 3.6), layout="constrained")
place = np.arange(len(models))
for shift, values, label, color, hatch in [
    (-0.2, on_known, "known classes", "#0072B2", ""),
    (0.2, on_new, "new classes", "#D55E00", "//"),
]:
    bars = ax.bar(
        place + shift, values, 0.38, label=label, color=color, hatch=hatch, ec="white"
    )
    ax.bar_label(bars, fmt="%.2f")
ax.set_xticks(place, models)
ax.set(title="Score by hold-out", ylabel="mean average precision", ylim=(0, 0.9))
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
