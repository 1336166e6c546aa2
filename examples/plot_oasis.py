"""
===================================
Learning to retrieve digits (OASIS)
===================================

How much better than the cosine does a learned similarity rank, and where in the list
does it gain? :class:`~sklearn_simlearn.OASIS` begins at the identity, where its
similarity is the cosine, so the comparison is fair by construction. The maths is in the
:ref:`User Guide <oasis>`.
"""

# %%
# Data
# ----
# Handwritten digits, as counts of the small patches they are made of. Rows of tf-idf
# have unit length, which makes the untrained similarity the cosine.

from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_digit_words

digits = load_digit_words()
X_train, X_test, y_train, y_test, _, images_test = train_test_split(
    digits.data, digits.target, digits.images, stratify=digits.target, random_state=0
)
tfidf = TfidfTransformer().fit(X_train)
X_train, X_test = tfidf.transform(X_train), tfidf.transform(X_test)

# %%
# Choosing the step size
# ----------------------
# A learner is no classifier to scikit-learn, so ``cv=3`` would not stratify: ask for
# it.

from sklearn.model_selection import GridSearchCV, StratifiedKFold

from sklearn_simlearn import OASIS
from sklearn_simlearn.metrics import map_scorer

search = GridSearchCV(
    OASIS(n_triplets=50_000, random_state=0),
    {"C": [0.01, 0.1, 1.0]},
    scoring=map_scorer,
    cv=StratifiedKFold(3),
).fit(X_train, y_train)
search.best_params_

# %%
# Result
# ------
# At the first rank, where near-duplicates live, the cosine is almost as good. It falls
# away down the list, where only the class matters.

import matplotlib.pyplot as plt

from sklearn_simlearn.display import MeanPrecisionRecallDisplay, PrecisionAtRankDisplay
from sklearn_simlearn.similarities import CosineSimilarity

models = {
    "OASIS": search.best_estimator_,
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
