"""
=============================
How do you learn from clicks?
=============================

A log of clicks shows which documents people chose for a query. This example turns the
clicks into judgements, from which :class:`~sklearn_simlearn.OASIS` learns how to
compare vectors.
"""

# %%
# A log
# -----
# This example generates a log: people type the name of a category and click on some of
# its definitions. One click in ten is on a random definition.

import numpy as np

from sklearn_simlearn.datasets import load_categories

categories = load_categories()
rng = np.random.default_rng(0)
clicks = {"query": [], "document": []}
for row, query in enumerate(categories.query_ids):
    members = categories.relevance[[row]].indices
    for _ in range(30):
        stray = rng.random() < 0.1
        document = rng.integers(1440) if stray else rng.choice(members)
        clicks["query"].append(query)
        clicks["document"].append(categories.document_ids[document])
print(
    len(clicks["query"]),
    "clicks, such as",
    clicks["query"][0],
    "->",
    clicks["document"][0],
)

# %%
# From clicks to judgements
# -------------------------
# Repeated clicks add up. The ids of the queries give the order of the rows.

from sklearn_simlearn.metrics import judgements_from_table

y = judgements_from_table(
    clicks,
    categories.document_vectors,
    query="query",
    document="document",
    query_ids=categories.query_ids,
    document_ids=categories.document_ids,
)
print(y)

# %%
# Learn from three quarters of the queries
# ----------------------------------------
# The other queries are new. Their results are evaluated by the true categories, not by
# clicks.

from sklearn.model_selection import train_test_split

from sklearn_simlearn import OASIS
from sklearn_simlearn.metrics import RetrievalScorer
from sklearn_simlearn.similarities import CosineSimilarity

truth = categories.target.with_documents(categories.document_vectors)
Q_train, Q_test, y_train, _, _, truth_test = train_test_split(
    categories.query_vectors, y, truth, test_size=0.25, random_state=0
)
cosine = CosineSimilarity(use_idf=False).fit(Q_train, y_train)
oasis = OASIS(random_state=0).fit(Q_train, y_train)
ndcg = RetrievalScorer("ndcg", k=10)
for name, model in {"cosine": cosine, "OASIS": oasis}.items():
    print(f"{name:7} nDCG at 10 of new queries {ndcg(model, Q_test, truth_test):.3f}")
print(f"gain on held-out training queries, by their clicks {oasis.holdout_gain_:.3f}")

# %%
# Number of clicks
# ----------------

import warnings

import matplotlib.pyplot as plt

sizes, scores = [20, 40, 80, len(Q_train)], []
for size in sizes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # too few queries keep the cosine
        model = OASIS(random_state=0).fit(Q_train[:size], y_train[:size])
    scores.append(ndcg(model, Q_test, truth_test))
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(sizes, scores, marker="o", color="#0072B2", label="OASIS")
ax.axhline(ndcg(cosine, Q_test, truth_test), color="black", ls=":", label="cosine")
ax.set(
    title="New queries",
    xlabel="training queries with 30 clicks each",
    ylabel="nDCG at 10",
)
ax.legend()
