"""Learning from judgements of queries against documents.

The collections are NFCorpus, Cranfield and, in splits and documents, the one of the
package (load_categories).

    SIMLEARN_DATA=... python benchmarks/bench_judgements.py [PART ...] [--only NAME ...]

test      NFCorpus: all training queries, measured on the test queries
folds     Cranfield: five folds over the queries
splits    10 random splits of each collection with 20, 50, 100 and 200 training queries,
          measured on all other queries: the gain over the start with its standard
          error over splits, its worst split, and how often `holdout_gain_` is within
          two standard errors of it
documents the same splits, with half of the documents new; the last columns are for
          lists of new documents only
new       NFCorpus: all training queries and half of the documents; the test queries
          search all documents, or only the new ones
models    queries of one embedding model search an index of another: MiniLM and latent
          semantic analysis of the words
triplets  NFCorpus: 50,000 hard triplets, with and without a hold-out of queries
scale     100,000 documents and 1,000,000 judgements: time and memory of a fit

`--data FOLDER` replaces SIMLEARN_DATA. `--write doc/figures/judgements` writes each row
to its table of the documentation, as soon as the row is measured. Times are CPU seconds
of one core, with the hold-out. The fixed sum adds the cosine and BM25, each divided by
its largest value per query. "RRF" adds 1 / (60 + rank). A linear adapter by torch and
nudge-ft are compared if they are installed.
"""

import argparse
import os
import re
import resource
import time
import warnings
from pathlib import Path

import numpy as np
from _adapters import list_adapters
from _common import update_csv
from _judged import read_categories, read_cranfield, read_nfcorpus
from scipy import sparse
from scipy.stats import rankdata
from sklearn.base import clone
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfTransformer
from sklearn.frozen import FrozenEstimator
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    EmbeddingModelMap,
    HistogramRankSVM,
    QueryDocumentMap,
    SparseMahalanobisLearner,
)
from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.metrics import (
    Judgements,
    average_precision,
    ndcg_at_k,
    precision_at_k,
    recall_at_k,
)
from sklearn_simlearn.similarities import BM25Similarity, CosineSimilarity

MEASURES = {
    "nDCG@10": lambda R, S: ndcg_at_k(R, S, k=10),
    "P@1": lambda R, S: precision_at_k(R, S, k=1),
    "recall@100": lambda R, S: recall_at_k(R, S, k=100),
    "MAP": average_precision,
}

# Measures of the tables of differences.
TOP = ("nDCG@10", "P@1")


def make_union(part="passthrough"):
    """Return BM25 of the words and a similarity of the vectors."""
    bm25 = make_retrieval_pipeline(
        CountVectorizer(analyzer=str.split), BM25Similarity()
    )
    parts = [("bm25", bm25, "words"), ("vectors", part, slice(1, None))]
    return SimilarityUnion(parts, random_state=0)


# Learners by their input: vectors of the model, counts of words, or frames of both.
LEARNERS = {
    "OASIS()": ("vectors", OASIS(random_state=0)),
    "AngularBilinearRanker()": ("vectors", AngularBilinearRanker(random_state=0)),
    "HistogramRankSVM()": ("words", HistogramRankSVM(random_state=0)),
    "SparseMahalanobisLearner()": ("words", SparseMahalanobisLearner(random_state=0)),
    'QueryDocumentMap("queries", shift=False)': (
        "vectors",
        QueryDocumentMap("queries", shift=False, random_state=0),
    ),
    "QueryDocumentMap(shift=False)": (
        "vectors",
        QueryDocumentMap(shift=False, random_state=0),
    ),
    "QueryDocumentMap(shift=False, max_iter=200)": (
        "vectors",
        QueryDocumentMap(shift=False, max_iter=200, random_state=0),
    ),
    "QueryDocumentMap(None)": ("vectors", QueryDocumentMap(None, random_state=0)),
    "QueryDocumentMap()": ("vectors", QueryDocumentMap(random_state=0)),
    "QueryDocumentMap(max_iter=200)": (
        "vectors",
        QueryDocumentMap(max_iter=200, random_state=0),
    ),
    "BM25 + cosine": ("both", make_union()),
    "BM25 + QueryDocumentMap(shift=False)": (
        "both",
        make_union(QueryDocumentMap(shift=False, random_state=0)),
    ),
    "BM25 + QueryDocumentMap()": ("both", make_union(QueryDocumentMap(random_state=0))),
}

# Learners with default settings, for the tables of splits.
IN_SPLITS = (
    "OASIS()",
    "AngularBilinearRanker()",
    "HistogramRankSVM()",
    "SparseMahalanobisLearner()",
    "QueryDocumentMap()",
    "BM25 + cosine",
    "BM25 + QueryDocumentMap()",
)

# Learners of vectors with default settings, and maps without a shift.
OF_VECTORS = (
    "OASIS()",
    "AngularBilinearRanker()",
    'QueryDocumentMap("queries", shift=False)',
    "QueryDocumentMap(shift=False)",
    "QueryDocumentMap()",
)


# -- similarities --


def rank_by_hand(test):
    """Return similarities that need no training, by name."""
    D = test.documents
    cosine = CosineSimilarity(use_idf=False).fit(D["vectors"])
    bm25 = BM25Similarity().fit(D["words"])
    S = cosine.similarity(test.queries["vectors"], D["vectors"])
    B = bm25.similarity(test.queries["words"], D["words"])
    both = [M / np.maximum(M.max(axis=1, keepdims=True), 1e-9) for M in (S, B)]
    fused = sum(1 / (60 + rankdata(-M, axis=1)) for M in (S, B))
    return {"cosine": S, "BM25": B, "fixed sum of both": sum(both), "RRF": fused}


def rank_by_starts(test, kind):
    """Return the similarities from which a learner of some columns starts."""
    if kind == "words":
        D = test.documents[kind]
        start = CosineSimilarity(power=0.75).fit(D)
        return [start.similarity(test.queries[kind], D)]
    found = rank_by_hand(test)
    return [found["cosine"]] if kind == "vectors" else [found["cosine"], found["BM25"]]


def learn(name, train, test, **settings):
    """Return the fitted learner, the similarities of the test, and the CPU seconds."""
    kind, learner = LEARNERS[name]
    learner = clone(learner).set_params(**settings)
    start = time.process_time()
    learner.fit(train.queries[kind], train.judgements(kind))
    seconds = time.process_time() - start
    S = learner.similarity(test.queries[kind], test.documents[kind])
    return learner, S, seconds


def measure(test, S, names=tuple(MEASURES)):
    """Return measures, per query."""
    R = test.relevance.toarray()
    return {name: MEASURES[name](R, S) for name in names}


# -- tables --


def compare(pairs, names):
    """Yield all rows for pairs of a training and a test part."""
    values, seconds = {}, {}
    adapters = list_adapters()
    for train, test in pairs:
        found = rank_by_hand(test)
        for name in names:
            _, found[name], spent = learn(name, train, test)
            seconds[name] = seconds.get(name, 0) + spent
        for name, rank in adapters.items():
            found[name], spent = rank(train, test)
            seconds[name] = seconds.get(name, 0) + spent
        for name, S in found.items():
            values.setdefault(name, []).append(measure(test, S))
    start = None
    for name, parts in values.items():
        joined = {m: np.concatenate([part[m] for part in parts]) for m in MEASURES}
        start = start or joined
        row = {"similarity": name} | {m: show(joined[m]) for m in MEASURES}
        row["gain in nDCG@10"] = show(joined["nDCG@10"] - start["nDCG@10"], "+")
        spent = seconds.get(name)
        row["seconds"] = "" if spent is None else f"{spent / len(pairs):.1f}"
        yield row


def show(values, sign="", digits=3):
    """Return the mean over queries or splits, and its standard error."""
    mean, error = average(values)
    return f"{mean:{sign}.{digits}f} ± {error:.{digits}f}"


def report(title, name, rows, options, n_keys=1):
    """Print rows of a table, and write them to its file of the documentation."""
    print(f"\n{title}")
    for i, row in enumerate(rows):
        # As usual in tables, figures below 1 begin with the point.
        row = {key: re.sub(r"(?<!=)\b0\.", ".", row[key]) for key in row}
        for line in [row, row.values()] if i == 0 else [row.values()]:
            first, *others = line
            print(f"{first:44}", *(f"{cell:>16}" for cell in others), flush=True)
        if options.write is not None:
            update_csv(Path(options.write, f"{name}.csv"), row, n_keys)


def average(values):
    """Return the mean over the queries with relevant documents, and its error."""
    known = values[~np.isnan(values)]
    return known.mean(), known.std(ddof=1) / np.sqrt(len(known))


def find_start(collection, kind):
    """Return the similarities of the start of a learner: the part with the best nDCG.

    All queries of the collection choose the part. If the test queries did, a few of
    them would choose a part that is good by chance.
    """
    parts = rank_by_starts(collection, kind)
    return max(parts, key=lambda S: average(measure(collection, S, TOP)["nDCG@10"])[0])


def compare_splits(collection, names, options, *, new_documents):
    """Yield gains over the start on the queries that were not used for training."""
    settings = read_settings(options)
    for name in names:
        start = find_start(collection, LEARNERS[name][0])
        for size in options.sizes:
            found = [
                measure_split(
                    collection, start, name, size, split, settings, new_documents
                )
                for split in range(options.splits)
            ]
            values = np.array([gains for gains, _ in found])
            pair, *of_new = values.transpose(1, 2, 0)
            n_close = sum(is_close for _, is_close in found)
            row = {"learner": label(name, settings), "queries": f"{size}"}
            row |= {m: show(x, "+", 4) for m, x in zip(TOP, pair, strict=True)}
            row |= {
                f"worst {m}": f"{min(x):+.4f}" for m, x in zip(TOP, pair, strict=True)
            }
            for gains in of_new:
                for m, x in zip(TOP, gains, strict=True):
                    row[f"{m}, new"] = show(x, "+", 4)
            yield row | {"foreseen": f"{n_close} of {options.splits}"}


def label(name, settings):
    """Return the name of a learner with its settings."""
    return name + "".join(f", {value} held out" for value in settings.values())


def read_settings(options):
    """Return the parameters of the learners that the command line sets."""
    return {} if options.holdout is None else {"holdout": options.holdout}


def measure_split(collection, start, name, size, split, settings, new_documents):
    """Return gains of both measures, and whether the hold-out predicted nDCG@10.

    The gains are those on all documents and, if some are new, on the new ones.
    """
    rng = np.random.default_rng(split)
    n_queries, n_documents = collection.relevance.shape
    order = rng.permutation(n_queries)
    train, test = map(collection.take, (order[:size], order[size:]))
    lists = [np.arange(n_documents)]
    if new_documents:
        halves = rng.permutation(n_documents)
        train = train.take_documents(np.sort(halves[::2]))
        lists.append(np.sort(halves[1::2]))
    model, S, _ = learn(name, train, test, **settings)
    found = [
        [average(values) for values in subtract(test, S, start[order[size:]], columns)]
        for columns in lists
    ]
    gain, error = found[0][0]
    error = np.hypot(error, model.holdout_error_)
    is_close = abs(gain - model.holdout_gain_) <= 2 * error + 1e-12
    return [[mean for mean, _ in pair] for pair in found], is_close


def subtract(test, S, before, columns):
    """Return differences of the measures of some documents, per query."""
    part = test.take_documents(columns)
    after, before = (measure(part, M[:, columns], TOP) for M in (S, before))
    return [after[name] - before[name] for name in TOP]


def compare_new(names, settings):
    """Yield gains over the cosine on all documents, and on new ones only."""
    train, test = read_nfcorpus("train"), read_nfcorpus("test")
    order = np.random.default_rng(0).permutation(train.relevance.shape[1])
    known, new = np.sort(order[::2]), np.sort(order[1::2])
    before = rank_by_hand(test)["cosine"]
    lists = {"all": np.arange(before.shape[1]), "new": new}
    for name in names:
        _, S, seconds = learn(name, train.take_documents(known), test, **settings)
        row = {"learner": label(name, settings)}
        for kind, columns in lists.items():
            gains = subtract(test, S, before, columns)
            row |= {
                f"{m}, {kind}": show(x, "+") for m, x in zip(TOP, gains, strict=True)
            }
        yield row | {"seconds": f"{seconds:.1f}"}


def compare_models(train, test, n_components=256):
    """Yield how queries of a new model rank in an index of an old one."""
    words = test.documents["words"]
    tfidf = TfidfTransformer(sublinear_tf=True).fit(words)
    svd = TruncatedSVD(n_components, random_state=0).fit(tfidf.transform(words))
    lsa = make_pipeline(FrozenEstimator(tfidf), FrozenEstimator(svd), Normalizer())
    models = {
        "MiniLM": lambda sides: sides["vectors"].astype(np.float64),
        "LSA": lambda sides: lsa.transform(sides["words"]),
    }
    for new, old in (("LSA", "MiniLM"), ("MiniLM", "LSA")):
        Q_old, D_old = (models[old](side) for side in (test.queries, test.documents))
        Q_new, D_new = (models[new](side) for side in (test.queries, test.documents))
        bridge = EmbeddingModelMap(random_state=0).fit(D_new, D_old)
        rotation = EmbeddingModelMap(np.inf, random_state=0).fit(D_new, D_old)
        found = {
            f"{old} for both": Q_old @ D_old.T,
            f"{new} to {old}, rotation": rotation.transform(Q_new) @ D_old.T,
            f"{new} to {old}, EmbeddingModelMap()": bridge.transform(Q_new) @ D_old.T,
        }
        if train is not None:
            learner = QueryDocumentMap(random_state=0)
            y = Judgements(train.relevance, D_old)
            learner.fit(models[new](train.queries), y)
            name = f"{new} to {old}, QueryDocumentMap()"
            found[name] = learner.similarity(Q_new, D_old)
        for name, S in found.items():
            row = {"queries, index": name}
            row |= {m: show(values) for m, values in measure(test, S).items()}
            kept = f"{bridge.recall_kept_:.3f}" if "EmbeddingModelMap" in name else ""
            yield row | {"``recall_kept_``": kept}


def compare_triplets(n_triplets=50_000, n_negatives=50):
    """Yield the rankings of learners that learn from hard triplets."""
    train, test = read_nfcorpus("train"), read_nfcorpus("test")
    Q, D = train.queries["vectors"], train.documents["vectors"]
    relevant = train.relevance.toarray() > 0
    rng = np.random.default_rng(0)
    triplets = np.empty((n_triplets, 3), dtype=np.int64)
    queries = rng.choice(np.flatnonzero(relevant.any(axis=1)), n_triplets)
    for i, query in enumerate(queries):
        others = rng.choice(np.flatnonzero(~relevant[query]), n_negatives)
        hardest = others[np.argmax(D[others] @ Q[query])]
        positive = rng.choice(np.flatnonzero(relevant[query]))
        triplets[i] = query, len(Q) + positive, len(Q) + hardest
    for name, learner in {
        "OASIS(C=0.01, holdout=None)": OASIS(C=0.01, holdout=None),
        "OASIS(C=0.01)": OASIS(C=0.01, random_state=0),
        "OASIS()": OASIS(random_state=0),
        "AngularBilinearRanker(holdout=None)": AngularBilinearRanker(
            holdout=None, random_state=0
        ),
        "AngularBilinearRanker()": AngularBilinearRanker(random_state=0),
    }.items():
        start = time.process_time()
        learner.fit_triplets(np.concatenate([Q, D]), triplets)
        seconds = time.process_time() - start
        found = measure(test, learner.similarity(test.queries["vectors"], D))
        row = {"learner": name}
        row |= {m: f"{np.nanmean(values):.3f}" for m, values in found.items()}
        yield row | {"seconds": f"{seconds:.1f}"}


def measure_scale(name, n_documents=100_000, n_queries=50_000, n_judged=20):
    """Return the time and the memory of a fit on synthetic vectors."""
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
    clone(LEARNERS[name][1]).fit(Q, Judgements(R, D))
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {
        "learner": name,
        "seconds": f"{seconds:.0f}",
        "GiB at most": f"{peak:.2f}",
        "GiB before the fit": f"{before:.2f}",
    }


def read_folds(n_folds=5):
    """Return pairs of training and test queries of Cranfield."""
    whole = read_cranfield()
    part = np.random.default_rng(0).permutation(whole.relevance.shape[0]) % n_folds
    return [
        tuple(whole.take(np.flatnonzero(mask)) for mask in (part != i, part == i))
        for i in range(n_folds)
    ]


# Collections of the splits.
FOR_SPLITS = {
    "NFCorpus": lambda: read_nfcorpus("train"),
    "Cranfield": read_cranfield,
    "Categories": read_categories,
}


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = "test", "folds", "splits", "documents", "new", "models", "triplets", "scale"
    parser.add_argument("parts", nargs="*", choices=[*parts, []], metavar="PART")
    parser.add_argument("--data", help="folder of the collections")
    parser.add_argument("--only", nargs="+", choices=LEARNERS, help="some learners")
    parser.add_argument("--splits", type=int, default=10, help="number of splits")
    parser.add_argument("--sizes", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--holdout", help="of the learners: splits, documents, new")
    parser.add_argument("--on", choices=FOR_SPLITS, help="of the splits")
    parser.add_argument("--write", metavar="FOLDER", help="of the tables, as CSV files")
    options = parser.parse_args()
    if options.data is not None:
        os.environ["SIMLEARN_DATA"] = options.data
    warnings.simplefilter("ignore")
    chosen = options.parts or parts
    names = options.only or tuple(LEARNERS)
    settings = read_settings(options)
    if "test" in chosen:
        pairs = [(read_nfcorpus("train"), read_nfcorpus("test"))]
        rows = compare(pairs, names)
        report("NFCorpus, test queries", "test_nfcorpus", rows, options)
    if "folds" in chosen:
        rows = compare(read_folds(), names)
        report("Cranfield, five folds", "folds_cranfield", rows, options)
    for what in ("splits", "documents"):
        if what in chosen:
            for title, read in FOR_SPLITS.items():
                if options.on in (None, title):
                    in_splits = options.only or IN_SPLITS
                    is_new = what == "documents"
                    rows = compare_splits(
                        read(), in_splits, options, new_documents=is_new
                    )
                    name = "_".join([what, title.lower(), *settings])
                    report(f"{title}, {what}", name, rows, options, n_keys=2)
    if "new" in chosen:
        rows = compare_new(options.only or OF_VECTORS, settings)
        title = "NFCorpus, test queries, half of the documents new"
        report(title, "new_nfcorpus", rows, options)
    if "models" in chosen:
        rows = compare_models(read_nfcorpus("train"), read_nfcorpus("test"))
        report("NFCorpus, test queries, two models", "models_nfcorpus", rows, options)
        rows = compare_models(None, read_cranfield())
        report("Cranfield, two models", "models_cranfield", rows, options)
    if "triplets" in chosen:
        title = "NFCorpus, test queries, from hard triplets"
        report(title, "triplets_nfcorpus", compare_triplets(), options)
    if "scale" in chosen:
        title = "100,000 documents, 1,000,000 judgements"
        row = measure_scale((options.only or ["QueryDocumentMap()"])[0])
        report(title, "scale", [row], options)


if __name__ == "__main__":
    main()
