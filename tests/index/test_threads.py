"""Searches in threads while another thread changes the index.

`SIMLEARN_STRESS_SECONDS=10 pytest tests/index/test_threads.py` runs it for 10 seconds
with each backend.
"""

import os
import pickle
import sys
import threading
import time

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from products import make_product
from scipy import sparse
from sklearn.preprocessing import StandardScaler

from sklearn_simlearn.index import SimilarityIndex

SECONDS = float(os.environ.get("SIMLEARN_STRESS_SECONDS", 0.5))
N_WORDS, N_FEATURES = 4, 24
N_FOUND = 40

BACKENDS = {
    "inverted": {},
    "dense": {},
    "hybrid": {},
    "faiss": {"factory": "Flat"},
    "usearch": {"exact": True},
}


@pytest.fixture(autouse=True)
def _frequent_switches():
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


class Writer:
    """Index that is changed at random, with the expected result of each state.

    The result of a state is recorded before the index enters the state. Therefore the
    result of a search is one of those from `n_done` at its start to the last one at its
    end.
    """

    def __init__(self, backend):
        self.rng = np.random.default_rng(0)
        self.is_sparse = backend == "inverted"
        n_words = N_WORDS if backend == "hybrid" else 0
        self.estimators = [
            make_product(N_FEATURES, factor, n_words=n_words) for factor in (1, 2)
        ]
        self.factors = np.array([[1.0], [4.0]]).repeat(N_FEATURES, axis=1)
        self.factors[:, :n_words] = 1
        self.factor = self.factors[0]
        self.Q = self.draw(3)
        self.items, first = {}, self.draw(20)
        self.index = SimilarityIndex(
            self.estimators[0],
            backend=backend,
            backend_options=BACKENDS[backend],
            store_items=True,
        )
        ids = list(range(20))
        self.items.update(zip(ids, first, strict=True))
        metadata = [{"name": f"item {i}"} for i in ids]
        self.index.fit(self.store(first), ids=ids, metadata=metadata)
        self.answers, self.n_done, self.n_ids = [self.rank()], 0, 20

    def draw(self, n_rows):
        return self.rng.integers(-4, 5, size=(n_rows, N_FEATURES)).astype(np.float32)

    def store(self, X):
        return sparse.csr_array(X) if self.is_sparse else X

    def rank(self):
        ids = np.array(list(self.items), dtype=np.int64)
        S = (self.factor * self.Q) @ np.array(list(self.items.values())).T
        best = np.argsort(-S, axis=1, kind="stable")[:, :N_FOUND]
        scores = np.full((len(S), N_FOUND), -np.inf, dtype=np.float32)
        found = np.full((len(S), N_FOUND), -1)
        scores[:, : best.shape[1]] = np.take_along_axis(S, best, axis=1)
        found[:, : best.shape[1]] = ids[best]
        return scores, found

    def change(self):
        """Change the index at random, after its expected result was recorded."""
        what = self.rng.choice(["add", "remove", "upsert", "compact", "estimator"])
        known = list(self.items)
        if what == "add" and len(known) < 30:
            ids, X = [self.n_ids, self.n_ids + 1], self.draw(2)
            self.n_ids += 2
            self.items.update(zip(ids, X, strict=True))
            metadata = [{"name": f"item {i}"} for i in ids]
            call = self.index.add, self.store(X), ids, metadata
        elif what == "remove" and len(known) > 10:
            ids = self.rng.choice(known, 3, replace=False).tolist()
            for id_ in ids:
                del self.items[id_]
            call = self.index.remove, ids
        elif what == "upsert" and len(known) < 30:
            ids, X = [known[0], self.n_ids, known[-1]], self.draw(3)
            self.n_ids += 1
            for id_, row in zip(ids, X, strict=True):
                self.items.pop(id_, None)
                self.items[id_] = row
            metadata = [{"name": f"item {i}"} for i in ids]
            call = self.index.upsert, self.store(X), ids, metadata
        elif what == "estimator":
            which = int(self.rng.integers(2))
            self.factor = self.factors[which]
            call = self.index.set_estimator, self.estimators[which]
        else:
            call = (self.index.compact,)
        self.answers.append(self.rank())
        call[0](*call[1:])
        self.n_done += 1


def read(writer, is_over, faults):
    """Compare the results of searches with the possible states of the index."""
    Q = writer.store(writer.Q)
    try:
        while not is_over.is_set():
            first = writer.n_done
            result = writer.index.search(Q, N_FOUND)
            last = len(writer.answers)
            assert any(
                np.array_equal(result.scores, scores)
                and np.array_equal(result.ids, ids)
                for scores, ids in writer.answers[first:last]
            ), result
            names = [row["name"] for rows in result.metadata for row in rows]
            found = result.ids[result.scores > -np.inf]
            assert names == [f"item {id_}" for id_ in found]
    except BaseException as error:
        faults.append(error)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_search_answers_from_one_state(backend):
    if backend in ("faiss", "usearch"):
        pytest.importorskip(backend)
    writer, is_over, faults = Writer(backend), threading.Event(), []
    readers = [
        threading.Thread(target=read, args=(writer, is_over, faults)) for _ in range(4)
    ]
    for reader in readers:
        reader.start()
    end = time.monotonic() + SECONDS
    while (time.monotonic() < end or writer.n_done < 30) and not faults:
        writer.change()
    is_over.set()
    for reader in readers:
        reader.join()
    assert not faults, faults[0]
    assert_array_equal(
        writer.index.search(writer.store(writer.Q), N_FOUND), writer.rank()
    )


def test_several_threads_may_change_an_index(rng):
    X = rng.standard_normal((400, 5))
    index = SimilarityIndex(StandardScaler().fit(X)).fit(X[:10], ids=range(10))

    def change(first):
        for i in range(first, first + 40):
            index.add(X[[i]], ids=[i])
        index.remove(range(first, first + 20))

    threads = [threading.Thread(target=change, args=(s,)) for s in (50, 100, 150, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    expected = {*range(10)} | {
        s + i for s in (50, 100, 150, 200) for i in range(20, 40)
    }
    assert set(index.ids_.tolist()) == expected
    assert len(index) == 90
    # Copies do not share locks.
    thawed = pickle.loads(pickle.dumps(index))
    assert_array_equal(thawed.search(X[:3]), index.search(X[:3]))
    thawed.remove([0])
    assert (len(thawed), len(index)) == (89, 90)
