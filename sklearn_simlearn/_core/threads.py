"""Numbers of threads of BLAS and FAISS, for the time of a computation."""

from collections.abc import Iterator
from contextlib import contextmanager

from sklearn_simlearn._core.sklearn import get_threadpool_controller


def one_blas_thread():
    """Return a context in which BLAS uses one thread and sums in a fixed order."""
    return get_threadpool_controller().limit(limits=1, user_api="blas")


@contextmanager
def faiss_threads(n_threads: int) -> Iterator[None]:
    """Let FAISS use `n_threads` threads inside the context."""
    import faiss

    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(n_threads)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)
