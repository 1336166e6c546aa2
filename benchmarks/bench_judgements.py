"""Learning from judgements of queries against documents: NFCorpus and Cranfield.

    SIMLEARN_DATA=... python benchmarks/bench_judgements.py [PART ...] [--quick]

test      NFCorpus: all training queries, measured on the test queries
folds     Cranfield: five folds over the queries
splits    10 random splits of each collection with 20, 50, 100 and 200 training queries,
          measured on all other queries: the difference to the start, its worst split,
          and how often `holdout_gain_` is within two standard errors of it
documents the same splits with 100 queries, and half of the documents new
scale     100,000 documents and 1,000,000 judgements: time and memory of a fit

`--data FOLDER` takes the place of SIMLEARN_DATA. Times are CPU seconds of one core.
"sum" adds the cosine and BM25, each divided by its largest value per query, with equal
weights. "RRF" adds 1 / (60 + rank).
"""

import argparse
import os
import resource
import time
import warnings
from typing import NamedTuple

import numpy as np
from _common import as_counts, load, print_table
from scipy import sparse
from scipy.stats import rankdata

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    HistogramRankSVM,
    QueryDocumentMap,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.metrics import (
    Judgements,
    average_precision,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

PARTS = ("data", "indices", "indptr", "shape")

MEASURES = {
    "nDCG@10": lambda R, S: ndcg_at_k(R, S, k=10),
    "P@1": lambda R, S: precision_at_k(R, S, k=1),
    "R@100": lambda R, S: recall_at_k(R, S, k=100),
    "MAP": average_precision,
}

# Learners by the side that they read: vectors of the model, or counts of words.
LEARNERS = {
    "OASIS": ("vectors", OASIS(random_state=0)),
    "angular": ("vectors", AngularBilinearRanker(random_state=0)),
    "histogram": ("words", HistogramRankSVM(random_state=0)),
    "Mahalanobis": ("words", SparseMahalanobisLearner(random_state=0)),
    "maps of queries": (
        "vectors",
        QueryDocumentMap("queries", shift=False, random_state=0),
    ),
    "maps of both": ("vectors", QueryDocumentMap(shift=False, random_state=0)),
    "maps of both, 200 steps": (
        "vectors",
        QueryDocumentMap(shift=False, max_iter=200, random_state=0),
    ),
    "shift": ("vectors", QueryDocumentMap(None, random_state=0)),
    "QueryDocumentMap": ("vectors", QueryDocumentMap(random_state=0)),
    "QueryDocumentMap, 200 steps": (
        "vectors",
        QueryDocumentMap(max_iter=200, random_state=0),
    ),
}
QUICK = ("shift", "QueryDocumentMap")

# Rows of the tables of splits; the others take too long for 80 fits.
IN_SPLITS = ("OASIS", "maps of queries", "maps of both", "shift", "QueryDocumentMap")


class Collection(NamedTuple):
    """Queries and documents as vectors and as counts, and the judgements."""

    queries: dict
    documents: dict
    relevance: sparse.csr_array

    def take(self, rows):
        """Return some of the queries."""
        queries = {kind: X[rows] for kind, X in self.queries.items()}
        return self._replace(queries=queries, relevance=self.relevance[rows])

    def judgements(self, kind):
        return Judgements(self.relevance, self.documents[kind])


def read_part(arrays, vectors, words, relevance):
    """Return the collection with the queries of one part."""
    counts = {
        key: as_counts({part: arrays[f"{key}_{part}"] for part in PARTS})
        for key in ("documents", words, relevance)
    }
    return Collection(
        {"vectors": arrays[vectors].astype(np.float32), "words": counts[words]},
        {
            "vectors": arrays["document_vectors"].astype(np.float32),
            "words": counts["documents"],
        },
        counts[relevance],
    )


def read_nfcorpus(part):
    """Return NFCorpus with the queries of "train" or "test"."""
    arrays = load("nfcorpus_minilm.npz")
    names = (f"{part}_vectors", f"{part}_queries", f"{part}_relevance")
    return read_part(arrays, *names)


def read_cranfield():
    """Return Cranfield with the queries that have a relevant document."""
    arrays = load("cranfield_minilm.npz")
    whole = read_part(arrays, "query_vectors", "queries", "relevance")
    return whole.take(np.flatnonzero(whole.relevance.max(axis=1).toarray() > 0))


def rank_by_hand(train, test):
    """Return similarities that need no training, by name."""
    D = test.documents
    cosine = CosineSimilarity(use_idf=False).fit(D["vectors"])
    bm25 = BM25Similarity().fit(D["words"])
    S = cosine.similarity(test.queries["vectors"], D["vectors"])
    B = bm25.similarity(test.queries["words"], D["words"])
    both = [M / np.maximum(M.max(axis=1, keepdims=True), 1e-9) for M in (S, B)]
    fused = sum(1 / (60 + rankdata(-M, axis=1)) for M in (S, B))
    return {"cosine": S, "BM25": B, "sum": sum(both), "RRF": fused}


def learn(name, train, test):
    """Return the fitted learner, the similarities of the test, and the CPU seconds."""
    kind, learner = LEARNERS[name]
    start = time.process_time()
    learner.fit(train.queries[kind], train.judgements(kind))
    seconds = time.process_time() - start
    S = learner.similarity(test.queries[kind], test.documents[kind])
    return learner, S, seconds


def measure(test, S, names=tuple(MEASURES)):
    """Return measures, per query."""
    R = test.relevance.toarray()
    return {name: MEASURES[name](R, S) for name in names}


def compare(pairs, names):
    """Print all rows for pairs of a training and a test part."""
    values, seconds = {}, {}
    for train, test in pairs:
        found = rank_by_hand(train, test)
        for name in names:
            _, found[name], spent = learn(name, train, test)
            seconds[name] = seconds.get(name, 0) + spent
        for name, S in found.items():
            values.setdefault(name, []).append(measure(test, S))
    rows, start = [], None
    for name, parts in values.items():
        row = [name]
        joined = {m: np.concatenate([part[m] for part in parts]) for m in MEASURES}
        start = start or joined
        for of_queries in joined.values():
            known = of_queries[~np.isnan(of_queries)]
            row.append(f"{known.mean():.3f}")
        difference = joined["nDCG@10"] - start["nDCG@10"]
        difference = difference[~np.isnan(difference)]
        error = difference.std(ddof=1) / np.sqrt(len(difference))
        row.append(f"{difference.mean():+.3f} ± {error:.3f}")
        row.append(f"{seconds[name] / len(pairs):.1f}" if name in seconds else "")
        rows.append(row)
    print_table(["", *MEASURES, "to the cosine", "seconds"], rows)


def split_documents(part, rng):
    """Return a training part with half of the documents."""
    kept = np.sort(rng.permutation(part.relevance.shape[1])[::2])
    documents = {kind: D[kept] for kind, D in part.documents.items()}
    return part._replace(documents=documents, relevance=part.relevance[:, kept])


def compare_splits(collection, sizes, learners, n_splits, *, new_documents=False):
    """Print differences to the start on the queries that were not trained on."""
    rows = []
    for name in learners:
        kind, learner = LEARNERS[name]
        learner.set_params(holdout="documents" if new_documents else "auto")
        for size in sizes:
            found = []
            for split in range(n_splits):
                rng = np.random.default_rng(split)
                order = rng.permutation(collection.relevance.shape[0])
                train, test = map(collection.take, (order[:size], order[size:]))
                if new_documents:
                    train = split_documents(train, rng)
                model, S, _ = learn(name, train, test)
                start = CosineSimilarity(use_idf=False).fit(test.documents[kind])
                before = start.similarity(test.queries[kind], test.documents[kind])
                names = ("nDCG@10", "P@1")
                after, before = (measure(test, M, names) for M in (S, before))
                change = {m: after[m] - before[m] for m in names}
                gain = np.nanmean(change["nDCG@10"])
                n = np.count_nonzero(~np.isnan(change["nDCG@10"]))
                error = np.nanstd(change["nDCG@10"], ddof=1) / np.sqrt(n)
                error = np.hypot(error, model.holdout_error_)
                is_close = abs(gain - model.holdout_gain_) <= 2 * error + 1e-12
                found.append((gain, np.nanmean(change["P@1"]), is_close))
            gains, at_1, close = map(np.array, zip(*found, strict=True))
            rows.append(
                [f"{name}, {size}", *(f"{x.mean():+.4f}" for x in (gains, at_1))]
                + [f"{x.min():+.4f}" for x in (gains, at_1)]
                + [f"{np.count_nonzero(close)} of {n_splits}"]
            )
    head = ["learner, queries", "nDCG@10", "P@1", "worst nDCG@10", "worst P@1"]
    print_table([*head, "gain as held out"], rows)


def measure_scale(n_documents=100_000, n_queries=50_000, n_judged=20):
    """Print the time and the memory of a fit on made-up vectors."""
    rng = np.random.default_rng(0)
    D = rng.standard_normal((n_documents, 384), dtype=np.float32)
    columns = rng.integers(n_documents, size=(n_queries, n_judged))
    Q = D[columns[:, 0]] + rng.standard_normal((n_queries, 384), dtype=np.float32)
    indptr = np.arange(0, n_judged * n_queries + 1, n_judged)
    R = sparse.csr_array(
        (np.ones(columns.size), columns.ravel(), indptr), (n_queries, n_documents)
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    start = time.process_time()
    QueryDocumentMap(random_state=0).fit(Q, Judgements(R, D))
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n_documents:,} documents, {columns.size:,} judgements: {seconds:.0f} s, "
        f"{peak:.2f} GiB at most, {before:.2f} GiB of it before the fit"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("test", "folds", "splits", "documents", "scale")
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART")
    parser.add_argument("--data", help="folder of the collections")
    parser.add_argument("--quick", action="store_true", help="two learners only")
    parser.add_argument("--splits", type=int, default=10, help="number of splits")
    options = parser.parse_args()
    if options.data is not None:
        os.environ["SIMLEARN_DATA"] = options.data
    warnings.simplefilter("ignore")
    chosen = options.parts or parts
    names = QUICK if options.quick else tuple(LEARNERS)
    in_splits = QUICK if options.quick else IN_SPLITS
    if "test" in chosen:
        print("\nNFCorpus, test queries")
        compare([(read_nfcorpus("train"), read_nfcorpus("test"))], names)
    if "folds" in chosen:
        print("\nCranfield, five folds")
        whole = read_cranfield()
        n = whole.relevance.shape[0]
        part = np.random.default_rng(0).permutation(n) % 5
        pairs = [
            (
                whole.take(np.flatnonzero(part != i)),
                whole.take(np.flatnonzero(part == i)),
            )
            for i in range(5)
        ]
        compare(pairs, names)
    for what, sizes in (("splits", (20, 50, 100, 200)), ("documents", (100,))):
        if what in chosen:
            for title, whole in (
                ("NFCorpus", read_nfcorpus("train")),
                ("Cranfield", read_cranfield()),
            ):
                print(f"\n{title}, {what}", flush=True)
                compare_splits(
                    whole,
                    sizes,
                    in_splits,
                    options.splits,
                    new_documents=what == "documents",
                )
    if "scale" in chosen:
        print()
        measure_scale()


if __name__ == "__main__":
    main()
