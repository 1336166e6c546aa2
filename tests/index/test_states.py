"""Random sequences of changes and searches, compared with brute force.

`SIMLEARN_STATES=2000 pytest --timeout=0 tests/index/test_states.py` runs 2,000
sequences.
"""

import os
import tempfile

import hypothesis.strategies as st
import numpy as np
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from numpy.testing import assert_array_equal
from products import make_product
from scipy import sparse

from sklearn_simlearn.index import SimilarityIndex

N_STATES = int(os.environ.get("SIMLEARN_STATES", 8))

N_WORDS, N_FEATURES = 6, 24
GROUPS = ("red", "green", None)


class IndexMachine(RuleBasedStateMachine):
    """Index and the items that it should hold.

    All numbers are small integers, so scores are exact and equal scores are frequent.
    """

    @initialize(
        kind=st.sampled_from(["sparse", "dense", "union"]),
        dtype=st.sampled_from([np.float32, np.float64]),
        seed=st.integers(0, 2**32 - 1),
        n_items=st.integers(1, 90),
        block_length=st.sampled_from([None, 7, 64]),
    )
    def start(self, kind, dtype, seed, n_items, block_length):
        self.rng = np.random.default_rng(seed)
        self.kind, self.dtype, self.factor = kind, dtype, 1
        self.items, self.groups, self.n_ids = {}, {}, 0
        X, ids, metadata = self.draw_items(n_items)
        options = {} if block_length is None else {"block_length": block_length}
        self.index = SimilarityIndex(
            self.make_estimator(1), backend_options=options, store_items=True
        )
        self.index.fit(self.store(X), ids=ids, metadata=metadata)
        backends = {"sparse": "inverted", "dense": "dense", "union": "hybrid"}
        assert self.index.backend_ == backends[kind]
        self.record(X, ids, metadata)

    def make_estimator(self, factor):
        n_words = N_WORDS if self.kind == "union" else 0
        return make_product(N_FEATURES, factor, n_words=n_words)

    def draw(self, n_rows):
        X = self.rng.integers(-4, 5, size=(n_rows, N_FEATURES))
        return (X * (self.rng.random(X.shape) < 0.5)).astype(self.dtype)

    def draw_items(self, n_items):
        ids = [f"item {self.n_ids + i}" for i in range(n_items)]
        self.n_ids += n_items
        groups = self.rng.choice(len(GROUPS), n_items)
        return self.draw(n_items), ids, [{"group": GROUPS[group]} for group in groups]

    def store(self, X):
        return sparse.csr_array(X) if self.kind == "sparse" else X

    def record(self, X, ids, metadata):
        for id_, row, of_row in zip(ids, X, metadata, strict=True):
            self.items.pop(id_, None)
            self.items[id_], self.groups[id_] = row, of_row["group"]

    @rule(n_items=st.integers(1, 20))
    def add(self, n_items):
        X, ids, metadata = self.draw_items(n_items)
        self.index.add(self.store(X), ids, metadata)
        self.record(X, ids, metadata)

    @rule(n_new=st.integers(0, 5), n_old=st.integers(0, 5))
    def upsert(self, n_new, n_old):
        ids = self.choose(n_old)
        X, more, metadata = self.draw_items(n_new + len(ids))
        ids = ids + more[len(ids) :]
        if ids:
            self.index.upsert(self.store(X), ids, metadata)
            self.record(X, ids, metadata)

    @precondition(lambda self: self.items)
    @rule(share=st.floats(0, 1))
    def remove(self, share):
        ids = self.choose(int(share * len(self.items)))
        self.index.remove(ids)
        for id_ in ids:
            del self.items[id_]

    @rule()
    def compact(self):
        self.index.compact()

    @precondition(lambda self: self.items)
    @rule(factor=st.sampled_from([1, 2]))
    def set_estimator(self, factor):
        self.index.set_estimator(self.make_estimator(factor))
        self.factor = factor

    @rule(mmap=st.booleans())
    def save_and_load(self, mmap):
        with tempfile.TemporaryDirectory() as folder:
            self.index.save(folder, include_estimator=False)
            estimator = self.make_estimator(self.factor)
            loaded = SimilarityIndex.load(
                folder, mmap=mmap, estimator=estimator, verify=True
            )
            assert len(loaded) == len(self.items)
            # The folder is deleted, and the index continues in memory.
            self.check(loaded, 5)
        if not mmap:
            self.index = loaded

    @rule(k=st.integers(1, 30), n_jobs=st.sampled_from([1, 2]))
    def search(self, k, n_jobs):
        self.index.n_jobs = n_jobs
        self.check(self.index, k)

    @rule(
        k=st.integers(1, 30),
        how=st.sampled_from(["ids", "mask", "dict", "function", "each"]),
        share=st.sampled_from([0, 0.02, 0.3, 1]),
        n_excluded=st.integers(0, 4),
    )
    def search_some(self, k, how, share, n_excluded):
        known = list(self.items)
        chosen = self.choose(int(np.ceil(share * len(known))))
        red = [id_ for id_ in known if self.groups[id_] == "red"]
        filter, allowed = {
            "ids": ([*chosen, "unknown"], [chosen] * 3),
            "mask": (np.isin(known, chosen), [chosen] * 3),
            "dict": ({"group": "red"}, [red] * 3),
            "function": (lambda row: row["group"] == "red", [red] * 3),
            "each": ([{"group": "red"}, None, chosen], [red, known, chosen]),
        }[how]
        exclude = [self.choose(n_excluded) for _ in range(3)]
        self.check(self.index, k, allowed, filter=filter, exclude=exclude)

    def choose(self, n_items):
        known = np.array(list(self.items), dtype=str)
        return self.rng.permutation(known)[:n_items].tolist()

    def check(self, index, k, allowed=None, **params):
        Q = self.draw(3)
        exclude = params.get("exclude", [[]] * 3)
        known = list(self.items)
        X = np.array(list(self.items.values()), dtype=self.dtype)
        X = X.reshape(-1, N_FEATURES)
        factors = np.full(N_FEATURES, float(self.factor) ** 2)
        if self.kind == "union":
            factors[:N_WORDS] = 1
        S = (Q * factors) @ X.T.astype(np.float64)
        scores = np.full((3, k), -np.inf)
        ids = np.full((3, k), "", dtype="U12")
        for i in range(3):
            rows = np.array(
                [
                    row
                    for row, id_ in enumerate(known)
                    if id_ not in exclude[i]
                    and (allowed is None or id_ in set(allowed[i]))
                ],
                dtype=np.int64,
            )
            best = rows[np.argsort(-S[i, rows], kind="stable")][:k]
            scores[i, : len(best)] = S[i, best]
            ids[i, : len(best)] = np.array(known, dtype=str)[best]
        found = index.search(self.store(Q), k, **params)
        assert found.scores.dtype == self.dtype
        assert_array_equal(found.scores, scores)
        assert_array_equal(found.ids, ids)


IndexMachine.TestCase.settings = settings(
    max_examples=N_STATES,
    stateful_step_count=15,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
test_states = IndexMachine.TestCase
