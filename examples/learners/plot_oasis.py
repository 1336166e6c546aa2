"""
=============================================
OASIS: how much better is it than the cosine?
=============================================

:class:`~sklearn_simlearn.OASIS` starts from the cosine, and held-out samples decide how
far it moves away. This example measures the gain over the cosine and the ranks at which
it occurs. The maths is in the :ref:`User Guide <oasis>`.
"""

# %%
# Data
# ----
# The data are handwritten digits, as counts of small patches.

from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_digit_words

digits = load_digit_words()
X_train, X_test, y_train, y_test, _, images_test = train_test_split(
    digits.data, digits.target, digits.images, stratify=digits.target, random_state=0
)

# %%
# Use of the hold-out
# -------------------
# Future queries are of the ten digits in the training data, so we pass
# ``holdout="samples"``. A fifth of the samples is held out. The held-out samples choose
# the start, the number of triplets, and the share of the cosine (`share`).

from sklearn_simlearn import OASIS

oasis = OASIS(holdout="samples", random_state=0).fit(X_train, y_train)
print(
    f"gain on held-out samples: {oasis.holdout_gain_:.3f} +- {oasis.holdout_error_:.3f}"
)

# %%
# Each curve belongs to a start and a share of the cosine. From the identity (the grey,
# rising curves), more triplets help. From the metric of a discriminant analysis, few
# triplets are enough.

from sklearn_simlearn.display import HoldoutDisplay

_ = HoldoutDisplay.from_estimator(oasis)

# %%
# Result
# ------
# The gain is smallest at rank 1, where the results are often near duplicates. It grows
# further down the list, where only the class matters.

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
# The plots show the first ten items of both similarities for the three queries of
# different digits that gain most.

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
