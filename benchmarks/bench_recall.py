"""Surrogate queries on a static index: recall by the number of lists probed, on MNIST.

    SIMLEARN_DATA=... python benchmarks/bench_recall.py

The experiment follows Table 2 of Kuang et al. Three k-means trees, which are inverted
lists of k-means from different starts, are built once over the items. Queries, plain or
as surrogates, probe K lists of each tree. The recall is the share of the relevant items
in these lists. `set_estimator` changes only the queries.
"""

import numpy as np
from _common import load_mnist, print_table

from sklearn_simlearn import AngularBilinearRanker
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

N_QUERIES = 1000
N_LISTS = 1000
N_TREES = 3
PROBES = (5, 10, 15, 20)

# More items than the lists that a query probes have, and queries at a time.
MANY = 10_000
BATCH = 100


def measure(index, X, y, y_items):
    """Return the mean share of the relevant items that are found, and of all items."""
    n_relevant = np.bincount(y_items)
    recall, share = [], []
    for start in range(0, len(X), BATCH):
        rows = slice(start, start + BATCH)
        scores, found = index.search(X[rows], k=MANY)
        is_found = np.isfinite(scores)
        assert not is_found[:, -1].any()
        is_relevant = is_found & (y_items[found] == y[rows, None])
        recall.append(is_relevant.sum(axis=1) / n_relevant[y[rows]])
        share.append(is_found.sum(axis=1) / len(y_items))
    return np.concatenate(recall), np.mean(np.concatenate(share))


def main():
    X, y = load_mnist()
    order = np.random.RandomState(0).permutation(len(X))
    queries, items = order[:N_QUERIES], np.sort(order[N_QUERIES:])
    options = {"factory": f"IVF{N_LISTS},Flat", "n_indexes": N_TREES, "nprobe": 1}
    index = SimilarityIndex(
        CosineSimilarity(use_idf=False),
        backend="faiss",
        backend_options=options,
        n_jobs=2,
    ).fit(X[items])
    rows = AngularBilinearRanker(n_candidates=2, n_jobs=2, random_state=0)
    rows = rows.fit(X[items], y[items]).reference_indices_
    models = {
        "raw queries": index.estimator_,
        "surrogates, sigma = 0": AngularBilinearRanker(sigma=0, references=rows),
        "surrogates, sigma = 0.95": AngularBilinearRanker(references=rows),
    }
    lines, first = [], None
    for name, model in models.items():
        if model is not index.estimator_:
            model.set_params(n_jobs=2, random_state=0).fit(X[items], y[items])
        # It raises if the stored items would change.
        index.set_estimator(model)
        recalls, shares = [], []
        for n_probes in PROBES:
            index.set_search_options(nprobe=n_probes)
            recall, share = measure(index, X[queries], y[queries], y[items])
            recalls.append(recall)
            shares.append(share)
        first = first or recalls
        # Queries are paired, so the error of a gain is that of its mean over queries.
        gains = [a - b for a, b in zip(recalls, first, strict=True)]
        lines.append([name, "recall", *(f"{np.mean(r):.4f}" for r in recalls)])
        if recalls is not first:
            errors = [np.std(g) / np.sqrt(len(g)) for g in gains]
            cells = (
                f"{np.mean(g):+.4f} ({e:.4f})"
                for g, e in zip(gains, errors, strict=True)
            )
            lines.append(["", "gain (standard error)", *cells])
        lines.append(["", "share of items seen", *(f"{s:.4f}" for s in shares)])
    print(f"\nRecall with {N_TREES} k-means trees of {N_LISTS} lists, by lists probed")
    print_table(["queries", "", *map(str, PROBES)], lines)


if __name__ == "__main__":
    main()
