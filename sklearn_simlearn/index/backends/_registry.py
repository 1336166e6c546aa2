"""Backends by name. A new backend is one module and one line here."""

import importlib

BACKENDS = {
    "inverted": "InvertedFile",
    "dense": "DenseItems",
    "hybrid": "HybridItems",
    "faiss": "FaissItems",
    "usearch": "UsearchItems",
}

# Options that can be changed between searches.
SEARCH_OPTIONS = {"faiss": {"nprobe", "efSearch"}, "usearch": {"exact"}}

# Backends whose packages read their own files and do not check them completely.
UNCHECKED = {"faiss", "usearch"}


def find_backend(name):
    """Import the module of a backend, and return its class."""
    module = importlib.import_module(f"sklearn_simlearn.index.backends._{name}")
    return getattr(module, BACKENDS[name])
