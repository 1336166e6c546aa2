"""The contract detects mistakes in small learners."""

import re
from contextlib import nullcontext
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import pytest
from scipy import linalg, sparse

from sklearn_simlearn._core.encoders import Chain, Encoder, mix
from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.rows import scale_rows, unit_rows
from sklearn_simlearn._core.start import Start
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._holdout import HOLDOUT, START, Choice, choose
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.contract import CHECKS, check_learner
from sklearn_simlearn.contract._samples import make_samples


class Candidate(NamedTuple):
    ridge: float
    share: float


@dataclass(frozen=True, eq=False)
class Mapped(Encoder):
    A: np.ndarray

    def items(self, X):
        return unit_rows((X @ self.A).astype(X.dtype, copy=False))


class Whitening(SimilarityLearner):
    """Cosine after whitening within classes; methods are where mistakes are planted."""

    _parameter_constraints = {"holdout": HOLDOUT, "random_state": ["random_state"]}

    def __init__(self, *, holdout="auto", random_state=None):
        self.holdout = holdout
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        rng = make_generator(self.random_state)

        def path(train, rng):
            rows, known = X[train], relevance.take(train)
            start = Start.fit(rows)
            yield START, start
            scatter = self.scatter(start.items(rows), known, rng)
            for ridge in (0.3, 3.0):
                learned = self.encode(self.whiten(scatter, ridge, X.dtype))
                for share in (0.0, 0.5):
                    mixed = mix(Chain(start, learned), start, share)
                    yield Candidate(ridge, share), mixed

        with self.threads():
            choice = Choice(Candidate(0.3, 0.0), {})
            if self.holdout is not None:
                choice = self.choose(path, X, relevance, rng, advance)
            candidate = self.take(choice.candidate)
            encoder = dict(path(np.arange(len(relevance)), rng))[candidate]
        return {"encoder_": encoder, "share_": 1.0, **choice.attributes}

    def choose(self, path, X, relevance, rng, advance):
        return choose(path, X, relevance, self.holdout, rng, advance)

    def take(self, candidate):
        return candidate

    def threads(self):
        return one_blas_thread()

    def encode(self, A):
        return Mapped(A)

    def memberships(self, relevance):
        return relevance.memberships.sign()

    def scatter(self, X, relevance, rng):
        """Sum over classes of the squared deviations from their mean."""
        M = self.memberships(relevance)
        sums, size = M.T.tocsr() @ X, np.maximum(M.sum(axis=0), 1)
        S = scale_rows(X, M.sum(axis=1)).T @ X - scale_rows(sums, 1 / size).T @ sums
        return S.toarray() if sparse.issparse(S) else S

    def whiten(self, S, ridge, dtype):
        S = S.astype(np.float64)
        scale = (
            S.trace() / len(S) or 1.0
        )  # 0 if there are no classes, as with judgements
        S = S + ridge * scale * np.eye(len(S))
        return linalg.cholesky(np.linalg.inv(S), lower=True).astype(dtype)


def test_a_learner_without_mistakes_keeps_the_contract():
    check_learner(Whitening())
    check_learner(Whitening(holdout=None))


class KeepsAReference(Whitening):
    def _learn(self, X, relevance, advance):
        learned = super()._learn(X, relevance, advance)
        return learned | {"encoder_": Reweighted(X, learned["encoder_"])}


class Reweighted(Encoder):
    def __init__(self, rows, inner):
        self.rows, self.inner = rows, inner

    def items(self, Z):
        weights = 1 / (1 + np.asarray(self.rows.mean(axis=0)))
        weighted = Z * weights
        weighted = weighted.tocsr() if sparse.issparse(Z) else weighted
        return self.inner.items(weighted.astype(Z.dtype))


class TakesTheFirst(Whitening):
    def scatter(self, X, relevance, rng):
        return super().scatter(X[:40], relevance.take(np.arange(40)), rng)


class GoesOn(Whitening):
    def scatter(self, X, relevance, rng):
        self.total = getattr(self, "total", 0.0) + super().scatter(X, relevance, rng)
        return self.total


class MakesDense(Whitening):
    def scatter(self, X, relevance, rng):
        X = X.toarray() if sparse.issparse(X) else X
        return super().scatter(X, relevance, rng)


class EncodesDense(Whitening):
    def encode(self, A):
        return DenselyMapped(A)


class DenselyMapped(Mapped):
    def items(self, X):
        return super().items(X.toarray() if sparse.issparse(X) else X)


class ClassOfDistractors(Whitening):
    def memberships(self, relevance):
        M = relevance.memberships.sign()
        rest = (M.sum(axis=1) == 0).astype(float)[:, None]
        return sparse.hstack([M, sparse.csr_array(rest)], format="csr")


class DividesByZero(Whitening):
    def scatter(self, X, relevance, rng):
        size = self.memberships(relevance).sum(axis=0)
        return super().scatter(X, relevance, rng) * np.mean(size / (size - 1))


class Leaks(Whitening):
    def choose(self, path, X, relevance, rng, advance):
        def on_all(train, rng):
            yield from path(np.arange(len(relevance)), rng)

        return super().choose(on_all, X, relevance, rng, advance)


class AllPairs(Whitening):
    def scatter(self, X, relevance, rng):
        everything = np.arange(len(relevance))
        relevance.block(everything, everything).sum(axis=1)
        return super().scatter(X, relevance, rng)


class SetsTheSeed(Whitening):
    def scatter(self, X, relevance, rng):
        np.random.seed(0)  # noqa: NPY002
        return super().scatter(X, relevance, rng)


class IgnoresTheStart(Whitening):
    def take(self, candidate):
        return candidate or Candidate(0.3, 0.0)


class ManyThreads(Whitening):
    def threads(self):
        return nullcontext()


class JunkIsPositive(Whitening):
    def memberships(self, relevance):
        junk = getattr(relevance, "junk", None)
        M = relevance.memberships.sign()
        return M if junk is None else (M + abs(junk)).sign().tocsr()


class DoublePrecision(Whitening):
    def whiten(self, S, ridge, dtype):
        return super().whiten(S, ridge, np.float64)

    def encode(self, A):
        return DoublyMapped(A)


class DoublyMapped(Mapped):
    def items(self, X):
        return super().items(X.astype(np.float64))


class RandomVariant(Whitening):
    def scatter(self, X, relevance, rng):
        S = super().scatter(X, relevance, rng)
        if self.holdout != "samples":
            return S
        return S * np.random.default_rng().uniform(0.9, 1.1, size=len(S))[:, None]


class NeverLearns(Whitening):
    def take(self, candidate):
        return START

    def choose(self, path, X, relevance, rng, advance):
        def first(train, rng):
            yield next(path(train, rng))

        return super().choose(first, X, relevance, rng, advance)


class FillsACache(Whitening):
    def encode(self, A):
        return Caching(A)


class Caching(Mapped):
    def items(self, X):
        vars(self)["last"] = X.shape
        return super().items(X)


class FailsOnJudgements(Whitening):
    def _learn(self, X, relevance, advance):
        if isinstance(relevance, JudgedRelevance):
            raise ValueError("Something went wrong.")
        return super()._learn(X, relevance, advance)


class ChoosesByItsOwnQueries(Whitening):
    def choose(self, path, X, relevance, rng, advance):
        choice = super().choose(path, X, relevance, rng, advance)
        return choice._replace(attributes={**choice.attributes, "holdout_gain_": 0.3})


class CutsQueries(Whitening):
    def fit(self, X, y):
        return super().fit(X, y[: X.shape[0]])


MISTAKES = {
    FailsOnJudgements: "With judgements, queries are compared with documents",
    ChoosesByItsOwnQueries: "Held-out queries are not learned from",
    CutsQueries: "Judgements that do not match the queries raise",
    KeepsAReference: "A change of X after the fit has no effect",
    TakesTheFirst: "Another order of the samples changes no more",
    GoesOn: "A fit replaces all state of the previous fit",
    MakesDense: "Sparse samples are not made dense",
    EncodesDense: "Sparse samples are not made dense",
    ClassOfDistractors: "Distractors, whose label is -1, are not learned as a class",
    DividesByZero: "Classes with one sample, or with none, are allowed",
    Leaks: "Held-out samples are not learned from",
    AllPairs: "A fit holds no n_samples x n_samples array",
    SetsTheSeed: "NumPy's global random state is neither set nor used",
    IgnoresTheStart: "A learner for new classes does not rank them worse",
    ManyThreads: "Threads of BLAS and n_jobs do not change the result",
    JunkIsPositive: "Junk of a class is not learned as a relevant sample",
    DoublePrecision: "Products of encoded queries and items are the similarity, of the",
    RandomVariant: "A random_state gives exactly the same similarity again",
    NeverLearns: "A learner with a hold-out leaves its start",
    FillsACache: "The use of a fitted estimator changes neither X nor the estimator",
}


def find_check(rule):
    """Return the check whose rule begins with this text."""
    [check] = [check for check in CHECKS if check.__doc__.startswith(rule)]
    return check


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_caught_and_named(mistake):
    rule = MISTAKES[mistake]
    with pytest.raises(AssertionError, match=f"^{re.escape(rule)}") as error:
        find_check(rule)(mistake())
    assert f"{mistake.__name__} does not: " in str(error.value)


@pytest.mark.parametrize("mistake", [DoublePrecision, TakesTheFirst, SetsTheSeed])
def test_the_first_rule_that_is_broken_is_raised(mistake):
    with pytest.raises(AssertionError, match=f"^{re.escape(MISTAKES[mistake])}"):
        check_learner(mistake())


def test_every_check_names_a_rule():
    rules = [check.__doc__.splitlines()[0] for check in CHECKS]
    assert len(set(rules)) == len(rules) >= 20
    assert all(rule.endswith(".") for rule in rules)


def test_a_perfect_ranking_does_not_raise():
    class Known(Encoder):
        """Encoder that looks up the label of each training sample."""

        def __init__(self, X, labels):
            rows = X.toarray() if sparse.issparse(X) else X
            self.label = dict(zip(map(bytes, rows), labels, strict=True))
            self.labels = labels

        def items(self, X):
            rows = X.toarray() if sparse.issparse(X) else X
            found = np.array([self.label[bytes(row)] for row in rows])
            return (found[:, None] == np.unique(self.labels)).astype(X.dtype)

    class Perfect(SimilarityLearner):
        def _learn(self, X, relevance, advance):
            return {"encoder_": Known(X, relevance.labels)}

    X, y = make_samples()
    assert Perfect().fit(X, y).score(X, y) == 1
    find_check("The score is the weighted mean")(Perfect())
