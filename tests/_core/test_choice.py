"""The choice of a hold-out, in `repr` and in the HTML view."""

import ast
import inspect
import pickle
from types import SimpleNamespace

import numpy as np
import pytest
import sklearn
from sklearn.base import BaseEstimator, clone
from sklearn.decomposition import PCA
from sklearn.pipeline import make_pipeline

import sklearn_simlearn
from sklearn_simlearn import (
    OASIS,
    ClassPosteriorSimilarity,
    StartKeptWarning,
    TwoCovarianceSimilarity,
)
from sklearn_simlearn._core.choice import ChoiceMixin, describe_choice
from sklearn_simlearn.compose import SimilarityUnion
from sklearn_simlearn.similarities import CosineSimilarity

FOUND = {
    "candidates": [None, (1, 0.3)],
    "best_index": 1,
    "gain": np.array([0.0, 0.0123]),
    "error": np.array([0.0, 0.0045]),
    "gain_at_1": np.array([0.0, -0.001]),
}
GAIN = "gain 0.0123 +- 0.0045 in mAP"

WITH_HOLDOUT = {
    value
    for value in (getattr(sklearn_simlearn, name) for name in sklearn_simlearn.__all__)
    if inspect.isclass(value)
    and issubclass(value, BaseEstimator)
    and "holdout" in inspect.signature(value).parameters
} | {ClassPosteriorSimilarity, SimilarityUnion}


@pytest.fixture
def vectors():
    """Return 12 classes that differ in two of six directions."""
    rng = np.random.default_rng(0)
    y = np.repeat(np.arange(12), 8)
    X = 3 * rng.standard_normal((96, 6))
    X[:, :2] = 3 * rng.standard_normal((12, 2))[y] + 0.1 * rng.standard_normal((96, 2))
    return X, y


def with_choice(estimator, **attributes):
    """Give an estimator the attributes of a hold-out."""
    gain, error = FOUND["gain"][1], FOUND["error"][1]
    vars(estimator).update(holdout_gain_=gain, holdout_error_=error, **attributes)
    return estimator


@pytest.mark.parametrize("cls", sorted(WITH_HOLDOUT, key=lambda cls: cls.__name__))
def test_every_estimator_with_a_holdout_shows_its_choice(cls):
    assert issubclass(cls, ChoiceMixin)
    estimator = cls(similarities=[]) if cls is SimilarityUnion else cls()
    plain = repr(estimator)
    assert "#" not in plain
    with_choice(estimator, holdout_results_=FOUND, share_=0.3)
    assert repr(estimator) == f"{plain}  # share of the start 0.3, {GAIN}"
    assert repr(clone(estimator)) == plain


def test_the_words_of_every_choice():
    assert describe_choice(OASIS()) == ""
    learned = with_choice(OASIS(), holdout_results_=FOUND)
    assert describe_choice(learned) == GAIN  # nothing is mixed in
    assert describe_choice(make_pipeline(PCA(), learned)) == GAIN
    judged = with_choice(OASIS(), holdout_results_=FOUND | {"ndcg_at_10": 0})
    assert describe_choice(judged) == GAIN.replace("mAP", "nDCG@10")
    kept = with_choice(OASIS(), holdout_results_=FOUND | {"best_index": 0})
    assert describe_choice(kept) == (
        f"start kept (best candidate: {GAIN}, -0.0010 at rank 1)"
    )
    found = FOUND | {"candidates": [None, SimpleNamespace(share=0.75)]}
    scaled = with_choice(OASIS(), holdout_results_=found, share_=0.9996)
    assert describe_choice(scaled) == f"share of the start 0.75, {GAIN}"
    union = with_choice(SimilarityUnion([]), holdout_results_=FOUND)
    union.similarities_ = {"words": None, "vectors": scaled}
    union.weights_ = {"words": 0.25, "vectors": 0.75}
    expected = f"weights words 0.25, vectors 0.75; {GAIN}"
    assert describe_choice(union) == expected
    alone = SimilarityUnion([])
    alone.similarities_ = {"vectors": scaled}
    assert describe_choice(alone) == describe_choice(scaled)
    too_few = with_choice(OASIS())
    assert describe_choice(too_few).startswith("start kept, since")


def test_a_fitted_learner_shows_what_it_measured(vectors):
    model = TwoCovarianceSimilarity(random_state=0)
    assert "<p>" not in model._repr_html_()
    model.fit(*vectors)
    results = model.holdout_results_
    share = results["candidates"][results["best_index"]].share
    note = (
        f"share of the start {share:.2g}, gain {model.holdout_gain_:.4f} +- "
        f"{model.holdout_error_:.4f} in mAP"
    )
    assert model.share_ < 1
    assert repr(model) == f"TwoCovarianceSimilarity(random_state=0)  # {note}"
    assert repr(pickle.loads(pickle.dumps(model))) == repr(model)
    for view in (model, make_pipeline(PCA(), model)):
        assert view._repr_html_().count(f"<p>{note}</p>") == 1
    bundle = model._repr_mimebundle_()
    assert bundle["text/plain"] == repr(model)
    assert note in bundle["text/html"]


def test_a_learner_that_keeps_its_start_shows_it(vectors):
    X, y = vectors
    with pytest.warns(StartKeptWarning):
        model = TwoCovarianceSimilarity(random_state=0).fit(X[:40], y[:40])
    assert repr(model).endswith("# start kept, since there is too little to hold out")
    noise = np.random.default_rng(0).standard_normal(X.shape)
    with pytest.warns(StartKeptWarning, match="best candidate: gain "):
        model.fit(noise, y)
    assert "# start kept (best candidate: gain " in repr(model)


def test_settings_of_scikit_learn_still_hold(vectors):
    model = TwoCovarianceSimilarity(random_state=0).fit(*vectors)
    with sklearn.config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert "text/html" not in model._repr_mimebundle_()
    with sklearn.config_context(print_changed_only=False):
        assert "n_components=None" in repr(model)
    code = ast.parse(repr(model)).body[0].value
    assert code.func.id == "TwoCovarianceSimilarity"


def test_long_estimators_are_broken_into_lines():
    pipeline = make_pipeline(CosineSimilarity(), OASIS())
    with sklearn.config_context(print_changed_only=False):
        plain = repr(pipeline[-1])
        assert max(map(len, plain.splitlines())) <= 80
        with_choice(pipeline[-1], holdout_results_=FOUND)
        assert repr(pipeline[-1]) == f"{plain}  # {GAIN}"
        lines = repr(pipeline).splitlines()
        assert max(map(len, lines)) <= 80
        assert "#" not in "".join(lines)
