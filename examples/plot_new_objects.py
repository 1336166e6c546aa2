"""
===========================================
Does what was learned hold for new objects?
===========================================

Not by itself. A learner sees which words tell the classes of the training data apart.
Other classes may need other words, and then learning does harm. How far to go depends
on what the queries will be; the data cannot say it, but ``holdout`` can
(:ref:`holdout`).
"""

# %%
# Data
# ----
# Definitions of words in 36 groups. A third of the themes is put aside with all their
# groups: what is about food, geography or materials is new. Of the other groups, half
# of the texts are for training.

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
# The more, the better?
# ---------------------
# Without a hold-out, OASIS goes on for as many triplets as it is told. Known classes
# gain all the way. New ones gain next to nothing at first, and lose in the end.

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
    title="Learning for longer",
    xlabel="triplets",
    ylabel="mean average precision",
)
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

# %%
# Three kinds of caution
# ----------------------
# The default holds out whole classes, and goes only as far as they gain:
# ``holdout="objects"``. ``holdout="samples"`` holds out samples of known classes, and
# goes further: twice the precision of tf-idf for known classes, and less than it for
# new ones. Posteriors of a classifier know the classes of the training data and nothing
# else, and lose most.

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
ax.set(title="How far to go", ylabel="mean average precision", ylim=(0, 0.9))
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
