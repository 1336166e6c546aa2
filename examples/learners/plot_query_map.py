"""
===================================================
Query map: how much do judgements help new queries?
===================================================

An embedding model computes a vector for each query and each document. Some queries have
judgements or clicks. This example measures how much
:class:`~sklearn_simlearn.QueryDocumentMap` improves the results of new queries by
learning from these. The maths is in the :ref:`User Guide <query_map>`.
"""

# %%
# Data
# ----
# Queries are names of categories, such as "bird of prey". Documents are definitions of
# words. A definition is relevant to a category if its word is a kind of it. The
# judgements carry the documents, so a split of the queries keeps all documents.

from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.metrics import Judgements

data = load_categories()
y = Judgements(data.relevance, data.document_vectors)
Q_train, Q_test, y_train, y_test = train_test_split(
    data.query_vectors, y, test_size=0.5, random_state=0
)
y_train

# %%
# Learn
# -----
# Held-out queries choose among the cosine, the maps, the shift of judged documents, and
# both. The gain that they measure is the gain to expect on new queries.

from sklearn_simlearn import QueryDocumentMap
from sklearn_simlearn.similarities import CosineSimilarity

models = {
    "cosine": CosineSimilarity(use_idf=False),
    "maps": QueryDocumentMap(shift=False, random_state=0),
    "shift": QueryDocumentMap(None, random_state=0),
    "maps and shift": QueryDocumentMap(random_state=0),
}
for model in models.values():
    model.fit(Q_train, y_train)
best = models["maps and shift"]
print(f"expected gain: {best.holdout_gain_:.3f} ± {best.holdout_error_:.3f}")

# %%
# New queries
# -----------
# The test queries are not used for learning. They search the same documents as the
# training queries, and most of these documents were judged for some training query.

import matplotlib.pyplot as plt

from sklearn_simlearn.metrics import RetrievalScorer

ndcg = RetrievalScorer("ndcg", k=10)
scores = {name: ndcg(model, Q_test, y_test) for name, model in models.items()}

fig, ax = plt.subplots(figsize=(7, 2.8), layout="constrained")
bars = ax.barh(list(scores), list(scores.values()), color="#0072B2")
ax.bar_label(bars, fmt="%.3f", padding=3)
ax.invert_yaxis()
ax.set(xlabel="nDCG at 10", xlim=(0, 1), title="Categories, new queries")
_ = ax.spines[["top", "right"]].set_visible(False)
