"""Memory vectors: one query from several samples of an object."""

from sklearn_simlearn.memory._memory import MemoryVectorQuery

__all__ = ["MemoryVectorQuery"]
