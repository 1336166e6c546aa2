"""Search in all shards: queries are encoded once and sent in blocks."""

import numpy as np
from sklearn.utils import gen_batches
from sklearn.utils.validation import validate_data

from sklearn_simlearn.index._filters import cut_allowed
from sklearn_simlearn.index.sharded import _tasks
from sklearn_simlearn.index.sharded._changes import ask_all
from sklearn_simlearn.index.sharded._remote import count_bytes
from sklearn_simlearn.index.sharded._state import merge

# Bytes of encoded queries per message.
MESSAGE = 2**22


def search_shards(index, X, k, sets, exclude, filters, missing):
    """Return the scores, rows and ids of the best items.

    Parameters
    ----------
    index : ShardedIndex
        Snapshot of an index.

    X : matrix of shape (n_queries, n_features)
        Queries.

    k : int
        Number of items per result.

    sets : Sets
        Sets of queries; one result for each.

    exclude : list of ids per result, or None
        Ids that are not returned.

    filters : list
        Allowed items of each shard.

    missing : set or None
        Set that receives the numbers of shards that do not answer. If None, such a
        shard raises an error.
    """
    shards, found = index._state, []
    row_bytes = 16 * (shards.common.n_features + k)
    for batch, part, Q in index._encode_queries(X, sets, row_bytes):
        _check_queries(index, Q, part)
        n_rows = max(1, MESSAGE * Q.shape[0] // max(1, count_bytes(Q)))
        for some in gen_batches(Q.shape[0], n_rows):
            first = batch.start + some.start
            asked = slice(first, first + some.stop - some.start)
            barred = None if exclude is None else exclude[asked]
            arguments = [
                (Q[some], k, runs, barred, cut_allowed(of_shard, asked))
                for runs, of_shard in zip(shards.runs, filters, strict=True)
            ]
            answers = ask_all(index._client, shards, _tasks.answer, arguments, missing)
            found.append(merge(answers, some.stop - some.start, k, shards.common))
    return map(np.concatenate, zip(*found, strict=True))


def _check_queries(index, Q, X):
    """Raise unless the encodings have as many columns as the stored items."""
    state = index._state
    if not hasattr(state.estimator, "n_features_in_"):
        # Estimators without a fit do not check the features of X.
        validate_data(index, X, reset=False, skip_check_array=True)
    n_features = state.common.n_features
    if Q.shape[1] != n_features:
        raise ValueError(
            f"The encodings of the estimator have {Q.shape[1]} features, but the "
            f"stored items have {n_features}."
        )
