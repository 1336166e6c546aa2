"""Missing files and packages, which a benchmark names at its start."""

import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("the benchmarks are not here", allow_module_level=True)

SCRIPT = """
import numpy
from _common import load, load_mnist
def later():
    from other_package import name
    return load("here.npz"), load("not_here.npz"), load_mnist()
print("begins")
"""


@pytest.mark.parametrize("has_data", [True, False])
def test_a_benchmark_names_what_is_missing_before_it_begins(tmp_path, has_data):
    script = tmp_path / "bench_something.py"
    script.write_text(SCRIPT)
    (tmp_path / "here.npz").touch()
    environment = {"PYTHONPATH": str(BENCHMARKS)}
    if has_data:
        environment["SIMLEARN_DATA"] = str(tmp_path)
    process = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True
    )
    assert process.stdout == "begins\n"
    missing = ["mnist.npz", "not_here.npz", "other_package"]
    expected = ", ".join(missing if has_data else ["here.npz", *missing])
    assert f"packages: {expected}." in process.stderr


def test_a_row_is_written_to_its_table(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(BENCHMARKS)
    from _common import update_csv

    path = tmp_path / "table.csv"
    path.write_text(
        "learner,queries,gain,error\n``OASIS()``,20,.1,.01\ncosine,20,0,0\n"
    )
    update_csv(path, {"learner": "OASIS()", "queries": "20", "gain": ".2"}, n_keys=2)
    update_csv(path, {"learner": "OASIS()", "queries": "50", "new": "1"}, n_keys=2)
    expected = [
        "learner,queries,gain,error",
        "``OASIS()``,20,.2,.01",
        "cosine,20,0,0",
        "``OASIS()``,50,,",
    ]
    assert path.read_text().splitlines() == expected
    update_csv(tmp_path / "new.csv", {"set": "BM25 + OASIS()", "map": ".5"})
    assert (tmp_path / "new.csv").read_text() == "set,map\nBM25 + ``OASIS()``,.5\n"
