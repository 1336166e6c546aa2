"""Checks of fits on judgements of queries against documents."""

import numpy as np
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from sklearn_simlearn.contract._holdout import N_ERRORS
from sklearn_simlearn.contract._rules import (
    raises,
    require,
    require_close,
    rule,
)
from sklearn_simlearn.contract._samples import (
    containers,
    dense,
    fit,
    has_holdout,
    make_samples,
    takes_sparse,
)
from sklearn_simlearn.metrics import Judgements, average_precision

# Number of samples of each object that query; the others are documents.
N_QUERIES = 3


def make_judgements(estimator, rng=None):
    """Return queries, and judgements by object or, with a generator, at random."""
    X, y = make_samples(size=10, n_distractors=10)
    X = X if takes_sparse(estimator) else X.toarray()
    is_query = (np.arange(len(y)) % 10 < N_QUERIES) & (y >= 0)
    relevance = (y[is_query][:, None] == y[~is_query]).astype(float)
    if rng is not None:
        relevance = rng.permuted(relevance, axis=1)
    relevance[::4] *= 2  # relevance may be graded
    return X[is_query], Judgements(relevance, documents=X[~is_query])


def refuses(estimator) -> bool:
    """Return whether the estimator refuses judgements.

    Such an estimator must name the targets that it takes, and stay unfitted.
    """
    Q, y = make_judgements(estimator)
    model = clone(estimator)
    try:
        fit(model, Q, y)
    except ValueError:
        with raises(ValueError, "fit with judgements", match="class|judgements"):
            model.fit(Q, y)
        with raises(NotFittedError, "transform after judgements were refused"):
            model.transform(Q)
        return True
    return False


@rule
def check_judgements_are_learned(estimator):
    """With judgements, queries are compared with documents, in any container."""
    if refuses(estimator):
        return
    Q, y = make_judgements(estimator)
    fitted = fit(estimator, Q, y)
    S = fitted.similarity(Q, y.documents)
    require(S.shape == y.shape, f"the similarity has shape {S.shape}.")
    require(np.isfinite(S).all(), "some similarities are not finite.")
    expected = average_precision(y.relevance.toarray(), S).mean()
    require_close(fitted.score(Q, y), expected, "score is not that of S.", 1e-6)
    if has_holdout(fitted):
        found = "ndcg_at_10" in fitted.holdout_results_
        require(found, "the hold-out does not judge nDCG@10 on held-out queries.")
    for documents in containers(estimator, sparse.csr_array(y.documents)):
        queries = dense(Q) if isinstance(documents, np.ndarray) else Q
        again = fit(estimator, queries, y.with_documents(documents))
        require_close(
            again.similarity(queries, documents), S, "the container matters.", 1e-6
        )


@rule
def check_judged_queries_do_not_leak(estimator):
    """Held-out queries are not learned from: random judgements give no gain."""
    if refuses(estimator) or getattr(estimator, "holdout", None) is None:
        return
    Q, y = make_judgements(estimator, np.random.default_rng(0))
    for kind in ("queries", "documents"):
        fitted = fit(estimator, Q, y, {"holdout": kind})
        gain, error = fitted.holdout_gain_, fitted.holdout_error_
        require(
            gain <= N_ERRORS * error,
            f"random judgements give a gain of {gain:.3f}, with error {error:.3f}.",
        )


@rule
def check_wrong_judgements_are_refused(estimator):
    """Judgements that do not match the queries raise, and change nothing."""
    if refuses(estimator):
        return
    Q, y = make_judgements(estimator)
    nothing = Judgements(0 * y.relevance, y.documents)
    wrong = {
        "of other queries": (Q[:-1], y, "same number of queries"),
        "of narrower documents": (Q, y.with_documents(y.documents[:, :5]), "features"),
    }
    if getattr(estimator, "holdout", None) is not None:
        wrong["without a relevant document"] = (Q, nothing, "no triplet")
    for name, (queries, judgements, message) in wrong.items():
        model = clone(estimator)
        with raises(ValueError, f"fit with judgements {name}", match=message):
            model.fit(queries, judgements)
        with raises(NotFittedError, f"transform after judgements {name}"):
            model.transform(Q)
