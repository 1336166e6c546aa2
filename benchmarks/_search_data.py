"""Texts and vectors for the benchmarks of searches."""

import numpy as np
from scipy import sparse

N_WORDS = 100_000
N_TOPICS = 500


def make_texts(n_items, *, structured, seed=0):
    """Return tf-idf rows of unit length: 200 words by Zipf's law, half by topic."""
    rng, shared = np.random.default_rng(seed), np.random.default_rng(12345)
    frequency = 1 / np.arange(1, N_WORDS + 1)
    up_to = np.cumsum(frequency / frequency.sum())
    topic_words = shared.integers(0, N_WORDS, (N_TOPICS, 400))
    # In place, since two copies of the items may not fit into memory.
    values = np.empty(200 * n_items, dtype=np.float32)
    columns, lengths = np.empty(200 * n_items, dtype=np.int32), []
    end, n_with = 0, np.zeros(N_WORDS, dtype=np.int64)
    for first in range(0, n_items, 20_000):
        n = min(20_000, n_items - first)
        words = np.searchsorted(up_to, rng.random((n, 200))).clip(max=N_WORDS - 1)
        if structured:
            topic = rng.integers(0, N_TOPICS, (n, 1))
            of_topic = (400 * rng.random((n, 100)) ** 2).astype(np.int64)
            words[:, :100] = topic_words[topic, of_topic]
        rows = np.repeat(np.arange(n, dtype=np.int32), 200)
        ones = np.ones(words.size, dtype=np.float32)
        part = sparse.coo_array(
            (ones, (rows, words.ravel().astype(np.int32))), shape=(n, N_WORDS)
        ).tocsr()
        part.sort_indices()
        values[end : end + part.nnz] = part.data
        columns[end : end + part.nnz] = part.indices
        lengths.append(np.diff(part.indptr))
        n_with += np.bincount(part.indices, minlength=N_WORDS)
        end += part.nnz
    values.resize(end, refcheck=False)
    columns.resize(end, refcheck=False)
    start = np.concatenate([[0], np.cumsum(np.concatenate(lengths))])
    if end <= np.iinfo(np.int32).max:
        start = start.astype(np.int32)
    X = sparse.csr_array((values, columns, start), shape=(n_items, N_WORDS))
    idf = np.log((1 + n_items) / (1 + n_with)).astype(np.float32) + 1
    for first in range(0, n_items, 20_000):
        rows = slice(start[first], start[min(first + 20_000, n_items)])
        part, offsets = X.data[rows], start[first : first + 20_001] - start[first]
        part[:] = (1 + np.log(part)) * idf[X.indices[rows]]
        lengths = np.diff(offsets)
        squares = np.add.reduceat(part**2, offsets[:-1][: len(lengths)])
        part /= np.repeat(np.sqrt(squares), lengths)
    return X


def cut(X, first, last):
    """Return rows of X that share its memory."""
    begin, end = X.indptr[first], X.indptr[last]
    arrays = X.data[begin:end], X.indices[begin:end], X.indptr[first : last + 1] - begin
    return sparse.csr_array(arrays, shape=(last - first, X.shape[1]))


def flip_signs(Q):
    """Return the queries with half of the weights negative, at random."""
    signs = np.random.default_rng(0).choice(np.float32([-1, 1]), Q.nnz)
    return sparse.csr_array((Q.data * signs, Q.indices, Q.indptr), shape=Q.shape)


def make_sets(n_items, n_queries, structured):
    """Return items, and queries of the same kind."""
    X = make_texts(n_items + n_queries, structured=structured)
    return cut(X, 0, n_items), cut(X, n_items, n_items + n_queries)


def pick_words(Q, n_words):
    """Return queries with at most this number of their words, drawn at random."""
    rng, kept = np.random.default_rng(0), np.zeros(Q.nnz, dtype=bool)
    for begin, end in zip(Q.indptr, Q.indptr[1:], strict=False):
        kept[begin + rng.permutation(end - begin)[:n_words]] = True
    before = np.concatenate([[0], np.cumsum(kept)]).astype(Q.indptr.dtype)
    arrays = Q.data[kept], Q.indices[kept], before[Q.indptr]
    return sparse.csr_array(arrays, shape=Q.shape)


def make_vectors(n_items, n_features, *, seed=0):
    """Return unit vectors around 1,000 centres, with a falling spectrum."""
    rng = np.random.default_rng(seed)
    scale = np.arange(1, n_features + 1, dtype=np.float32) ** -0.5
    centres = np.random.default_rng(7).standard_normal((1_000, n_features), np.float32)
    X = rng.standard_normal((n_items, n_features), dtype=np.float32)
    for first in range(0, n_items, 100_000):
        part = X[first : first + 100_000]
        part += 0.7 * centres[rng.integers(0, 1_000, len(part))]
        part *= scale
        part /= np.linalg.norm(part, axis=1, keepdims=True)
    return X


def grow(X, n_items):
    """Return more vectors of the same kind: rows plus a part of a difference of two."""
    rng = np.random.default_rng(0)
    rows, plus, minus = rng.integers(0, len(X), (3, n_items))
    D = (X[plus] - X[minus]).astype(np.float32)
    D /= np.maximum(np.linalg.norm(D, axis=1, keepdims=True), 1e-12)
    D *= rng.uniform(0.25, 0.75, (n_items, 1)).astype(np.float32)
    D += X[rows]
    return D / np.linalg.norm(D, axis=1, keepdims=True)
