"""Numbers of threads: of kernels, of BLAS and of FAISS."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from joblib import effective_n_jobs

from sklearn_simlearn._core.sklearn import get_threadpool_controller

# Whether this process came about by a fork, without a new program.
_is_fork = False


def _note_fork() -> None:
    global _is_fork
    _is_fork = True


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads for a kernel.

    It is 1 in a process that was forked: the OpenMP runtime of GCC waits forever for
    threads that only the parent has.
    """
    return 1 if _is_fork else effective_n_jobs(n_jobs)


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
