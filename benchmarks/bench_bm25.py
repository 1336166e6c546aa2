"""BM25 on Cranfield and NFCorpus: nDCG at 10 and the time of a search.

    SIMLEARN_DATA=... python benchmarks/bench_bm25.py

The first table shows the variants of `BM25Similarity` with default parameters, next to
the cosine of tf-idf. "shared words" is the form in which BM25L and BM25+ were proposed:
a word that the document lacks adds 0, and each of the others an additional delta. The
second table shows `k1` and `b` of the default variant. The last lines compare the time
of all queries of NFCorpus, ten results each, with that of the package bm25s, which gets
the same words as integers.
"""

import argparse

import numpy as np
from _common import as_counts, best_seconds, load, print_table

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import ndcg_at_k
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

SETS = {
    "Cranfield": ("cranfield_minilm.npz", "queries", "relevance"),
    "NFCorpus": ("nfcorpus_minilm.npz", "test_queries", "test_relevance"),
}
PARTS = ("data", "indices", "indptr", "shape")
METHODS = ("lucene", "robertson", "atire", "bm25l", "bm25+")


def read(name):
    """Return counts of the documents and the queries, and the judgements."""
    file, queries, relevance = SETS[name]
    arrays = load(file)
    return tuple(
        as_counts({part: arrays[f"{key}_{part}"] for part in PARTS})
        for key in ("documents", queries, relevance)
    )


def measure(similarity, D, Q, relevance):
    return np.nanmean(ndcg_at_k(relevance, similarity.fit(D).similarity(Q, D), k=10))


def measure_shared_words(method, D, Q, relevance):
    bm25 = BM25Similarity(method=method).fit(D)
    of_absent = (bm25.absent_ / bm25.idf_).max()
    shared = (bm25.idf_ * of_absent * Q.toarray()) @ D.sign().T.toarray()
    return np.nanmean(ndcg_at_k(relevance, bm25.similarity(Q, D) + shared, k=10))


def compare_time(D, Q):
    import bm25s

    index = SimilarityIndex(BM25Similarity().fit(D)).fit(D)
    reference = bm25s.BM25()
    words = [as_words(D, row) for row in range(D.shape[0])]
    vocabulary = {str(i): i for i in range(D.shape[1])}
    reference.index((words, vocabulary), show_progress=False)
    tokens = [[str(i) for i in as_words(Q, row)] for row in range(Q.shape[0])]
    tokens = [query for query in tokens if query]
    ours = best_seconds(lambda: index.search(Q, k=10))
    theirs = best_seconds(lambda: reference.retrieve(tokens, k=10, show_progress=False))
    print(f"{len(tokens)} queries: {1e3 * ours:.1f} ms; bm25s {1e3 * theirs:.1f} ms")


def as_words(X, row):
    part = slice(X.indptr[row], X.indptr[row + 1])
    return np.repeat(X.indices[part], X.data[part].astype(int)).tolist()


def print_values(what, rows):
    rows = [[name, *(f"{value:.4f}" for value in values)] for name, *values in rows]
    print_table([what, *SETS], rows)


def main():
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    sets = [read(name) for name in SETS]
    rows = [["tf-idf", *(measure(CosineSimilarity(), *one) for one in sets)]]
    for method in METHODS:
        bm25 = BM25Similarity(method=method)
        rows.append([method, *(measure(bm25, *one) for one in sets)])
    for method in ("bm25l", "bm25+"):
        values = (measure_shared_words(method, *one) for one in sets)
        rows.append([f"{method}, shared words", *values])
    print_values("variant", rows)
    rows = [
        [f"k1={k1}, b={b}", *(measure(BM25Similarity(k1, b), *one) for one in sets)]
        for k1 in (0.9, 1.2, 1.5, 2.0)
        for b in (0.4, 0.75, 1.0)
    ]
    print_values("parameters", rows)
    D, Q, _ = sets[1]
    compare_time(D, Q)


if __name__ == "__main__":
    main()
