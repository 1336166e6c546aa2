"""Count the functions, files and jumps that a reader of a default fit follows.

A jump is a pair of functions of two files of the package, of which the first calls the
second. The columns "own" count the folder of the learner only: functions and files in
it, and jumps that lead into it or between its files.

Run ``python benchmarks/trace_fits.py``.
"""

import sys
import warnings
from pathlib import Path

from _common import print_table
from sklearn.datasets import load_digits

import sklearn_simlearn
from sklearn_simlearn.base import SimilarityLearner

PACKAGE = Path(sklearn_simlearn.__file__).parent


def trace(call):
    """Return the functions that a call enters, and the jumps between files."""
    functions, jumps, stack = set(), set(), []

    def profile(frame, event, argument):
        path = Path(frame.f_code.co_filename)
        if not path.is_relative_to(PACKAGE):
            return
        if event == "call":
            function = path.relative_to(PACKAGE), frame.f_code.co_qualname
            functions.add(function)
            if stack and stack[-1][0] != function[0]:
                jumps.add((stack[-1], function))
            stack.append(function)
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(profile)
    try:
        call()
    finally:
        sys.setprofile(None)
    return functions, jumps


def count(learner, X, y):
    """Return the row of a learner."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        functions, jumps = trace(lambda: learner.fit(X, y))
    folder = type(learner).__module__.split(".")[1]
    own = {f for f in functions if f[0].parts[0] == folder}
    into = {jump for jump in jumps if jump[1][0].parts[0] == folder}
    files, own_files = ({f[0] for f in part} for part in (functions, own))
    return [
        f"{len(functions)} / {len(files)} / {len(jumps)}",
        f"{len(own)} / {len(own_files)} / {len(into)}",
    ]


def main():
    X, y = load_digits(return_X_y=True)
    rows = []
    for name in sklearn_simlearn.__all__:
        cls = getattr(sklearn_simlearn, name)
        if isinstance(cls, type) and issubclass(cls, SimilarityLearner):
            learner = cls(random_state=0)
            rows.append([name, *count(learner, X[:300], y[:300])])
    print_table(["functions / files / jumps of a fit", "all", "own"], rows)


if __name__ == "__main__":
    main()
