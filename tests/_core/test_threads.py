"""Numbers of threads."""

import threading

import pytest

from sklearn_simlearn._core.sklearn import get_threadpool_controller
from sklearn_simlearn._core.threads import one_blas_thread


def count_blas_threads():
    libraries = get_threadpool_controller().select(user_api="blas").info()
    return {library["num_threads"] for library in libraries}


def test_threads_that_overlap_restore_the_threads_of_blas():
    before = count_blas_threads()
    if before == {1}:
        pytest.skip("BLAS has one thread anyway")
    first_is_in, second_is_in, first_is_out = (threading.Event() for _ in range(3))
    inside = []

    def run_first():
        with one_blas_thread():
            first_is_in.set()
            second_is_in.wait(10)
        first_is_out.set()

    def run_second():
        first_is_in.wait(10)
        with one_blas_thread():
            second_is_in.set()
            first_is_out.wait(10)
            inside.append(count_blas_threads())

    threads = [threading.Thread(target=run) for run in (run_first, run_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert inside == [{1}]
    assert count_blas_threads() == before
