"""Index in shards on the workers of a Dask cluster."""

from sklearn_simlearn.index.sharded._index import ShardedIndex

__all__ = ["ShardedIndex"]
