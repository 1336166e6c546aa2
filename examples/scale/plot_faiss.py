"""
===========================================
Which items does an approximate index miss?
===========================================

An inverted file of k-means lists reads only a few lists per query. This example
measures the share of the true neighbours that such a search finds. It also tests
whether several inverted files from different starts find more neighbours with the same
work. :class:`~sklearn_simlearn.index.SimilarityIndex` can use any index of FAISS; see
the :ref:`User Guide <serving>`.
"""

# %%
# Data
# ----
# The data are 8,000 patches of digits in 16 dimensions, most of which have near
# neighbours.

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

images = load_digits().images.astype(np.float32)
windows = np.lib.stride_tricks.sliding_window_view(images, (5, 5), axis=(1, 2))
patches = windows.reshape(-1, 25)
rng = np.random.default_rng(0)
patches = rng.permutation(patches[patches.std(axis=1) > 3])[:8200]
X, queries = patches[200:], patches[:200]
model = make_pipeline(StandardScaler(), PCA(16, random_state=0)).fit(X)

# %%
# Exact search
# ------------
# For a transformer, the similarity is the cosine of its output.

from sklearn_simlearn.index import SimilarityIndex

exact = SimilarityIndex(model, backend="dense").fit(X)
_, truth = exact.search(queries, k=10)

# %%
# Inverted files
# --------------
# The number of lists that a query reads, `nprobe`, is an option of the search and can
# be changed without building the index again. Recall is the share of the ten best items
# that are found. If a query reads one list in ten, it finds nearly all of them. With
# the same `nprobe`, three inverted files from different starts find more than one. But
# if one inverted file reads as many lists as all three together, it finds as many
# items.


def measure(index, n_probes):
    index.set_search_options(nprobe=n_probes)
    _, ids = index.search(queries, k=10)
    return np.mean([np.isin(*pair).mean() for pair in zip(truth, ids, strict=True)])


import matplotlib.pyplot as plt

N_LISTS = 80
figure, ax = plt.subplots(figsize=(6, 3.6), layout="constrained")
for n_trees, probes, look in [
    (1, [1, 2, 3, 6, 9, 12, 18], {"color": "#0072B2", "marker": "o"}),
    (3, [1, 2, 3, 4, 6], {"color": "#D55E00", "marker": "s"}),
]:
    index = SimilarityIndex(
        model,
        backend="faiss",
        backend_options={"factory": f"IVF{N_LISTS},Flat", "n_indexes": n_trees},
    ).fit(X)
    recall = [measure(index, n_probes) for n_probes in probes]
    work = n_trees * np.array(probes) / N_LISTS
    ax.plot(work, recall, **look, label=f"{n_trees} x {N_LISTS} lists")
ax.set(
    title="Lists of k-means",
    xlabel="share of lists visited",
    ylabel="recall of the ten best",
)
_ = ax.legend(loc="lower right", frameon=False)

# %%
# Graphs
# ------
# Other types of index are selected by the factory string.

index = SimilarityIndex(
    model, backend="faiss", backend_options={"factory": "HNSW16", "efSearch": 64}
).fit(X)
_, ids = index.search(queries, k=10)
recall = np.mean([np.isin(*pair).mean() for pair in zip(truth, ids, strict=True)])
print(f"HNSW16: recall {recall:.3f}")
