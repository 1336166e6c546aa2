"""Test that the hold-out measures the similarity that a fitted estimator serves."""

import inspect
import pickle
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tested_estimators import LEARNERS

from sklearn_simlearn import (
    OASIS,
    AngularBilinearRanker,
    ClassPosteriorSimilarity,
    HistogramRankSVM,
    QueryDocumentMap,
    SparseMahalanobisLearner,
    TwoCovarianceSimilarity,
    _holdout,
)
from sklearn_simlearn._core.encoders import (
    Chain,
    Encoder,
    Mixture,
    Rescaled,
    Sides,
    mix,
)
from sklearn_simlearn._core.start import Start
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.contract._fit import find_options
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.similarities import CosineSimilarity


def make_objects(n_objects=14, size=6, n_words=30, seed=0):
    """Return counts of objects that differ only in ten words; the others are noise."""
    rng = np.random.default_rng(seed)
    y = np.repeat(np.arange(n_objects), size)
    X = rng.poisson(1.5, size=(len(y), n_words))
    own = rng.poisson(1.0, size=(n_objects, 10))
    X[:, :10] = rng.binomial(3 * own[y], 0.6)
    return X.astype(np.float64), y


# Every public parameter of every learner at another value than its default. Parameters
# without an effect on the learned similarity are at their defaults.
X, y = make_objects()
GRAPH = sparse.eye_array(30, format="csr") + sparse.eye_array(30, k=1, format="csr")
VARIANTS = {
    OASIS: {
        "C": 0.5,
        "n_triplets": 1000,
        "holdout": "samples",
        "n_components": 3,
        "n_models": 2,
        "relevance_threshold": 0.1,
        "n_jobs": 2,
        # With a hold-out, these two parameters raise an error.
        "symmetric": None,
        "psd": None,
    },
    SparseMahalanobisLearner: {
        "n_neighbors": 0,
        "words": GRAPH,
        "init": "identity",
        "holdout": "samples",
        "margin": 0.05,
        "alpha": 0.0,
        "queries_per_object": 2,
        "n_random_triplets": 10,
        "max_iter": 2,
        "tol": 0.01,
        "n_jobs": 2,
    },
    HistogramRankSVM: {
        "alpha": 10.0,
        "penalty": "l2",
        "loss": "pairwise",
        "truncation": 2,
        "n_word_groups": 2,
        "cross_fit": False,
        "length_slope": 0.0,
        "weight_pattern": "symmetric",
        "holdout": "samples",
        "tol": 0.1,
        "max_iter": 3,
        "n_jobs": 2,
    },
    AngularBilinearRanker: {
        "C": 10.0,
        "sigma": 0.5,
        "matrix": "full",
        "query_dependent": False,
        "references": X[:8],
        "n_references": 7,
        "candidates": "hard",
        "n_candidates": 6,
        "n_neighbors": 1,
        "holdout": "samples",
        "tol": 0.1,
        "max_iter": 20,
        "n_jobs": 2,
    },
    QueryDocumentMap: {
        "maps": "queries",
        "shift": False,
        "alpha": 1.0,
        "max_iter": 5,
        "holdout": "samples",
    },
    ClassPosteriorSimilarity: {
        "estimator": CosineSimilarity(power=0.5),
        "classifier": LogisticRegression(),
        "n_landmarks": 20,
    },
    TwoCovarianceSimilarity: {
        "shrinkage": 0.3,
        "n_components": 3,
        "holdout": "samples",
    },
}
# Settings of the other parameters, with which a fit is fast.
FAST = {
    OASIS: {"n_triplets": 1000},
    SparseMahalanobisLearner: {"max_iter": 2},
    HistogramRankSVM: {"max_iter": 10, "tol": 0.1},
}
LISTED = set(VARIANTS)
for estimator in LEARNERS:
    # For learners that are not listed, try the options of their parameters.
    if isinstance(estimator, SimilarityLearner) and type(estimator) not in LISTED:
        options = [item for o in find_options(estimator) for item in o.items()]
        VARIANTS[type(estimator)] = {k: v for k, v in options if k != "holdout"}
CASES = [
    pytest.param(learner, {name: value}, id=f"{learner.__name__}-{name}")
    for learner, variants in VARIANTS.items()
    for name, value in [("random_state", 0), *variants.items()]
]
early = {"holdout": 2, "max_iter": 4}
CASES.append(pytest.param(SparseMahalanobisLearner, early, id="early stopping"))


@pytest.mark.parametrize("learner", sorted(LISTED, key=repr))
def test_every_parameter_of_a_listed_learner_is_tried(learner):
    assert {*VARIANTS[learner], "random_state"} == set(learner().get_params(deep=False))


@pytest.fixture
def judged(monkeypatch):
    """Record what the hold-out measures: (fold, candidate, encoder, similarities).

    The similarities are recorded in the first fold.
    """
    records = []
    record = _holdout.Judge.record

    def note(self, candidate, encoder):
        record(self, candidate, encoder)
        if hasattr(self, "fold"):
            S = None
            if not records or self.fold is records[0][0]:
                S = self.sides.similarity(encoder).copy()
            records.append((self.fold, candidate, encoder, S))

    open_fold = _holdout.Judge.open

    def note_fold(self, fold):
        open_fold(self, fold)
        if len(fold.train):
            self.fold = fold

    monkeypatch.setattr(_holdout.Judge, "record", note)
    monkeypatch.setattr(_holdout.Judge, "open", note_fold)
    return records


def serve(learner, encoder):
    """Return an estimator that serves an encoder."""
    served = clone(learner)
    served.n_features_in_ = X.shape[1]
    served.encoder_ = encoder
    return served


def shape_of(encoder):
    """Return the classes that an encoder is made of."""
    parts = fields(encoder) if is_dataclass(encoder) else ()
    inner = [getattr(encoder, field.name) for field in parts]
    names = [shape_of(part) for part in inner if isinstance(part, Encoder)]
    return type(encoder).__name__, *names


def equivalent(shape):
    """Drop parts that are merged into one step when a candidate is served."""
    return shape if shape[0] != "MixedCosine" else ("MatrixCosine", shape[1])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("learner", "parameters"), CASES)
def test_judged_similarities_are_served(learner, parameters, judged):
    # The defaults with sparse rows, which some parts encode in another way.
    rows = sparse.csr_array(X) if "random_state" in parameters else X
    model = learner(**{"random_state": 0} | FAST.get(learner, {}) | parameters)
    model.fit(rows, y)
    assert len({candidate for _, candidate, _, _ in judged}) > 1
    for fold, candidate, encoder, S in judged:
        if S is None:
            break
        served = serve(model, encoder)
        queries = rows[fold.queries]
        items = rows[np.concatenate([fold.items, fold.others])]
        message = f"{candidate} is judged by other similarities than it serves"
        assert_allclose(
            served.similarity(queries, items), S, rtol=1e-6, atol=1e-9, err_msg=message
        )
        Q, D = served.transform(queries[:5]), served.transform_database(items)
        product = Q @ D.T
        product = product.toarray() if sparse.issparse(product) else product
        assert_allclose(product, S[:5], rtol=1e-6, atol=1e-9, err_msg=message)

    # The fit of the chosen candidate makes an encoder of the same kind.
    results = model.holdout_results_
    chosen = results["candidates"][results["best_index"]]
    encoder = next(e for _, candidate, e, _ in judged if candidate == chosen)
    assert equivalent(shape_of(encoder)) == shape_of(model.encoder_)
    if "n_components" in parameters:
        for part in (encoder, model.encoder_):
            assert part.items(rows).shape[1] in (3, X.shape[1], X.shape[1] + 3)


def test_a_cut_embedding_is_judged_as_it_is_served():
    from sklearn.datasets import load_digits

    digits, labels = load_digits(return_X_y=True)
    # The samples are ordered by writer, and the hold-out draws them at random.
    train, test = np.split(np.random.default_rng(1).permutation(len(labels)), [900])
    oasis = OASIS(holdout="samples", n_components=5, random_state=0)
    oasis.fit(digits[train], labels[train])
    cosine = CosineSimilarity(use_idf=False).fit(digits)
    gain = oasis.score(digits[test], labels[test])
    gain -= cosine.score(digits[test], labels[test])
    assert oasis.components_.shape[0] == 5
    assert gain > -0.005
    assert oasis.holdout_gain_ == pytest.approx(gain, abs=0.05)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("holdout", ["objects", "samples"])
@pytest.mark.parametrize("learner", VARIANTS)
def test_held_out_rows_take_no_part_in_learning(learner, holdout, monkeypatch):
    parameters = {"random_state": 0}
    if "holdout" in learner().get_params():
        parameters["holdout"] = holdout
    elif holdout == "objects":
        pytest.skip("this learner is for known classes")
    module = inspect.getmodule(learner)
    choose, n_folds = module.choose, 0

    def poison(path, rows, relevance, *args, **options):
        """Replace held-out rows by NaN, and their labels, while the path learns."""

        def watched(train, rng, *dropped):
            nonlocal n_folds
            n_folds += 1
            held_out = np.setdiff1d(np.arange(len(relevance)), train)
            values, labels = rows.copy(), relevance.labels.copy()
            if sparse.issparse(rows):
                is_out = np.isin(np.arange(len(labels)), held_out)
                rows.data[np.repeat(is_out, np.diff(rows.indptr))] = np.nan
            else:
                rows[held_out] = np.nan
            relevance.labels[held_out] = labels[held_out][::-1]
            found = list(path(train, rng, *dropped))
            if sparse.issparse(rows):
                rows.data[:] = values.data
            else:
                rows[:] = values
            relevance.labels[:] = labels
            for _, encoder in found:
                for encoded in (encoder.queries(rows[:3]), encoder.items(rows[:3])):
                    values = encoded.data if sparse.issparse(encoded) else encoded
                    assert np.isfinite(values).all()
            yield from found

        return choose(watched, rows, relevance, *args, **options)

    monkeypatch.setattr(module, "choose", poison)
    learner(**parameters).fit(X.copy(), y)
    assert n_folds >= 3


def test_index_and_similarity_agree_whatever_decorates_transform(rng):
    class Halved(CosineSimilarity):
        def transform(self, X):
            return super().transform(X)[:, ::-1]

    rows = rng.standard_normal((20, 6))
    model = Halved(use_idf=False).fit(rows).set_output(transform="pandas")
    scores, ids = SimilarityIndex(model).fit(rows).search(rows[:3], k=20)
    S = np.take_along_axis(model.similarity(rows[:3], rows), ids, axis=1)
    assert_allclose(scores, S)


# -- the parts --


@pytest.fixture
def rows(rng):
    return rng.standard_normal((7, 4)), rng.standard_normal((9, 4))


class Scaled(Encoder):
    """Queries and items times different factors."""

    def __init__(self, left, right):
        self.left, self.right = left, right

    def queries(self, X):
        return self.left * X

    def items(self, X):
        return self.right * X


def products(encoder, Q, D):
    return encoder.queries(Q) @ encoder.items(D).T


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
def test_a_mixture_is_the_weighted_sum(share, rows):
    Q, D = rows
    start, learned = Start(None), Scaled(2.0, 3.0)
    mixed = mix(learned, start, share)
    expected = (1 - share) * products(learned, Q, D) + share * products(start, Q, D)
    assert_allclose(products(mixed, Q, D), expected)
    assert_allclose(Sides(Q, D).similarity(mixed), expected)


@pytest.mark.parametrize("share", [0.0, 0.3])
def test_a_mixture_with_the_same_items_adds_the_queries(share, rows):
    Q, D = rows
    start = Start(None)

    class Reversed(Encoder):
        def queries(self, X):
            return 5 * start.queries(X)[:, ::-1]

        def items(self, X):
            return start.items(X)

    learned = Reversed()
    mixed = mix(learned, start, share, same_items=True)
    assert_array_equal(mixed.items(D), start.items(D))
    expected = (1 - share) * learned.queries(Q) + share * start.queries(Q)
    expected /= np.linalg.norm(expected, axis=1, keepdims=True)
    assert_allclose(mixed.queries(Q), expected)
    assert_allclose(Sides(Q, D).similarity(mixed), expected @ start.items(D).T)
    assert not mixed.is_symmetric


def test_queries_of_a_mixture_with_the_same_items_are_encoded_for_themselves(rows):
    Q, _ = rows

    class Roots(Encoder):
        def items(self, X):
            return np.sign(X) * np.abs(X) ** 0.5

    mixed = mix(Roots(), Start(None), 0.5, same_items=True)
    assert not mixed.is_symmetric
    expected = mixed.queries(Q) @ mixed.items(Q).T
    encodings = Sides(Q, Q)
    assert_allclose(encodings.queries(mixed) @ encodings.items(mixed).T, expected)


@pytest.mark.parametrize("first_is_symmetric", [True, False])
@pytest.mark.parametrize("then_is_symmetric", [True, False])
def test_a_chain_encodes_both_sides(first_is_symmetric, then_is_symmetric, rows):
    Q, _ = rows
    first = Start(None) if first_is_symmetric else Scaled(2.0, 3.0)
    then = Start(None) if then_is_symmetric else Scaled(5.0, 7.0)
    chain = Chain(first, then)
    assert chain.is_symmetric == (first_is_symmetric and then_is_symmetric)
    expected = then.queries(first.queries(Q)) @ then.items(first.items(Q)).T
    assert_allclose(products(chain, Q, Q), expected)
    assert_allclose(Sides(Q, Q).similarity(chain), expected)


def test_parts_are_encoded_once(rows):
    Q, _ = rows
    n_calls = 0

    class Counting(Start):
        def items(self, X):
            nonlocal n_calls
            n_calls += 1
            return super().items(X)

    start = Counting(None)
    mixed = mix(Chain(start, Start(None)), start, 0.5)
    assert mixed.is_symmetric
    mixed.queries(Q)
    assert n_calls == 1
    # Queries that are the items are encoded once for both sides.
    Sides(Q, Q).similarity(mixed)
    assert n_calls == 2


def test_parts_keep_their_kind(rows):
    Q, D = rows
    learned = Rescaled(Scaled(1.0, 2.0), 3.0)
    assert_allclose(products(learned, Q, D), 6 * Q @ D.T)
    assert_allclose(Sides(Q, D).similarity(learned), 6 * Q @ D.T)
    mixed = Mixture(learned, Start(None), 0.25)
    for kind in (np.float32, np.float64):
        assert mixed.queries(Q.astype(kind)).dtype == kind
    assert sparse.issparse(mixed.items(sparse.csr_array(D)))
    thawed = pickle.loads(pickle.dumps(Mixture(Start(None), Start(None), 0.25)))
    assert thawed.share == 0.25
