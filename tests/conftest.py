"""Data that several test modules share, Chromium, and Ctrl-C."""

import os
import shutil
import subprocess
import sys

# Threads that wait for work sleep, so that other processes can use the processors. The
# libraries read these variables when they are loaded.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")

import pytest

# The process that starts the workers reads this file, too. It runs no tests, so NumPy
# and scikit-learn are imported where they are used.


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture
def rng():
    import numpy as np

    return np.random.default_rng(0)


@pytest.fixture
def blobs():
    """Return three overlapping classes of non-negative samples."""
    from sklearn.datasets import make_blobs

    X, y = make_blobs(
        90, 5, centers=3, cluster_std=4.0, center_box=(0, 10), random_state=0
    )
    return X - X.min(), y


@pytest.fixture
def counts():
    """Return sparse counts of 12 objects with 5 samples each, and 6 distractors."""
    from sample_data import make_counts

    return make_counts()


@pytest.fixture(scope="session")
def chromium():
    """Return the program of Chromium. If there is none, fail in CI, skip elsewhere."""
    names = ("chromium", "chromium-browser", "google-chrome", "chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    if program is None:
        if os.environ.get("CI") == "true" and sys.platform == "linux":
            pytest.fail("Chromium is not installed.")
        pytest.skip("Chromium is not installed.")
    return program


# A process that was started in the background ignores SIGINT, and so do its children.
INTERRUPTED_FIT = """
import signal, sys, threading, time
from sklearn.exceptions import NotFittedError
from sklearn.utils.validation import check_is_fitted

signal.signal(signal.SIGINT, signal.default_int_handler)
{code}

def press_ctrl_c():
    global pressed
    pressed = time.process_time()
    signal.raise_signal(signal.SIGINT)

threading.Timer({after}, press_ctrl_c).start()
try:
    estimator.fit(X, y)
except KeyboardInterrupt:
    waited = time.process_time() - pressed
else:
    sys.exit("the fit ended before Ctrl-C")
try:
    check_is_fitted(estimator)
except NotFittedError:
    print(waited)
else:
    sys.exit("the estimator is fitted although the fit was interrupted")
"""


@pytest.fixture
def interrupt_fit():
    """Interrupt a fit by Ctrl-C, in a new process.

    The code makes `estimator`, `X` and `y`. Returned are the seconds of the processor
    from Ctrl-C to the end of the fit, which a busy machine does not change. The process
    is killed if it takes longer than the time-out.
    """

    def interrupt_fit(code, *, after=0.5, timeout=60):
        script = INTERRUPTED_FIT.format(code=code, after=after)
        process = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            timeout=timeout,
        )
        assert process.returncode == 0, process.stderr
        return float(process.stdout)

    return interrupt_fit
