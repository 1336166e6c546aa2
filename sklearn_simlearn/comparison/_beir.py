"""Queries, documents and judgements of a folder in the format of BEIR."""

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.model_selection import train_test_split

from sklearn_simlearn import OASIS, QueryDocumentMap
from sklearn_simlearn.comparison._rows import Row
from sklearn_simlearn.compose import SimilarityUnion, make_retrieval_pipeline
from sklearn_simlearn.datasets import load_beir
from sklearn_simlearn.datasets._npz import load_named_vectors
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import Judgements
from sklearn_simlearn.similarities import BM25Similarity

# Column of the texts, and columns of the vectors, in frames.
TEXT, VECTORS = "text", slice(1, None)


@dataclass
class JudgedTask:
    """Queries to learn from and held-out queries, with their judgements.

    The attributes are those of `Task`. The report shows the texts of the held-out
    queries and of the documents.
    """

    X_train: Any
    y_train: Judgements
    X_test: Any
    y_test: Judgements
    seed: int
    texts: list[str]
    document_texts: list[str]
    split: str = "queries"
    query_mask: None = None
    labels: None = None
    has_counts: bool = False
    names: None = None
    label_names: None = None


@dataclass
class Collection:
    """Collection that was read from a folder.

    Attributes
    ----------
    train, test : Bunch
        Results of :func:`load_beir`; `train` is None if the folder has no such split.

    vectors : callable or None
        Function from ids of queries or of documents to their vectors.
    """

    name: str
    train: Any
    test: Any
    vectors: Any
    code: list[str]

    def make_task(self, seed: int) -> JudgedTask:
        """Hold out the test queries, or half of the queries."""
        documents = self._as_samples(
            self.test.documents, self.test.document_ids, "document"
        )
        y = self.test.target.with_documents(documents)
        X = self._as_samples(self.test.data, self.test.query_ids, "query")
        texts = self.test.data
        if self.train is not None:
            y_train = self.train.target.with_documents(documents)
            X_train = self._as_samples(self.train.data, self.train.query_ids, "query")
            parts = (X_train, X, y_train, y, None, texts)
        else:
            if len(y) < 2:
                raise ValueError(
                    f"{self.name} has one query, but at least two are needed: one to "
                    "fit and one to hold out"
                )
            parts = train_test_split(X, y, texts, test_size=0.5, random_state=seed)
        X_train, X_test, y_train, y_test, _, texts = parts
        return JudgedTask(
            X_train, y_train, X_test, y_test, seed, texts, self.test.documents
        )

    def list_rows(self) -> list[Row]:
        """Return the similarities to compare."""
        has_vectors = self.vectors is not None
        columns = TEXT if has_vectors else slice(None)
        baselines = {
            "BM25": (_make_bm25, columns),
            "cosine of tf-idf": (_tfidf, columns),
        }
        if has_vectors:
            baselines["cosine of vectors"] = (lambda: "passthrough", VECTORS)
        rows = [
            Row(name, _alone(make, columns), is_baseline=True)
            for name, (make, columns) in baselines.items()
        ]
        bm25 = ("bm25", lambda task: _make_bm25(), columns)
        if not has_vectors:
            letters = ("letters", lambda task: _make_letters(), columns)
            rows.append(Row("OASIS on tf-idf", _learn_words))
            return [*rows, Row("hybrid", _join(bm25, letters))]
        vectors = ("vectors", lambda task: "passthrough", VECTORS)
        learned = ("map", _make_map, VECTORS)
        return [
            *rows,
            Row("QueryDocumentMap on vectors", _join(learned)),
            Row("hybrid", _join(bm25, vectors)),
            Row("hybrid with QueryDocumentMap", _join(bm25, learned)),
        ]

    def describe(self, task: JudgedTask) -> str:
        """Return a line on the data and the split."""
        n_train, n_test = len(task.y_train), len(task.y_test)
        return (
            f"{self.name}: {len(self.test.documents)} documents, {n_train} queries to "
            f"fit, {n_test} held out; each held-out query searches the documents"
        )

    def describe_index(self) -> str:
        """Return a phrase on the training data and the items of a saved index."""
        return f"the training queries, with all {len(self.test.documents)} documents"

    def load_images(self) -> None:
        """Return None: texts have no images."""

    def make_index(self, estimator, row: Row) -> SimilarityIndex:
        """Return an index of all documents, which stores their texts, too."""
        documents = self._as_samples(
            self.test.documents, self.test.document_ids, "document"
        )
        index = SimilarityIndex(estimator, store_items=True)
        return index.fit(documents, ids=self.test.document_ids)

    def _as_samples(self, texts, ids, side):
        """Return texts, or a frame of texts and vectors."""
        if self.vectors is None:
            return texts
        vectors = self.vectors(side, ids)
        import pandas as pd

        names = [f"v{i}" for i in range(vectors.shape[1])]
        frame = pd.DataFrame(vectors, columns=names)
        frame.insert(0, TEXT, texts)
        return frame


def load_collection(folder: str, vectors: str | None, *, max_bytes: int) -> Collection:
    """Read a folder, and vectors if a file of vectors is given."""
    if vectors is not None and importlib.util.find_spec("pandas") is None:
        raise ImportError("--vectors requires pandas: pip install pandas")
    has_train = any(
        (Path(folder) / "qrels" / f"train.tsv{end}").is_file() for end in ("", ".gz")
    )
    train = load_beir(folder, "train", max_bytes=max_bytes) if has_train else None
    test = load_beir(folder, "test", max_bytes=max_bytes)
    code = [
        "from sklearn_simlearn.datasets import load_beir",
        f"data = load_beir({folder!r}, split={'train' if has_train else 'test'!r})",
        "X, y = data.data, data.target",
    ]
    found = None
    if vectors is not None:
        found = load_named_vectors(vectors, max_bytes=max_bytes)
        code = [*code, *_write_frames(vectors)]
    return Collection(folder, train, test, found, code)


def _write_frames(path):
    """Return lines of Python that put texts and vectors into frames."""
    return f"""\
import numpy as np
import pandas as pd
with np.load({path!r}) as file:
    arrays = dict(file)
def as_frame(texts, side, ids):
    rows = {{id_: row for row, id_ in enumerate(arrays[f"{{side}}_ids"].astype(str))}}
    vectors = arrays[f"{{side}}_vectors"][[rows[id_] for id_ in ids]]
    frame = pd.DataFrame(vectors, columns=[f"v{{i}}" for i in range(vectors.shape[1])])
    frame.insert(0, {TEXT!r}, texts)
    return frame
X = as_frame(X, "query", y.query_ids)
y = y.with_documents(as_frame(y.documents, "document", y.document_ids))""".splitlines()


def _alone(make, columns):
    """Return a function from a task to one similarity of some columns."""

    def make_row(task):
        part = make()
        if columns != slice(None):
            return SimilarityUnion([("similarity", part, columns)])
        return part

    return make_row


def _make_bm25():
    counts = CountVectorizer(stop_words="english")
    return make_retrieval_pipeline(counts, BM25Similarity())


def _tfidf():
    return make_retrieval_pipeline(_make_tfidf())


def _make_tfidf():
    return TfidfVectorizer(stop_words="english", sublinear_tf=True)


def _make_letters():
    return make_retrieval_pipeline(
        TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
    )


def _learn_words(task):
    return make_retrieval_pipeline(_make_tfidf(), OASIS(random_state=task.seed))


def _make_map(task):
    return QueryDocumentMap(random_state=task.seed)


def _join(*parts):
    """Return a function from a task to the union of parts (name, make, columns)."""
    return lambda task: SimilarityUnion(
        [(name, make(task), columns) for name, make, columns in parts],
        random_state=task.seed,
    )
