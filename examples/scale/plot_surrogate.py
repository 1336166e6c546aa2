"""
===================================================
Can a plain FAISS index serve a learned similarity?
===================================================

Every learned similarity in this package is an inner product between a *surrogate
query*, ``transform(Q)``, and a stored item, ``transform_database(D)``. Any index for
inner products can therefore serve it. If the stored items do not depend on the learned
parameters, the model can be trained again without changing the index.
"""

# %%
# Data
# ----
# The data are handwritten digits, whitened by PCA to 40 numbers and scaled to unit
# length. 1,300 digits are the database and the training data; the others query.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

digits = load_digits()
reduce = make_pipeline(PCA(40, whiten=True, random_state=0), Normalizer())
Z = reduce.fit(digits.data[:1300]).transform(digits.data).astype(np.float32)
D, y_D, Q, y_Q = Z[:1300], digits.target[:1300], Z[1300:], digits.target[1300:]

# %%
# The index
# ---------
# FAISS stores the items once. The FAISS index does not depend on the learner.

import faiss

from sklearn_simlearn import OASIS

oasis = OASIS(holdout=None, n_triplets=100_000, random_state=0).fit(D, y_D)
items = np.ascontiguousarray(oasis.transform_database(D))
index = faiss.IndexFlatIP(items.shape[1])
index.add(items)

# %%
# `transform` turns queries into surrogate queries. The results are the same as those of
# `similarity`.

scores, ids = index.search(np.ascontiguousarray(oasis.transform(Q)), 10)
S = oasis.similarity(Q, D)
expected = np.take_along_axis(S, ids, axis=1)
print(f"largest difference of scores: {np.abs(scores - expected).max():.1e}")
print(f"same best item: {np.mean(S.argmax(axis=1) == ids[:, 0]):.1%} of the queries")

# %%
# Train again with the same index
# -------------------------------
# The stored items are the unit vectors, independently of the matrix. Models after any
# number of triplets therefore search the same FAISS index. A thousand triplets are
# enough for these digits; a hold-out can choose this number (:ref:`holdout`).

import matplotlib.pyplot as plt

n_triplets = [100, 300, 1000, 3000, 10_000, 30_000, 100_000]
precision = []
for n in n_triplets:
    model = OASIS(holdout=None, n_triplets=n, random_state=0).fit(D, y_D)
    assert np.array_equal(model.transform_database(D), items)
    _, ids = index.search(np.ascontiguousarray(model.transform(Q)), 10)
    precision.append(np.mean(y_D[ids] == y_Q[:, None]))
_, plain_ids = index.search(np.ascontiguousarray(Q), 10)
plain = np.mean(y_D[plain_ids] == y_Q[:, None])

figure, ax = plt.subplots(figsize=(6, 3.4), layout="constrained")
ax.semilogx(n_triplets, precision, "o-", color="#0072B2", label="surrogate queries")
ax.axhline(plain, color="black", ls=":", label="the queries themselves (cosine)")
ax.set(
    title="One FAISS index, several models",
    xlabel="triplets learned from",
    ylabel="precision of ten results",
    ylim=(0.84, 0.91),
)
ax.legend(loc=(0.35, 0.25), frameon=False)
print(f"precision of ten: {plain:.3f} by the cosine, {max(precision):.3f} at best,")
print(f"{precision[-1]:.3f} after the last triplet")

# %%
# Three queries
# -------------
# The plots show the three queries that gain most, with both results from the same
# index.

from sklearn_simlearn.display import NeighborsDisplay

gain = np.mean(y_D[ids] == y_Q[:, None], axis=1)
gain -= np.mean(y_D[plain_ids] == y_Q[:, None], axis=1)
shown = np.argsort(-gain, kind="stable")[:3]
for name, found in [("Queries themselves", plain_ids), ("Surrogate queries", ids)]:
    NeighborsDisplay.from_predictions(
        found[shown],
        y_D,
        y_Q[shown],
        images=digits.images[:1300],
        query_images=digits.images[1300:][shown],
        name=name,
        cmap="gray_r",
    )

# %%
# :class:`~sklearn_simlearn.index.SimilarityIndex` does the same with less code: it
# encodes queries and items, stores ids and metadata, and detects if items must be
# encoded again (:ref:`sphx_glr_auto_examples_first_steps_plot_search.py`).
# :ref:`sphx_glr_auto_examples_scale_plot_faiss.py` measures the recall of approximate
# indexes.
