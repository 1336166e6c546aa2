"""Three test collections: queries, documents and judgements."""

from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pandas as pd
from _common import as_counts, load
from scipy import sparse
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.datasets import load_categories
from sklearn_simlearn.metrics import Judgements

PARTS = ("data", "indices", "indptr", "shape")


class Collection(NamedTuple):
    """Queries and documents as vectors, counts and frames, and the judgements."""

    queries: dict
    documents: dict
    relevance: sparse.csr_array

    def take(self, rows):
        """Return some of the queries."""
        queries = {kind: take_rows(X, rows) for kind, X in self.queries.items()}
        return self._replace(queries=queries, relevance=self.relevance[rows])

    def take_documents(self, rows):
        """Return some of the documents."""
        documents = {kind: take_rows(D, rows) for kind, D in self.documents.items()}
        return self._replace(documents=documents, relevance=self.relevance[:, rows])

    def judgements(self, kind):
        return Judgements(self.relevance, self.documents[kind])


def take_rows(X, rows):
    return X.iloc[rows] if isinstance(X, pd.DataFrame) else X[rows]


def read_part(arrays, vectors, words, relevance):
    """Return the collection with the queries of one part."""
    counts = {
        key: as_counts({part: arrays[f"{key}_{part}"] for part in PARTS})
        for key in ("documents", words, relevance)
    }
    sides = [
        {"vectors": arrays[name].astype(np.float32), "words": counts[key]}
        for name, key in ((vectors, words), ("document_vectors", "documents"))
    ]
    for side in sides:
        side["both"] = as_frame(side, arrays["words"].astype(str))
    return Collection(*sides, counts[relevance])


def as_frame(side, words):
    """Return a column of words and columns of vectors."""
    counts, vectors = side["words"], side["vectors"]
    tokens = np.repeat(words[counts.indices], counts.data.astype(int))
    ends = np.concatenate([[0], np.cumsum(counts.data.astype(int))])[counts.indptr]
    texts = [" ".join(tokens[a:b]) for a, b in pairwise(ends)]
    frame = pd.DataFrame(vectors, columns=[f"v{i}" for i in range(vectors.shape[1])])
    frame.insert(0, "words", texts)
    return frame


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


def read_categories():
    """Return the collection of the package: categories and definitions of words."""
    data = load_categories()
    vectorizer = CountVectorizer(stop_words="english").fit(data.documents)
    sides = []
    for texts, vectors in (
        (data.data, data.query_vectors),
        (data.documents, data.document_vectors),
    ):
        counts = sparse.csr_array(vectorizer.transform(texts), dtype=np.float64)
        sides.append({"vectors": vectors.astype(np.float32), "words": counts})
        sides[-1]["both"] = as_frame(sides[-1], vectorizer.get_feature_names_out())
    return Collection(*sides, data.target.relevance)
