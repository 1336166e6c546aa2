"""Test the command ``serve`` in a new process."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np
import pytest

pytest.importorskip("uvicorn")
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.serve._command import list_hosts
from sklearn_simlearn.similarities import CosineSimilarity


def save(folder, n_items=3):
    X = np.eye(n_items, 3) + 1
    SimilarityIndex(CosineSimilarity(use_idf=False)).fit(X).save(folder)


@contextmanager
def serve(folder, *options):
    """Serve an index; yield the address and the process. It must not write errors."""
    save(folder)
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "sklearn_simlearn", "serve", folder),
            *("--port", "0", *options),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        line = process.stdout.readline()
        assert line.startswith(f"serving {folder.name} (read-only) on http://127.")
        yield line.split()[-1], process
    finally:
        process.terminate()
        _, errors = process.communicate(timeout=120)
    assert process.returncode in (0, -15)
    assert "Traceback" not in errors


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "127.8.0.1", "::1"])
def test_a_loopback_address_limits_the_host_names(host):
    assert set(list_hosts(host, [])) == {"localhost", "127.0.0.1", "[::1]", host}
    assert "name.org" in list_hosts(host, ["name.org"])


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.2", "::", "name.org"])
def test_other_addresses_accept_all_host_names_unless_some_are_given(host):
    assert list_hosts(host, []) is None
    assert {host, "other.org"} <= set(list_hosts(host, ["other.org"]))


def search(address, name):
    """Return the number of results of a search."""
    request = urllib.request.Request(
        f"{address}indexes/{name}/search",
        BODY,
        {"Content-Type": "application/json"},
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return len(json.load(answer)["results"][0])


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="needs SIGHUP")
def test_no_request_is_lost_while_indexes_are_replaced(tmp_path):
    folder = tmp_path / "index"
    with serve(folder) as (address, process), ThreadPoolExecutor(3) as pool:
        is_done = threading.Event()

        def search_on():
            found = []
            while not is_done.is_set():
                found.append(search(address, "index"))
            return found

        searches = [pool.submit(search_on) for _ in range(3)]
        try:
            for n_items in range(4, 7):
                save(folder, n_items)
                if n_items % 2:  # otherwise the service finds the new index itself
                    process.send_signal(signal.SIGHUP)
                deadline = time.monotonic() + 60
                while search(address, "index") != n_items:
                    assert time.monotonic() < deadline
                    time.sleep(0.02)
        finally:
            is_done.set()
        for future in searches:
            found = future.result()
            # Each answer is that of one of the indexes, and none is older than before.
            assert len(found) > 0
            assert found == sorted(found)


def test_shutdown_completes_running_requests(tmp_path):
    with serve(tmp_path) as (address, process):
        host, port = re.search(r"//(.*):(\d+)/", address).groups()
        head = SEARCH.replace(b"NAME", tmp_path.name.encode()) + JSON
        head += b"Content-Length: %d\r\n\r\n" % len(BODY)
        with socket.create_connection((host, int(port)), timeout=120) as connection:
            connection.sendall(head + BODY[:10])
            # The service has read the first part when it answers another request.
            time.sleep(0.5)
            assert search(address, tmp_path.name) == 3
            process.terminate()
            time.sleep(0.5)
            connection.sendall(BODY[10:])
            answer = b""
            while part := connection.recv(2**16):
                answer += part
        assert answer.startswith(b"HTTP/1.1 200")
        assert len(json.loads(answer.partition(b"\r\n\r\n")[2])["results"][0]) == 3
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((host, int(port)), timeout=5).close()


BODY = b'{"queries": [{"vector": [1, 0, 0]}]}'
SEARCH = b"POST /indexes/NAME/search HTTP/1.1\r\nHost: localhost\r\n"
JSON = b"Content-Type: application/json\r\n"

# Requests that a client library would not send, and their status; 0 for no answer.
RAW = {
    "two lengths": (
        SEARCH + JSON + b"Content-Length: 5\r\nContent-Length: 36\r\n\r\n" + BODY,
        (400,),
    ),
    "length and chunks": (
        SEARCH
        + JSON
        + b"Content-Length: 36\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
        + b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (400,),
    ),
    "negative length": (SEARCH + JSON + b"Content-Length: -1\r\n\r\n", (400,)),
    "text as length": (SEARCH + JSON + b"Content-Length: x\r\n\r\n", (400,)),
    "huge length": (
        SEARCH + JSON + b"Content-Length: 99999999999999\r\n\r\n" + BODY,
        (0, 400, 413),
    ),
    "truncated body": (SEARCH + JSON + b"Content-Length: 99\r\n\r\n" + BODY, (0, 400)),
    "bad chunk": (
        SEARCH + JSON + b"Transfer-Encoding: chunked\r\n\r\nzz\r\nabc\r\n",
        (0, 400),
    ),
    "other encoding": (
        SEARCH + JSON + b"Transfer-Encoding: gzip\r\n\r\n" + BODY,
        (0, 400, 501),
    ),
    "huge header": (
        SEARCH + b"X: " + 200_000 * b"x" + b"\r\n\r\n",
        (0, 400, 431),
    ),
    "huge address": (
        b"GET /" + 200_000 * b"x" + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (0, 400, 414, 431),
    ),
    "folded header": (
        SEARCH + JSON + b"X: a\r\n b\r\nContent-Length: 36\r\n\r\n" + BODY,
        (200, 400),
    ),
    "NUL in a header": (SEARCH + b"X: \0\r\n\r\n", (400,)),
    "no host": (b"GET /health HTTP/1.1\r\n\r\n", (400,)),
    "other host": (b"GET /health HTTP/1.1\r\nHost: evil.org\r\n\r\n", (400,)),
    "two hosts": (
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: evil.org\r\n\r\n",
        (200, 400),
    ),
    "forwarded host": (
        b"GET / HTTP/1.1\r\nHost: evil.org\r\nX-Forwarded-Host: localhost\r\n\r\n",
        (400,),
    ),
    "climbing": (
        b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (404,),
    ),
    "NUL in the address": (
        b"GET /indexes/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (404,),
    ),
    "not HTTP": (b"\x16\x03\x01\x02\x00\x01\x00" + 100 * b"\xff" + b"\r\n\r\n", (400,)),
    "no line": (b"\r\n\r\n\r\n", (0, 400)),
    "other method": (b"BREW /health HTTP/1.1\r\nHost: localhost\r\n\r\n", (400, 405)),
}


def send(host, port, request, *, close):
    """Return the answer to raw bytes; empty if the service only closes the connection.

    The service may answer and close the connection first. To close the client's side,
    or to read, may then raise an error.
    """
    with socket.create_connection((host, port), timeout=120) as connection:
        try:
            connection.sendall(request)
            if close:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # an answer may have arrived before
        try:
            return connection.recv(2**16)
        except ConnectionResetError:
            return b""


def test_two_workers_answer_malformed_requests_and_stop(tmp_path):
    with serve(tmp_path, "--workers", "2") as (address, _):
        host, port = re.search(r"//(.*):(\d+)/", address).groups()
        for name, (request, expected) in RAW.items():
            request = request.replace(b"NAME", tmp_path.name.encode())
            # Status 0: the service waits for the rest of the request.
            answer = send(host, int(port), request, close=0 in expected)
            head = answer.split(b"\r\n", 1)[0].split()
            status = int(head[1]) if head else 0
            assert status in expected, (name, answer[:300])
            assert b"Traceback" not in answer
        answer = urllib.request.urlopen(f"{address}health", timeout=120).read()
        answer = json.loads(answer)
        assert answer["status"] == "ok"
        assert answer["indexes"] == {tmp_path.name: 3}
