"""Memory that a test may use."""

import tracemalloc
from contextlib import contextmanager


@contextmanager
def bounded_memory(n_bytes):
    """Fail if the block allocates more memory at a time."""
    tracemalloc.start()
    try:
        yield
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < n_bytes
