"""Fuzz the service with requests from its own description.

    python benchmarks/fuzz_serve.py [--requests N]

schemathesis generates valid and invalid requests. A fault is an answer with status 5xx,
an answer that does not fit the description, or a change of the index: all requests are
sent without the token. The memory of the service is printed. Needs Linux and
schemathesis.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

from bench_serve import Service, make_data, save_index

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.serve._actions import ACTIONS

N_ITEMS = 500
CHECKS = "not_a_server_error,content_type_conformance,response_schema_conformance"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--requests", type=int, default=2_000)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "index"
        save_index(make_data(N_ITEMS, 1)[0], folder)
        service = Service(folder)
        before = service.megabytes()
        address = f"http://127.0.0.1:{service.port}"
        run = subprocess.run(
            [
                *(sys.executable, "-m", "schemathesis.cli", "run"),
                *(f"{address}/openapi.json", "--url", address),
                *("--checks", CHECKS, "--phases", "examples,coverage,fuzzing"),
                *("--max-examples", str(options.requests // len(ACTIONS))),
                *("--mode", "all", "--seed", "1"),
            ],
            cwd=temporary,
        )
        print(f"{before:.0f} MB before, {service.megabytes():.0f} MB after")
        service.stop()
        n_items = len(SimilarityIndex.load(folder))
    if n_items != N_ITEMS:
        print("A request without the token has changed the index.")
        return 1
    return run.returncode


if __name__ == "__main__":
    sys.exit(main())
