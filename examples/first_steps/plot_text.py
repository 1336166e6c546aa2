"""
===================================================
How do you learn a similarity of texts from labels?
===================================================

"A lake in eastern Turkey" and "the 3rd largest of the Great Lakes" define the same kind
of object. Tf-idf finds this pair by the word "lake". Many other pairs share no such
word. :class:`~sklearn_simlearn.OASIS` learns related words from labelled texts.
"""

# %%
# Texts
# -----
# The data are 1,440 definitions from a dictionary in 36 groups, such as lake, painter
# or bread. Two thirds are for training. The text does not contain the defined word.

from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_definitions

definitions = load_definitions()
texts_train, texts_test, y_train, y_test = train_test_split(
    definitions.data,
    definitions.target,
    test_size=1 / 3,
    stratify=definitions.target,
    random_state=0,
)
print(texts_train[0])

# %%
# Two pipelines
# -------------
# Both pipelines begin with the counts of the words. Future queries are of the 36
# groups, so we pass ``holdout="samples"``.

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import OASIS
from sklearn_simlearn.similarities import CosineSimilarity

words = CountVectorizer(min_df=2, dtype=np.float64)
models = {
    "tf-idf": make_pipeline(words, CosineSimilarity()),
    "OASIS": make_pipeline(words, OASIS(holdout="samples", random_state=0)),
}
for model in models.values():
    model.fit(texts_train, y_train)

# %%
# Gain
# ----

import matplotlib.pyplot as plt

from sklearn_simlearn.display import MeanPrecisionRecallDisplay, NeighborsDisplay
from sklearn_simlearn.metrics import retrieval_report

MeanPrecisionRecallDisplay.from_estimators(
    models, texts_test, y_test, baselines=["tf-idf"]
)
reports = {
    name: retrieval_report(model, texts_test, y_test) for name, model in models.items()
}
for name, report in reports.items():
    print(
        f"{name:7} mean average precision {report.average_precision.mean():.3f}, "
        f"first result right {report.precision_at_1.mean():.0%}"
    )

# %%
# Three queries
# -------------
# The tables show the results of both similarities for the three queries of different
# groups that gain most. The texts that OASIS finds share hardly any word with the
# query.

gain = reports["OASIS"].average_precision - reports["tf-idf"].average_precision
order = np.argsort(-gain)
_, first = np.unique(y_test[order], return_index=True)
queries = order[np.sort(first)[:3]]
for name, model in models.items():
    NeighborsDisplay.from_estimator(
        model,
        texts_test,
        y_test,
        queries=queries,
        n_neighbors=5,
        texts=texts_test,
        name=name,
    )

# %%
# Queries that lose
# -----------------
# The rankings of some queries become worse. Their words are related to two groups, and
# the learned similarity prefers the wrong one.

figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.hist(gain, bins=np.linspace(-1, 1, 41), color="#0072B2", edgecolor="white")
ax.axvline(0, color="black", ls=":")
ax.set(
    title="Gain of each query over tf-idf",
    xlabel="difference of average precision",
    ylabel="queries",
)
print(f"{(gain > 0).mean():.0%} of the queries gain, {(gain < 0).mean():.0%} lose")
