"""
==============================================
How do you choose the parameters of a learner?
==============================================

Choose C by the rankings of samples that were not used for the fit. If future queries
are of known classes, split the samples of each class. If they are of new classes, hold
out whole classes (:class:`~sklearn_simlearn.model_selection.ObjectKFold`). The best
values differ.
"""

# %%
# Data
# ----
# The data are definitions of words in 36 groups. Nine groups are set aside as new
# classes; half of the definitions of the other groups are for training.

import numpy as np
from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_simlearn.datasets import load_definitions

definitions = load_definitions()
y = definitions.target
is_new = y % 4 == 3
is_train = ~is_new & (np.arange(len(y)) % 2 == 0)
is_known_test = ~is_new & ~is_train

texts = np.array(definitions.data, dtype=object)
tfidf = TfidfVectorizer(min_df=2, max_features=600, sublinear_tf=True)
X_train = tfidf.fit_transform(texts[is_train])
X_known, X_new = tfidf.transform(texts[is_known_test]), tfidf.transform(texts[is_new])

# %%
# The search
# ----------
# `C` bounds the effect of one triplet on the matrix of
# :class:`~sklearn_simlearn.OASIS`. The grid has seven values between 0.0001 and 1. With
# ``holdout=None``, `C` decides how far the learner moves away from the cosine. By
# default a hold-out decides, and `C` matters little.

from sklearn.model_selection import GridSearchCV, StratifiedKFold

from sklearn_simlearn import OASIS
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.model_selection import ObjectKFold

oasis = OASIS(holdout=None, n_triplets=20_000, random_state=0)
grid = {"C": np.logspace(-4, 0, 7)}
splitters = {
    "known classes": StratifiedKFold(3),
    "new classes": ObjectKFold(3, shuffle=True, random_state=0),
}
searches = {
    name: GridSearchCV(oasis, grid, scoring=map_scorer, cv=splitter).fit(
        X_train, y[is_train]
    )
    for name, splitter in splitters.items()
}
for name, search in searches.items():
    print(f"{name}: C = {search.best_params_['C']:.2g}")

# %%
# Folds and test
# --------------
# Filled markers show means over the folds, with the standard deviation as error bars.
# Open markers show the test. The levels differ, because a fold has fewer classes or
# fewer items than the test. Only the position of the maximum matters. In both cases,
# the folds find the maximum of the test. For new classes, the best ``C`` is twenty
# times smaller.

import matplotlib.pyplot as plt

tests = {"known classes": (X_known, is_known_test), "new classes": (X_new, is_new)}
figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
for ax, (name, search) in zip(axes, searches.items(), strict=True):
    results = search.cv_results_
    C = grid["C"]
    ax.errorbar(
        C,
        results["mean_test_score"],
        results["std_test_score"],
        marker="o",
        color="#0072B2",
        capsize=3,
        label="folds",
    )
    X_test, rows = tests[name]
    on_test = [
        oasis.set_params(C=value).fit(X_train, y[is_train]).score(X_test, y[rows])
        for value in C
    ]
    ax.plot(C, on_test, "s--", mfc="white", color="#D55E00", label="test")
    ax.axvline(search.best_params_["C"], color="black", ls=":", label="chosen")
    ax.set(title=name, xlabel="C", xscale="log")
axes[0].set_ylabel("mean average precision")
_ = figure.legend(*ax.get_legend_handles_labels(), loc="outside right", frameon=False)

# %%
# Loss by the wrong splitter
# --------------------------
# The table shows both choices on both tests, compared with the cosine of tf-idf.

from sklearn_simlearn.similarities import CosineSimilarity

models = {"cosine": CosineSimilarity(use_idf=False).fit(X_train)}
models |= {f"C for {name}": search.best_estimator_ for name, search in searches.items()}
for name, model in models.items():
    known = model.score(X_known, y[is_known_test])
    new = model.score(X_new, y[is_new])
    print(f"{name:20} known classes {known:.3f}   new classes {new:.3f}")
