"""Numbers of threads: of kernels, of BLAS and of FAISS."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

from joblib import effective_n_jobs
from threadpoolctl import OpenBLASController

from sklearn_simlearn._core.sklearn import get_threadpool_controller

# Whether this process was forked without starting a new program.
_is_fork = False


def count_threads(n_jobs: int | None) -> int:
    """Return the number of threads for a kernel.

    It is 1 in a forked process, since the OpenMP runtime of GCC waits forever for
    threads that exist only in the parent.
    """
    return 1 if _is_fork else effective_n_jobs(n_jobs)


def release_openblas() -> None:
    """Let any thread limit OpenBLAS.

    From version 3.8 on, threadpoolctl ignores the limits of all threads but the first
    one that sets a limit, until that thread ends or is released.
    """
    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


class ProcessContext:
    """Context that changes a setting of the whole process.

    The first thread that needs the setting changes it, and the last one restores the
    previous value. If each thread did so separately, a thread that ends between others
    would leave the change in place.

    Parameters
    ----------
    change : callable
        Function that changes the setting. It returns a function that restores the
        previous value.
    """

    _all: ClassVar[list["ProcessContext"]] = []

    def __init__(self, change: Callable[[], Callable[[], object]]) -> None:
        self._change = change
        self._forget()
        self._all.append(self)

    def _forget(self) -> None:
        self._lock = threading.Lock()
        self._n_users = 0

    def __enter__(self) -> None:
        with self._lock:
            if self._n_users == 0:
                self._restore = self._change()
            self._n_users += 1

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._n_users -= 1
            if self._n_users == 0:
                self._restore()

    @classmethod
    def forget_all(cls) -> None:
        """Start again in a forked process, which has no other threads."""
        for context in cls._all:
            context._forget()


def _limit_blas() -> Callable[[], object]:
    release_openblas()
    limiter = get_threadpool_controller().limit(limits=1, user_api="blas")

    def restore():
        release_openblas()
        limiter.restore_original_limits()
        release_openblas()

    return restore


_BLAS_LIMIT = ProcessContext(_limit_blas)


def one_blas_thread() -> ProcessContext:
    """Return a context in which BLAS uses one thread and sums in a fixed order."""
    return _BLAS_LIMIT


def _note_fork() -> None:
    global _is_fork
    _is_fork = True
    ProcessContext.forget_all()


if hasattr(os, "register_at_fork"):  # Windows has no fork
    os.register_at_fork(after_in_child=_note_fork)


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
