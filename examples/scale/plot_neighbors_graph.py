"""
========================================================
Does a learned similarity make better maps and clusters?
========================================================

Manifold learning, clustering and classifiers of scikit-learn accept a graph of
neighbours instead of the data. This example compares the graphs of a learned similarity
and of the cosine. A :class:`~sklearn_simlearn.index.SimilarityIndex` computes the
graph, as a step of a pipeline. The :ref:`User Guide <search-neighbors>` defines the
distance.
"""

# %%
# Two similarities
# ----------------
# :class:`~sklearn_simlearn.OASIS` is fitted on half of the digits, as counts of small
# patches. Its default form is a cosine under the learned matrix, so one minus the
# similarity is a distance. The other half is the test set.

from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline

from sklearn_simlearn import OASIS
from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.similarities import CosineSimilarity

X, y = load_digit_words(return_X_y=True)
X_train, X_test, y_train, y_test = train_test_split(
    X, y, test_size=0.5, stratify=y, random_state=0
)
models = {
    "cosine": CosineSimilarity(use_idf=False).fit(X_train),
    "learned": OASIS(holdout="samples", random_state=0).fit(X_train, y_train),
}

# %%
# Clusters
# --------
# Spectral clustering is applied to the test images. The index does not use labels here:
# its estimator is already fitted, and only the images are stored.

from sklearn.cluster import SpectralClustering
from sklearn.metrics import adjusted_rand_score

from sklearn_simlearn.index import SimilarityIndex

for name, model in models.items():
    clustering = make_pipeline(
        SimilarityIndex(model, n_neighbors=10),
        SpectralClustering(
            10, affinity="precomputed_nearest_neighbors", n_neighbors=10, random_state=0
        ),
    )
    agreement = adjusted_rand_score(y_test, clustering.fit_predict(X_test))
    print(f"{name}: agreement of clusters and digits {agreement:.2f}")

# %%
# Nearest neighbours
# ------------------
# The learned graph is also better with only five neighbours.

from sklearn.neighbors import KNeighborsClassifier

for name, model in models.items():
    classifier = make_pipeline(
        SimilarityIndex(model, n_neighbors=5),
        KNeighborsClassifier(n_neighbors=5, metric="precomputed"),
    )
    accuracy = classifier.fit(X_train, y_train).score(X_test, y_test)
    print(f"{name}: accuracy of the vote of five neighbours {accuracy:.3f}")

# %%
# Neighbours within a radius
# --------------------------
# DBSCAN needs all neighbours within a distance. `radius_neighbors_graph` returns
# exactly these, so the result is the same as with the full matrix of distances. DBSCAN
# does not need the number of clusters, and assigns images with too few neighbours to no
# cluster.

from sklearn.cluster import DBSCAN

index = SimilarityIndex(models["learned"]).fit(X_test)
graph = index.radius_neighbors_graph(X_test, radius=0.1, mode="distance")
labels = DBSCAN(eps=0.1, metric="precomputed").fit_predict(graph)
print(f"{labels.max() + 1} clusters, {(labels < 0).mean():.0%} of the images left out")

# %%
# A map
# -----
# t-SNE needs three times as many neighbours as its perplexity, plus one. The learned
# similarity separates the digits better.

import matplotlib.pyplot as plt
from sklearn.manifold import TSNE

figure, axes = plt.subplots(1, 2, figsize=(10, 5), layout="constrained")
for ax, (name, model) in zip(axes, models.items(), strict=True):
    tsne = TSNE(
        metric="precomputed", init="random", perplexity=20, max_iter=500, random_state=0
    )
    embedding = make_pipeline(SimilarityIndex(model, n_neighbors=61), tsne)
    points = embedding.fit_transform(X_test[::2])
    ax.scatter(*points.T, s=0)
    for point, digit in zip(points, y_test[::2], strict=True):
        color = plt.cm.tab10(digit)
        ax.text(*point, str(digit), color=color, size=7, ha="center", va="center")
    ax.set(title=f"Map of digits, {name}", xticks=[], yticks=[])
