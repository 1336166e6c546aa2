"""The backends by name. A new one is one module and one line here."""

import importlib

BACKENDS = {
    "inverted": "InvertedFile",
    "dense": "DenseItems",
    "faiss": "FaissItems",
    "usearch": "UsearchItems",
}

# Options that a search reads anew each time.
SEARCH_OPTIONS = {"faiss": {"nprobe", "efSearch"}, "usearch": {"exact"}}

# Backends whose packages read their own bytes, without checks that we could vouch for.
UNCHECKED = {"faiss", "usearch"}


def find_backend(name):
    """The class of a backend, whose module is imported only now."""
    module = importlib.import_module(f"sklearn_simlearn.index.backends._{name}")
    return getattr(module, BACKENDS[name])
