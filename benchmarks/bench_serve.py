"""The service on loopback: load, changes, memory and restarts after SIGKILL.

    python benchmarks/bench_serve.py [PART ...] [--items N] [--requests N] [--kills N]

PART is load, changes, memory or kill; all of them by default.

load: CPU time per request of the service, against that of the same search in a process
without a service, and percentiles of the latency.
changes: the same while one client adds and removes items. All answers are compared with
a record of the changes.
memory: resident memory of the service after each tenth of the requests.
kill: the service is killed (SIGKILL) while a client adds items. After each restart, all
acknowledged items must be there, and no part of an item.

The service runs in its own process. CPU time and memory come from /proc, so the
benchmark needs Linux. The exit code is 1 if an answer is wrong.
"""

import argparse
import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy loads its BLAS

import numpy as np
from _common import print_table

from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity

N_FEATURES = 128
K = 10
TOKEN = "token of the benchmark"
TICKS = os.sysconf("SC_CLK_TCK")


# -- the service --


class Service:
    """A process that serves one folder."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "sklearn_simlearn", "serve", folder, "--port", "0"],
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"SIMLEARN_TOKEN": TOKEN},
        )
        line = self.process.stdout.readline()
        if "http://" not in line:
            sys.exit(f"The service did not start: {line}")
        self.port = int(line.rpartition(":")[2].strip(" /\n"))

    def seconds(self):
        """Return the CPU time of the process so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(") ")[2]
        return sum(map(int, fields.split()[11:13])) / TICKS

    def megabytes(self):
        """Return the anonymous resident memory, without mapped files."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon"):
                return int(line.split()[1]) / 1024

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        self.process.wait()
        self.process.stdout.close()


class Client:
    """A connection that is kept open."""

    async def open(self, port):
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", port)
        return self

    async def post(self, action, body):
        """Return the status and the answer."""
        self.writer.write(make_request(action, body))
        status = int((await self.reader.readline()).split()[1])
        length = 0
        while (line := await self.reader.readline()) != b"\r\n":
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        return status, await self.reader.readexactly(length)

    def close(self):
        self.writer.close()


def make_request(action, body):
    if not isinstance(body, bytes):
        body = json.dumps(body).encode()
    head = (
        f"POST /indexes/index/{action} HTTP/1.1\r\nHost: localhost\r\n"
        f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def make_data(n_items, n_queries, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n_items, N_FEATURES)).astype(np.float32)
    return X, rng.normal(size=(n_queries, N_FEATURES)).astype(np.float32)


def save_index(X, folder):
    SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X).save(folder)


# -- load --


async def ask_many(port, bodies, n_requests, n_clients, check):
    """Send requests over several connections; return the seconds of each."""
    latencies, numbers = [], iter(range(n_requests))

    async def work():
        client = await Client().open(port)
        for number in numbers:
            start = time.perf_counter()
            status, answer = await client.post("search", bodies[number % len(bodies)])
            latencies.append(time.perf_counter() - start)
            check(number % len(bodies), status, answer, start, time.perf_counter())
        client.close()

    await asyncio.gather(*(work() for _ in range(n_clients)))
    return np.array(latencies)


def measure_search(folder, Q):
    """Return CPU seconds per search of one query, without a service."""
    index = SimilarityIndex.load(folder, trusted=())
    index.search(Q[:1], k=K)
    start = time.process_time()
    for row in range(len(Q)):
        index.search(Q[row : row + 1], k=K)
    return (time.process_time() - start) / len(Q)


def run_load(folder, X, Q, options):
    expected = SimilarityIndex.load(folder, trusted=()).search(Q, k=K).ids
    bodies = as_bodies(Q)
    faults = []

    def check(row, status, answer, start, end):
        if status != 200 or ids_of(answer) != expected[row].tolist():
            faults.append((row, status))

    service = Service(folder)
    asyncio.run(ask_many(service.port, bodies, 200, 8, check))  # warm
    before = service.seconds()
    latencies = asyncio.run(ask_many(service.port, bodies, options.requests, 8, check))
    per_request = (service.seconds() - before) / options.requests
    service.stop()
    alone = measure_search(folder, Q)
    report(latencies)
    print_table(
        ["", "CPU ms per request"],
        [
            ["search without a service", f"{1e3 * alone:.2f}"],
            ["service", f"{1e3 * per_request:.2f}"],
            ["difference (at most 0.5)", f"{1e3 * (per_request - alone):.2f}"],
        ],
    )
    return faults


def as_bodies(Q):
    return [
        json.dumps({"queries": [{"vector": row}], "k": K}).encode()
        for row in Q.astype(float).tolist()
    ]


def ids_of(answer):
    return [result["id"] for result in json.loads(answer)["results"][0]]


def report(latencies):
    p50, p99 = 1e3 * np.percentile(latencies, [50, 99])
    print(
        f"{len(latencies)} requests, 8 connections: p50 {p50:.1f} ms, p99 {p99:.1f} ms "
        f"({p99 / p50:.1f} times p50, at most 10), maximum {1e3 * latencies.max():.1f}"
    )


# -- changes --


def run_changes(folder, X, Q, options):
    index = SimilarityIndex.load(folder, trusted=())
    expected = index.search(Q, k=3 * K).ids
    bodies, faults = as_bodies(Q), []
    # Times at which each new item may first and must last be found.
    times: dict = {}

    def check(row, status, answer, start, end):
        if status != 200:
            faults.append((row, status))
            return
        found = ids_of(answer)
        old = [id_ for id_ in found if id_ < len(X)]
        if old != expected[row, : len(old)].tolist() or len(found) != K:
            faults.append((row, found))
        for id_ in set(found) - set(old):
            first, last = times.get(id_, (np.inf, 0))
            if end < first or start > last:
                faults.append((row, id_))

    async def change(port, is_done):
        client = await Client().open(port)
        rng, number, alive, n_changes = np.random.default_rng(1), len(X), [], 0
        begin = time.perf_counter()
        while not is_done():
            if len(alive) > 20:
                id_ = alive.pop(0)
                status, answer = await client.post("remove", {"ids": [id_]})
                times[id_] = (times[id_][0], time.perf_counter())
            else:
                # A new item near a query is among its results.
                row = int(rng.integers(len(Q)))
                vector = Q[row] + 0.1 * rng.normal(size=N_FEATURES)
                item = {"vector": vector.tolist(), "id": number}
                times[number] = (time.perf_counter(), np.inf)
                status, answer = await client.post("add", {"items": [item]})
                _, found = await client.post("search", bodies[row])
                if number not in ids_of(found):
                    faults.append(("missing", number))
                alive.append(number)
                number += 1
            n_changes += 1
            if status != 200:
                faults.append((status, answer))
            await asyncio.sleep(max(0, begin + n_changes / 50 - time.perf_counter()))
        client.close()
        seconds = time.perf_counter() - begin
        print(f"{n_changes} changes, {n_changes / seconds:.0f} per second")

    async def run(port):
        done = []
        changes = asyncio.create_task(change(port, lambda: bool(done)))
        latencies = await ask_many(port, bodies, options.requests, 7, check)
        done.append(True)
        await changes
        return latencies

    service = Service(folder)
    report(asyncio.run(run(service.port)))
    service.stop()
    return faults


# -- memory --


def run_memory(folder, X, Q, options):
    small = folder.parent / "small" / "index"
    save_index(X[:2000], small)
    service, bodies, faults = Service(small), as_bodies(Q), []

    def check(row, status, answer, start, end):
        if status != 200:
            faults.append((row, status))

    sizes = []
    for _ in range(10):
        asyncio.run(
            ask_many(service.port, bodies, options.memory_requests // 10, 8, check)
        )
        sizes.append(service.megabytes())
    service.stop()
    print("MB after each tenth:", " ".join(f"{size:.1f}" for size in sizes))
    if sizes[-1] > 1.05 * sizes[1]:
        faults.append("memory grows")
    return faults


# -- kill --


def run_kill(folder, X, Q, options):
    """Kill the service while it adds items."""
    small = folder.parent / "killed" / "index"
    index = SimilarityIndex(CosineSimilarity(use_idf=False))
    index.fit(X[:100], ids=[f"old{i}" for i in range(100)], metadata=[{"n": 0}] * 100)
    index.save(small)
    rng, faults, acknowledged, number = np.random.default_rng(0), [], [], 0
    for _ in range(options.kills):
        service = Service(small)
        pause = threading_timer(rng.uniform(0.05, 0.5), service)
        connection = http.client.HTTPConnection("127.0.0.1", service.port)
        try:
            while True:
                names = [f"{number}a", f"{number}b"]
                items = [
                    {"id": name, "vector": X[0].tolist(), "metadata": {"n": number}}
                    for name in names
                ]
                number += 1
                request = make_request("add", {"items": items})
                connection.connect() if connection.sock is None else None
                connection.sock.sendall(request)
                answer = http.client.HTTPResponse(connection.sock)
                answer.begin()
                if answer.status != 200:
                    faults.append(answer.read())
                answer.read()
                acknowledged += names
        except (OSError, http.client.HTTPException):
            connection.close()
        pause.join()
        service.stop(signal.SIGKILL)
        found = SimilarityIndex.load(small, trusted=())
        ids = set(found.ids_.tolist())
        faults += [name for name in acknowledged if name not in ids]
        # The two items of a request are there, or none of them.
        faults += [id_ for id_ in ids if id_[-1] == "a" and id_[:-1] + "b" not in ids]
        faults += [id_ for id_ in ids if id_[-1] == "b" and id_[:-1] + "a" not in ids]
    print(f"{options.kills} kills, {len(acknowledged)} acknowledged items")
    return faults


def threading_timer(seconds, service):
    import threading

    timer = threading.Timer(seconds, service.process.kill)
    timer.start()
    return timer


PARTS = {
    "load": run_load,
    "changes": run_changes,
    "memory": run_memory,
    "kill": run_kill,
}


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", metavar="PART", help="of the benchmark")
    parser.add_argument("--items", type=int, default=200_000)
    parser.add_argument("--requests", type=int, default=2_000)
    parser.add_argument("--memory-requests", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=50)
    options = parser.parse_args(arguments)
    X, Q = make_data(options.items, 200)
    n_faults = 0
    with tempfile.TemporaryDirectory() as folder:
        index = Path(folder) / "index"
        save_index(X, index)
        for part in options.parts or PARTS:
            print(f"\n{part}")
            faults = PARTS[part](index, X, Q, options)
            print(f"{len(faults)} faults {faults[:3] or ''}")
            n_faults += len(faults)
    return 1 if n_faults else 0


if __name__ == "__main__":
    sys.exit(main())
