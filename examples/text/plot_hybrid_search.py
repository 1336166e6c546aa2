"""
========================================
Search by words, by vectors, or by both?
========================================

BM25 finds documents with the words of a query. Vectors of a neural network find
documents with a similar meaning. :class:`~sklearn_simlearn.compose.SimilarityUnion`
adds the two similarities, and learns the weights from judgements.
"""

# %%
# Queries, documents and judgements
# ---------------------------------
# The queries are 337 names of categories, and the documents are 1,440 definitions of
# words. On both sides, texts and vectors are columns of a frame. A third of the queries
# is held out.

import pandas as pd
from sklearn.model_selection import train_test_split

from sklearn_simlearn.datasets import load_categories

categories = load_categories()


def as_frame(texts, vectors):
    """Return a column of texts and 64 columns of vectors."""
    frame = pd.DataFrame(vectors, columns=[f"v{i}" for i in range(64)])
    frame.insert(0, "text", texts)
    return frame


documents = as_frame(categories.documents, categories.document_vectors)
queries, new_queries, y, y_new = train_test_split(
    as_frame(categories.queries, categories.query_vectors),
    categories.target.with_documents(documents),
    test_size=1 / 3,
    random_state=0,
)
print(y)

# %%
# Three similarities
# ------------------
# A union with a single part selects the columns of this part. "passthrough" is the
# cosine of the columns.

from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.similarities import BM25Similarity

bm25 = make_retrieval_pipeline(CountVectorizer(stop_words="english"), BM25Similarity())
words = ("bm25", bm25, "text")
meaning = ("vectors", "passthrough", slice(1, None))
models = {
    "BM25": SimilarityUnion([words]),
    "vectors": SimilarityUnion([meaning]),
    "both": SimilarityUnion([words, meaning], random_state=0),
}
for model in models.values():
    model.fit(queries, y)
print(models["both"].weights_)

# %%
# Gain
# ----

from sklearn_simlearn.metrics import retrieval_report

reports = {
    name: retrieval_report(model, new_queries, y_new) for name, model in models.items()
}
for name, report in reports.items():
    print(
        f"{name:8} mean average precision {report.average_precision.mean():.3f}, "
        f"first result right {report.precision_at_1.mean():.0%}"
    )

# %%
# Scores on the hold-out
# ----------------------
# The score changes little around the best weight, so a few training queries are enough
# to find a good weight. The ends of the curve show each part alone.

import matplotlib.pyplot as plt

results = models["both"].holdout_results_
points = sorted(
    (weights[0], value)
    for weights, value in zip(results["candidates"], results["ndcg_at_10"], strict=True)
)
figure, ax = plt.subplots(figsize=(6, 3), layout="constrained")
ax.plot(*zip(*points, strict=True), marker="o", color="#0072B2")
ax.axvline(models["both"].weights_["bm25"], color="black", ls=":")
_ = ax.set(
    title="Held-out training queries",
    xlabel="weight of BM25",
    ylabel="nDCG at 10",
)

# %%
# The query that gains most over vectors
# --------------------------------------

from sklearn_simlearn.index import SimilarityIndex

gain = reports["both"].average_precision - reports["vectors"].average_precision
best = int(gain.argmax())
query = new_queries.iloc[[best]]
print(query["text"].item())
for name, model in models.items():
    index = SimilarityIndex(model).fit(documents, ids=categories.document_ids)
    _, found = index.search(query, k=5)
    print(f"{name:8} {', '.join(found[0])}")
