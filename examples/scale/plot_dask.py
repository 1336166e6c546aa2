"""
==============================
How do you use a Dask cluster?
==============================

A Dask cluster changes only the place of the computation. A grid search gives the same
scores, and a search returns the same neighbours in the same order. Here the cluster
consists of two workers in this process; a real cluster is used in the same way. See the
:ref:`User Guide <scaling>`.
"""

# %%
# A cluster
# ---------

from dask.distributed import Client, LocalCluster

cluster = LocalCluster(
    n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0"
)
client = Client(cluster)

# %%
# Choosing a parameter
# --------------------
# Searches of scikit-learn run on the cluster through joblib. With an integer
# ``random_state``, fits are bit-identical on every machine.

import joblib
import numpy as np
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV, StratifiedKFold
from sklearn.preprocessing import scale

from sklearn_simlearn import OASIS
from sklearn_simlearn.metrics import map_scorer

digits = load_digits()
X, y = scale(digits.data, with_std=False), digits.target
X_train, y_train = X[:600], y[:600]
search = GridSearchCV(
    OASIS(holdout=None, n_triplets=5000, random_state=0),
    {"C": [0.001, 0.01, 0.1, 1.0]},
    scoring=map_scorer,
    cv=StratifiedKFold(2),
)
with joblib.parallel_backend("dask"):
    on_cluster = search.fit(X_train, y_train).cv_results_["mean_test_score"]
here = search.fit(X_train, y_train).cv_results_["mean_test_score"]
print("same scores:", np.array_equal(on_cluster, here))

# %%
# An index in shards
# ------------------
# Each worker holds a part of the items as an index. A query is sent to all workers, and
# their best items are merged. The result is that of a single index.

from sklearn_simlearn.index import ShardedIndex, SimilarityIndex

sharded = ShardedIndex(search.best_estimator_, n_shards=4).fit(X[:1700])
whole = SimilarityIndex(search.best_estimator_).fit(X[:1700])
scores, ids = sharded.search(X[1700:], k=10)
expected_scores, expected_ids = whole.search(X[1700:], k=10)
print(sharded.shards_)
print("same items:", np.array_equal(ids, expected_ids))
print("same scores:", np.array_equal(scores, expected_scores))

# %%
# Results by shard
# ----------------
# The first plot shows three queries with their results from all shards. The second plot
# shows the share of each shard in the results of all queries. Each shard holds a
# quarter of the items.

import matplotlib.pyplot as plt

from sklearn_simlearn.display import NeighborsDisplay

shown = [0, 40, 80]
NeighborsDisplay.from_predictions(
    ids[shown],
    y[:1700],
    y[1700:][shown],
    images=digits.images[:1700],
    query_images=digits.images[1700:][shown],
    name="From four shards",
    cmap="gray_r",
)
share = np.bincount(ids.ravel() * 4 // 1700, minlength=4) / ids.size
figure, ax = plt.subplots(figsize=(6, 2.4), layout="constrained")
bars = ax.barh(sharded.shards_, share, color="#0072B2")
ax.bar_label(bars, fmt="{:.0%}", padding=3)
ax.set(title="Share of the results", xlim=(0, 0.4), xticks=[])
ax.invert_yaxis()

# %%
# Close the cluster with its workers.

client.close()
cluster.close()
