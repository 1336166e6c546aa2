"""Index in a table of PostgreSQL."""

from sklearn_simlearn.index.postgres._index import PostgresIndex

__all__ = ["PostgresIndex"]
