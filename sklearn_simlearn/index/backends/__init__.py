"""Backends of an index: exact search in memory, FAISS and usearch."""
