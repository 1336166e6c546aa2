"""Numbers of threads, and settings of the whole process."""

import subprocess
import sys

from sklearn_simlearn._core.threads import ProcessContext

# Runs in a new process, because threads of other tests may set the limit.
OVERLAPPING_THREADS = """
import threading

from sklearn_simlearn._core.sklearn import get_threadpool_controller
from sklearn_simlearn._core.threads import one_blas_thread

libraries = get_threadpool_controller().select(user_api="blas")
libraries.limit(limits=2)  # threadpoolctl may ignore limits of other threads now


def count():
    return {library["num_threads"] for library in libraries.info()}


before = count()
assert before == {2}, before
first_is_in, first_is_out, second_is_in, second_is_out = (
    threading.Event() for _ in range(4)
)
inside = []


def run_first():
    with one_blas_thread():
        first_is_in.set()
        second_is_in.wait(10)
    first_is_out.set()
    second_is_out.wait(10)  # a thread of a pool lives on


def run_second():
    first_is_in.wait(10)
    with one_blas_thread():
        second_is_in.set()
        first_is_out.wait(10)
        inside.append(count())
    second_is_out.set()


threads = [threading.Thread(target=run) for run in (run_first, run_second)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
assert inside == [{1}], inside
assert count() == before, count()
libraries.limit(limits=1)
assert count() == {1}, count()
"""


def test_threads_that_overlap_restore_the_threads_of_blas():
    subprocess.run([sys.executable, "-c", OVERLAPPING_THREADS], check=True, timeout=100)


def test_the_last_user_restores_a_setting():
    setting = ["before"]

    def change():
        old = setting[0]
        setting[0] = "changed"
        return lambda: setting.__setitem__(0, old)

    context = ProcessContext(change)
    for _ in range(2):
        # The first user, such as a thread, leaves before the second.
        context.__enter__()
        context.__enter__()
        context.__exit__()
        assert setting == ["changed"]
        context.__exit__()
        assert setting == ["before"]
