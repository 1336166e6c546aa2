"""BM25: similarity of short queries and documents."""

from numbers import Real
from typing import Any

import numpy as np

from sklearn_simlearn._core.counts import CountsMixin
from sklearn_simlearn._core.rows import document_frequency
from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn.similarities._encoders import SaturatedCounts, row_sums
from sklearn_simlearn.similarities._hand_made import HandMadeSimilarity


class BM25Similarity(CountsMixin, HandMadeSimilarity):
    r"""BM25 of a query and a document, from counts of words.

    .. math::

        s(q, d) = c \sum_i q_i\, w_i\, \frac{d_i}{d_i + \kappa\,
                  \big(1 - b + b\, |d| / \overline{|d|}\big)},

    where :math:`q_i` and :math:`d_i` are the counts of word :math:`i`, :math:`|d|` is
    the number of words in the document and :math:`\overline{|d|}` is its mean over the
    documents in `fit`. A word that the query repeats counts several times.

    Parameters
    ----------
    k1 : float, default=1.5
        Number of occurrences, in a document of mean length, at which a word reaches
        half of its largest contribution. 0 counts a word as present or absent.

    b : float, default=0.75
        Strength of the normalisation by length, from 0 (none) to 1.

    delta : float, default=0.5
        Shift :math:`\delta` of "bm25l" and "bm25+". The other variants ignore it.

    method : {"lucene", "robertson", "atire", "bm25l", "bm25+"}, default="lucene"
        Variant [1]_, with the names of the package bm25s [2]_. If :math:`n_i` of
        :math:`n` documents contain word :math:`i`:

        - "lucene": :math:`w_i = \log(1 + (n - n_i + 0.5) / (n_i + 0.5))`,
          :math:`c = 1`, :math:`\kappa = k_1`;
        - "robertson": :math:`w_i = \max(0, \log((n - n_i + 0.5) / (n_i + 0.5)))`,
          :math:`c = 1`, :math:`\kappa = k_1`;
        - "atire": :math:`w_i = \log(n / n_i)`, :math:`c = k_1 + 1`,
          :math:`\kappa = k_1`;
        - "bm25l": :math:`w_i = \log((n + 1) / (n_i + 0.5))`,
          :math:`c = k_1 (k_1 + 1) / (k_1 + \delta)`, :math:`\kappa = k_1 + \delta`;
        - "bm25+": :math:`w_i = \log((n + 1) / n_i)`, :math:`c = k_1 + 1`,
          :math:`\kappa = k_1`.

    Attributes
    ----------
    idf_ : ndarray of shape (n_features,)
        Weights :math:`w` of the words. A word that occurs in no document has the weight
        of a word that occurs in one document.

    mean_length_ : float
        Mean number of words per document; 1 if all documents are empty.

    absent_ : ndarray of shape (n_features,)
        Contribution of a query word that is not in the document, in the published
        formulas of "bm25l" and "bm25+"; 0 for the other variants. See the notes.

    See Also
    --------
    CosineSimilarity : Cosine of tf-idf vectors, for texts of similar length.

    Notes
    -----
    An encoded query holds :math:`c\, q_i w_i`; an encoded document holds the fraction.
    Both are sparse for sparse `X`, so a
    :class:`~sklearn_simlearn.index.SimilarityIndex` computes BM25 exactly with an
    inverted file.

    If documents are added after the fit, count words with
    ``HashingVectorizer(norm=None, alternate_sign=False)``, which has no vocabulary. See
    :ref:`search_text`.

    The published formulas of "bm25l" and "bm25+" are sums over all words of the query.
    They add :math:`w_i (k_1 + 1) \delta / (k_1 + \delta)` or :math:`w_i \delta` for a
    word that is not in the document. For a given query, these constants add the same
    value to all documents and do not change the ranking. The similarity omits them, so
    that a document without any word of the query has similarity 0 in all variants.
    ``Q @ absent_`` is the omitted value for the counts `Q` of a query. Without these
    constants, :math:`\delta` increases :math:`\kappa` in "bm25l", and has no effect on
    the ranking of "bm25+".

    The variants were proposed with a sum over the words that the query and the document
    share [3]_, in which the first occurrence of a word adds :math:`\delta`. On
    Cranfield and NFCorpus, that form ranks worse than the form used here and in bm25s.

    References
    ----------
    .. [1] C. Kamphuis, A. de Vries, L. Boytsov and J. Lin. "Which BM25 do you mean? A
       large-scale reproducibility study of scoring variants". ECIR, 2020.
    .. [2] X. H. Lu. "BM25S: Orders of magnitude faster lexical search via eager sparse
       scoring". arXiv:2407.03618, 2024.
    .. [3] Y. Lv and C. Zhai. "Lower-bounding term frequency normalization". CIKM, 2011.

    Examples
    --------
    >>> from sklearn.feature_extraction.text import CountVectorizer
    >>> from sklearn_simlearn.similarities import BM25Similarity
    >>> documents = ["a cat sat on a mat", "a dog saw a cat", "ships at sea"]
    >>> vectorizer = CountVectorizer().fit(documents)
    >>> bm25 = BM25Similarity().fit(vectorizer.transform(documents))
    >>> queries = vectorizer.transform(["cat and dog"])
    >>> bm25.similarity(queries, vectorizer.transform(documents)).round(3)
    array([[0.172, 0.608, 0.   ]])
    """

    _parameter_constraints: dict[str, Any] = {
        "k1": [Interval(Real, 0, None, closed="left")],
        "b": [Interval(Real, 0, 1, closed="both")],
        "delta": [Interval(Real, 0, None, closed="left")],
        "method": [StrOptions({"lucene", "robertson", "atire", "bm25l", "bm25+"})],
    }

    def __init__(
        self,
        k1: float = 1.5,
        b: float = 0.75,
        *,
        delta: float = 0.5,
        method: str = "lucene",
    ):
        self.k1 = k1
        self.b = b
        self.delta = delta
        self.method = method

    def _gather(self, X: Matrix) -> dict[str, Any]:
        if self.method == "bm25l" and self.k1 == 0:
            raise ValueError(
                'method="bm25l" with k1=0 gives every document the same score. Set k1 '
                "to a positive number."
            )
        frequency = document_frequency(X)
        idf = _weigh(self.method, np.maximum(frequency, 1), X.shape[0])
        half, factor, of_absent = self._find_constants()
        mean_length = float(row_sums(X).mean()) or 1.0
        return {
            "encoder_": SaturatedCounts(factor * idf, half, self.b, mean_length),
            "idf_": idf,
            "mean_length_": mean_length,
            "absent_": of_absent * np.where(frequency > 0, idf, 0),
        }

    def _find_constants(self) -> tuple[float, float, float]:
        """Return kappa, c, and the published contribution of an absent word."""
        k1, delta = self.k1, self.delta
        match self.method:
            case "atire":
                return k1, k1 + 1, 0.0
            case "bm25l":
                half = k1 + delta
                return half, k1 * (k1 + 1) / half, (k1 + 1) * delta / half
            case "bm25+":
                return k1, k1 + 1, delta
        return k1, 1.0, 0.0


def _weigh(method: str, frequency: np.ndarray, n_documents: int) -> np.ndarray:
    """Return the weights of words that occur in `frequency` documents."""
    odds = (n_documents - frequency + 0.5) / (frequency + 0.5)
    match method:
        case "lucene":
            return np.log1p(odds)
        case "robertson":
            return np.log(np.maximum(odds, 1))
        case "atire":
            return np.log(n_documents / frequency)
        case "bm25l":
            return np.log((n_documents + 1) / (frequency + 0.5))
    return np.log((n_documents + 1) / frequency)  # "bm25+"
