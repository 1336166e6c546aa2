"""
=================================================
Class probabilities: when is a classifier better?
=================================================

This example compares :class:`~sklearn_simlearn.ClassPosteriorSimilarity`, which ranks
by class probabilities, with the cosine and linear discriminant analysis, on queries of
known and of new classes. The maths is in the :ref:`User Guide <posterior>`.
"""

# %%
# Data
# ----
# The data are handwritten digits. Seven digits are known, three are new.

import numpy as np
from sklearn.datasets import load_digits

X, y = load_digits(return_X_y=True)
known = y < 7
X_train, y_train = X[known][::2], y[known][::2]
X_known, y_known = X[known][1::2], y[known][1::2]
X_new, y_new = X[~known], y[~known]

# %%
# Known classes
# -------------
# We compare the cosine, the cosine after linear discriminant analysis, and class
# probabilities. With class probabilities, nearly all items of the query's class come
# first.

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from sklearn_simlearn import ClassPosteriorSimilarity
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.similarities import CosineSimilarity

models = {
    "cosine": CosineSimilarity(use_idf=False),
    "LDA": LinearDiscriminantAnalysis(solver="eigen", shrinkage="auto"),
    "posteriors": ClassPosteriorSimilarity(random_state=0),
}
for model in models.values():
    model.fit(X_train, y_train)
on_known = [map_scorer(model, X_known, y_known) for model in models.values()]
on_new = [map_scorer(model, X_new, y_new) for model in models.values()]
models["posteriors"].posterior_, models["posteriors"].share_

# %%
# New classes
# -----------
# The model represents new classes as mixtures of the known ones. On new classes, it
# therefore ranks worse than the cosine.

import matplotlib.pyplot as plt

place = np.arange(len(models))
fig, ax = plt.subplots(figsize=(7, 3.6), layout="constrained")
for shift, values, label, color, hatch in [
    (-0.2, on_known, "known classes", "#0072B2", ""),
    (0.2, on_new, "new classes", "#D55E00", "//"),
]:
    bars = ax.bar(
        place + shift, values, 0.38, label=label, color=color, hatch=hatch, ec="white"
    )
    ax.bar_label(bars, fmt="%.2f")
ax.set_xticks(place, models)
ax.set(ylabel="mean average precision", ylim=(0, 1.1), title="Digits, known and new")
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
