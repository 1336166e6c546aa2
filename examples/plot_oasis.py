"""
===================================
Learning to retrieve digits (OASIS)
===================================

How much better than the cosine does a learned similarity rank, where in the list does
it gain, and how far should it go? :class:`~sklearn_simlearn.OASIS` begins at the
cosine, and held-out samples decide. The maths is in the :ref:`User Guide <oasis>`.
"""

# %%
# Data
# ----
# Handwritten digits, as counts of the small patches they are made of.

from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_digit_words

digits = load_digit_words()
X_train, X_test, y_train, y_test, _, images_test = train_test_split(
    digits.data, digits.target, digits.images, stratify=digits.target, random_state=0
)

# %%
# How far to go
# -------------
# The queries to come are of the ten digits in the training data, and ``holdout`` says
# so. A fifth of the samples is held out; they choose where to start, how many triplets
# to learn from, and how much of the cosine to keep (the shrinkage).

from sklearn_simlearn import OASIS

oasis = OASIS(holdout="samples", random_state=0).fit(X_train, y_train)
print(
    f"gain on held-out samples: {oasis.holdout_gain_:.3f} +- {oasis.holdout_error_:.3f}"
)

# %%
# The candidates that start from the identity: more triplets help, and so does less of
# the cosine.

import matplotlib.pyplot as plt

results = oasis.holdout_results_
figure, ax = plt.subplots(figsize=(5, 4), layout="constrained")
for shrinkage in (0.0, 0.3, 0.6, 0.9):
    points = [
        (candidate.n_triplets, score)
        for candidate, score in zip(
            results["candidates"], results["mean_average_precision"], strict=True
        )
        if candidate is not None
        and candidate.regularization is None
        and candidate.shrinkage == shrinkage
    ]
    ax.semilogx(*zip(*points, strict=True), marker="o", label=f"shrinkage {shrinkage}")
start = results["mean_average_precision"][results["candidates"].index(None)]
ax.axhline(start, color="black", linestyle="dotted", label="the start")
ax.axhline(
    results["mean_average_precision"][results["best_index"]],
    color="black",
    linestyle="dashed",
    label="what was chosen",
)
ax.set(xlabel="triplets", ylabel="mAP of held-out samples")
ax.legend()

# %%
# Result
# ------
# At the first rank, where near-duplicates live, the cosine is almost as good. It falls
# away down the list, where only the class matters.

from sklearn_simlearn.display import MeanPrecisionRecallDisplay, PrecisionAtRankDisplay
from sklearn_simlearn.similarities import CosineSimilarity

models = {
    "OASIS": oasis,
    "cosine": CosineSimilarity(use_idf=False).fit(X_train),
}
figure, axes = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for name, model in models.items():
    PrecisionAtRankDisplay.from_estimator(model, X_test, y_test, name=name, ax=axes[0])
    MeanPrecisionRecallDisplay.from_estimator(
        model, X_test, y_test, name=name, ax=axes[1]
    )

# %%
# A query
# -------
# One query and the first ten items of both lists, errors framed in red: the query for
# which learning gained most.

import numpy as np

from sklearn_simlearn.metrics import retrieval_report

precision = {
    name: retrieval_report(model, X_test, y_test).precision_at_10
    for name, model in models.items()
}
query = int(np.argmax(precision["OASIS"] - precision["cosine"]))

figure, axes = plt.subplots(2, 11, figsize=(10, 2.4), layout="constrained")
for row, (name, model) in zip(axes, models.items(), strict=True):
    similarity = model.similarity(X_test[[query]], X_test)[0]
    similarity[query] = -np.inf
    for ax, item in zip(row, [query, *np.argsort(-similarity)[:10]], strict=True):
        ax.imshow(images_test[item], cmap="gray_r")
        ax.set(xticks=[], yticks=[])
        if y_test[item] != y_test[query]:
            for spine in ax.spines.values():
                spine.set(color="red", linewidth=3)
    row[0].set_ylabel(name)
    row[0].set_title("query", fontsize=9)
