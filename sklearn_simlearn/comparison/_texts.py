"""Table of texts as word counts, for the comparison on the command line."""

from dataclasses import dataclass
from typing import Any

from sklearn.feature_extraction.text import CountVectorizer
from sklearn.pipeline import make_pipeline

from sklearn_simlearn.comparison._rows import Row
from sklearn_simlearn.comparison._source import Source
from sklearn_simlearn.comparison._task import Task
from sklearn_simlearn.datasets import load_texts
from sklearn_simlearn.datasets._texts import list_columns
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import BM25Similarity

BM25 = Row("BM25", lambda task: BM25Similarity(), ("counts",), is_baseline=True)


@dataclass
class TextSource(Source):
    """Word counts of texts, with their labels.

    Attributes
    ----------
    texts : Bunch
        Result of :func:`load_texts`.

    vectorizer : CountVectorizer
        Vectorizer that was fitted on all texts, which does not use the labels.
    """

    texts: Any = None
    vectorizer: CountVectorizer | None = None

    @property
    def default(self) -> Row:
        """Return the row for texts without labels."""
        return BM25

    def list_rows(self, task: Task, rows: list[Row]) -> list[Row]:
        """Return the rows to compare, with BM25."""
        return [BM25, *rows]

    def take_texts(self, task: Task) -> list[str]:
        """Return the held-out texts."""
        return [self.texts.texts[row] for row in task.test_rows]

    def make_index(self, estimator, row: Row) -> SimilarityIndex:
        """Return an index of all texts, which stores the texts, too."""
        pipeline = make_pipeline(self.vectorizer, estimator)
        index = SimilarityIndex(pipeline, store_items=True)
        return index.fit(
            self.texts.texts, ids=self.texts.ids, metadata=self.texts.metadata
        )


def read_texts(
    path: str, text: str, label: str | None, id_: str | None, *, max_bytes: int
) -> TextSource:
    """Count the words of a table of texts.

    `label` and `id_` are names of columns. If None, "label" and "id" are used if these
    columns exist.
    """
    columns = list_columns(path)
    options = {"text": text, "label": label or "label", "id": id_ or "id"}
    is_given = {"text": True, "label": label is not None, "id": id_ is not None}
    for option, name in list(options.items()):
        if name in columns:
            continue
        if is_given[option]:
            found = ", ".join(map(repr, columns[:10])) or "nothing"
            raise ValueError(
                f"{path} has no column {name!r}; it has {found}. Name the column with "
                f"--{option}."
            )
        del options[option]
    data = load_texts(path, **options, max_bytes=max_bytes)
    vectorizer = CountVectorizer(stop_words="english")
    X = vectorizer.fit_transform(data.texts)
    arguments = "".join(f", {key}={value!r}" for key, value in options.items())
    code = [
        "from sklearn.feature_extraction.text import CountVectorizer",
        "from sklearn_simlearn.datasets import load_texts",
        f"data = load_texts({path!r}{arguments})",
        'X = CountVectorizer(stop_words="english").fit_transform(data.texts)',
        "y = data.target",
    ]
    return TextSource(
        path, X, data.target, None, code, texts=data, vectorizer=vectorizer
    )
