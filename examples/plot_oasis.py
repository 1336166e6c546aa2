"""
============================================
How far should a learner go from the cosine?
============================================

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
# What was tried. A curve belongs to a start and to a share of it that is kept (the
# shrinkage). From the identity, the grey curves that rise, more triplets help. From the
# metric of linear discriminant analysis (with a `regularization`) few are needed.

from sklearn_simlearn.display import HoldoutDisplay

_ = HoldoutDisplay.from_estimator(oasis)

# %%
# Result
# ------
# At the first rank, where near-duplicates live, the cosine is almost as good. It falls
# away down the list, where only the class matters.

import matplotlib.pyplot as plt

from sklearn_simlearn.display import MeanPrecisionRecallDisplay, PrecisionAtRankDisplay
from sklearn_simlearn.similarities import CosineSimilarity

models = {
    "OASIS": oasis,
    "cosine": CosineSimilarity(use_idf=False).fit(X_train),
}
figure, axes = plt.subplots(2, 1, figsize=(7, 7), layout="constrained")
for ax, display in zip(
    axes, [PrecisionAtRankDisplay, MeanPrecisionRecallDisplay], strict=True
):
    display.from_estimators(models, X_test, y_test, baselines=["cosine"], ax=ax)

# %%
# Queries
# -------
# Three queries, each of another digit, for which learning gained most, with the first
# ten items of both lists.

import numpy as np

from sklearn_simlearn.display import NeighborsDisplay
from sklearn_simlearn.metrics import retrieval_report

precision = {
    name: retrieval_report(model, X_test, y_test).precision_at_10
    for name, model in models.items()
}
order = np.argsort(precision["cosine"] - precision["OASIS"], kind="stable")
_, first = np.unique(y_test[order], return_index=True)
queries = order[np.sort(first)[:3]]
for name, model in models.items():
    NeighborsDisplay.from_estimator(
        model,
        X_test,
        y_test,
        queries=queries,
        n_neighbors=10,
        images=images_test,
        name=name,
        cmap="gray_r",
    )
