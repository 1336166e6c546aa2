"""Sparse similarity matrix over a large vocabulary, learned from hard triplets."""

from copy import deepcopy
from functools import partial
from numbers import Integral, Real
from typing import NamedTuple, Self

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import check_array, gen_batches
from sklearn.utils.validation import check_non_negative

from sklearn_simlearn._core.dask import is_partitioned
from sklearn_simlearn._core.dask_batches import partial_fit_partitions
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.rows import (
    canonical_csr,
    inverse_document_frequency,
)
from sklearn_simlearn._core.sklearn import Interval, StrOptions, fit_context
from sklearn_simlearn._core.start import POWER, Start
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import MatrixLike
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._holdout import HOLDOUT, START, choose
from sklearn_simlearn.base import SimilarityLearner, callback_steps, replacing_state
from sklearn_simlearn.mahalanobis._encoders import Matches, MatrixCosine, MixedCosine
from sklearn_simlearn.mahalanobis._problem import (
    Pairs,
    Problem,
    descend,
    draw_queries,
    find_neighbors,
    frequencies,
)

# The hold-out looks at M after 1, 2, 4 ... iterations, no more than these.
MAX_PATH = 32

# Shares of the start that it looks at.
SHRINKAGES = (0.0, 0.25, 0.5, 0.75, 0.9)

# Steps of `partial_fit`: queries that one looks at, and its length.
BATCH_SIZE = 32
LEARNING_RATE = 0.3

# What a hold-out leaves behind, which `partial_fit` has none of.
HOLDOUT_ATTRIBUTES = ("holdout_gain_", "holdout_error_", "holdout_results_")


class Candidate(NamedTuple):
    """How far to go: iterations, and the share of the start that is mixed in."""

    n_iter: int
    shrinkage: float


class SparseMahalanobisLearner(SimilarityLearner):
    r"""Similarity of word histograms with a sparse matrix over the vocabulary.

    The cosine of tf-idf vectors compares each word with itself only. This learner [1]_
    also lets similar words match, by a symmetric, non-negative matrix :math:`M`:

    .. math::

        s(q, d) = \frac{q^\top M d}{\sqrt{q^\top M q} \sqrt{d^\top M d}} .

    Non-zero are the diagonal of :math:`M` and its entries at the nearest words of each
    word. They start as weights of the words and are learned from the triplets which
    those rank the wrong way round. A hold-out decides how far to go. The maths is in
    the :ref:`User Guide <mahalanobis>`.

    Parameters
    ----------
    n_neighbors : int, default=2
        Number of nearest words that each word may match, besides itself.

    words : array-like of shape (n_features, n_dims) or sparse matrix, default=None
        Where the nearest words come from: vectors of the words, such as the centres of
        a visual vocabulary, which are searched exactly; or a sparse graph of shape
        (n_features, n_features), whose stored entries are the neighbours, all of them;
        or None for the words that occur in the same training samples, by the cosine of
        their columns. For more than some 100,000 vectors, pass a graph made by an
        approximate search.

    init : {"auto", "tfidf", "identity"}, array-like or sparse matrix, default="auto"
        Where :math:`M` starts. "tfidf" is the diagonal of squared inverse document
        frequencies, as in [1]_; "identity" is the plain cosine; or a symmetric,
        non-negative matrix of shape (n_features, n_features), whose non-zero entries
        are learned too. "auto" is the cosine of tf-idf to the power 3/4 if `X` holds
        counts: they are raised to this power here and in all that follows, and so are
        the weights. For other data it is "identity". Where all words are in all
        samples, "auto" and "tfidf" are "identity".

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        What is held out to decide how far to go from the start: whole objects, for
        queries of objects that were never seen; or samples, for queries of the same
        objects; or nothing, to learn all the way as in the plain form of [1]_.

    margin : float or "auto", default="auto"
        By how much the squared similarity of relevant samples is to exceed that of
        others. "auto" takes the mean that relevant ones have at the start, since the
        squares are of the order of 0.01 for large vocabularies.

    alpha : float, default=0.1
        Pull of :math:`M` towards its start.

    queries_per_object : int, default=80
        Number of samples of each object, drawn at random, that query the others.

    n_random_triplets : int, default=10_000
        Number of triplets drawn at random besides the hard ones.

    max_iter : int, default=200
        Largest number of iterations. With a hold-out, no more than 32 are made.

    tol : float, default=1e-4
        Stop when an iteration lowers the objective by no more than this. It starts
        near 1.

    n_jobs : int, default=None
        Threads over the queries, in `fit` and in `similarity`. The result does not
        depend on it.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out and which query, and which triplets are
        drawn. An int makes `fit` repeatable, to the bit.

    Attributes
    ----------
    M_ : csr_array of shape (n_features, n_features)
        The learned matrix, of the dtype of `X`. Its scale has no effect.

    support_ : csr_array of shape (n_features, n_features), dtype bool
        Entries of :math:`M` that were learned.

    power_ : float
        What samples are raised to before they are compared: 0.75 for counts with
        ``init="auto"``, else 1.

    margin_ : float
        The margin.

    n_hard_triplets_ : int
        Number of triplets that were the wrong way round when they were mined.

    objective_ : float
        Value of the objective at `M_`; after `partial_fit` the mean over its batches.

    shrinkage_ : float
        Share of the start in `M_`, which the hold-out has chosen. If it is 1, nothing
        that was learned did the hold-out any good.

    n_iter_ : int
        Number of iterations that led to `M_`. It is 1 if the start was kept, since
        scikit-learn asks for at least one.

    See Also
    --------
    sklearn_simlearn.similarities.CosineSimilarity : Where this learner starts from.
    OASIS : A full matrix, for small vocabularies.

    Notes
    -----
    An evaluation of the objective and its gradient walks the postings of the words of
    each query, and of those linked to them, twice. Memory is five copies of `X`, up to
    four bytes for each pair of a query and an item, and a gradient of `M_` for each of
    16 shares of the queries.

    The similarity is the square root of the one in [1]_, so that it is an inner
    product; rankings are the same. It does not change with the length of a histogram.

    References
    ----------
    .. [1] Z. Yan and Y. Yu. "Sparse similarity matrix learning for visual object
       retrieval". International Joint Conference on Neural Networks, 2013.

    Examples
    --------
    >>> from sklearn_simlearn import SparseMahalanobisLearner
    >>> from sklearn_simlearn.datasets import load_digit_words
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digit_words(return_X_y=True)
    >>> X_test, y_test = X[900:], y[900:]
    >>> tfidf = CosineSimilarity().fit(X[:300])
    >>> learner = SparseMahalanobisLearner(holdout="samples", random_state=0)
    >>> learner.fit(X[:300], y[:300])
    SparseMahalanobisLearner(holdout='samples', random_state=0)
    >>> learner.score(X_test, y_test) > 1.05 * tfidf.score(X_test, y_test)
    True
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "words": ["array-like", "sparse matrix", None],
        "init": [
            StrOptions({"auto", "tfidf", "identity"}),
            "array-like",
            "sparse matrix",
        ],
        "holdout": HOLDOUT,
        "margin": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "queries_per_object": [Interval(Integral, 1, None, closed="left")],
        "n_random_triplets": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_neighbors=2,
        *,
        words=None,
        init="auto",
        holdout="auto",
        margin="auto",
        alpha=0.1,
        queries_per_object=80,
        n_random_triplets=10_000,
        max_iter=200,
        tol=1e-4,
        n_jobs=None,
        random_state=None,
    ):
        self.n_neighbors = n_neighbors
        self.words = words
        self.init = init
        self.holdout = holdout
        self.margin = margin
        self.alpha = alpha
        self.queries_per_object = queries_per_object
        self.n_random_triplets = n_random_triplets
        self.max_iter = max_iter
        self.tol = tol
        self.n_jobs = n_jobs
        self.random_state = random_state

    # -- learning --

    def _learn(self, X, relevance, advance):
        init, words = self._check_init(X), self._check_words(X)
        rng = make_generator(self.random_state)

        # From here on the inputs are sound: kernels check nothing.
        X = canonical_csr(X)
        pose = partial(self._pose, init=init, words=words, advance=advance)
        candidate, attributes = Candidate(self.max_iter, 0.0), {}
        # On more threads BLAS would add up in another order.
        with one_blas_thread():
            if self.holdout is not None:
                path = partial(self._path, X, relevance, pose)
                candidate, attributes = choose(
                    path, X, relevance, self.holdout, rng, advance
                )
            if candidate is START:
                candidate = Candidate(0, 1.0)
            problem, triplets, margin, power = pose(X, relevance, rng)
            start = problem.pairs.start

            def report(learned):
                m = _mix(learned, start, candidate.shrinkage)
                describe = partial(_describe, problem, m, power)
                return advance("iteration", describe=describe)

            learned, n_iter, has_ended = start, 0, True
            rounds = _rounds(candidate.n_iter)
            for step in descend(problem, triplets, margin, rounds, self.tol, report):
                learned, n_iter, has_ended = step
            m = _mix(learned, start, candidate.shrinkage)
            objective, _, _ = problem.evaluate(m, triplets, margin)

        if self.holdout is None and not has_ended:
            warn_user(
                f"The objective still falls after max_iter={self.max_iter} iterations, "
                f"by more than tol={self.tol}. Raise either, or hold out something to "
                "decide how far to go.",
                ConvergenceWarning,
            )
        return {
            **attributes,
            **_describe(problem, m, power),
            "margin_": margin,
            "n_hard_triplets_": triplets.n_hard,
            "objective_": objective,
            "shrinkage_": candidate.shrinkage,
            "n_iter_": max(n_iter, 1),
        }

    def _path(self, X, relevance, pose, train, rng):
        """Yield candidates ever farther from the start, learned from some rows."""
        rest = relevance.take(train)
        if not rest.find_queries().any():
            return
        problem, triplets, margin, power = pose(X[train], rest, rng)
        pairs = problem.pairs
        start = Matches(pairs.matrix(pairs.start), power)
        yield START, MatrixCosine(start)
        rounds = _rounds(min(self.max_iter, MAX_PATH))
        steps = descend(problem, triplets, margin, rounds, self.tol)
        for n_iter, (m, _, _) in zip(rounds, steps, strict=True):
            learned = Matches(pairs.matrix(m), power)
            for shrinkage in SHRINKAGES:
                mixed = MixedCosine(learned, start, shrinkage)
                yield Candidate(n_iter, shrinkage), mixed

    def _pose(self, X, relevance, rng, *, init, words, advance):
        """The problem of some samples, its triplets and margin; the power of X."""
        start, power = self._find_start(relevance.items_of(X), init)
        X = frequencies(X, power)
        n_threads = effective_n_jobs(self.n_jobs)
        neighbors = find_neighbors(X, words, self.n_neighbors, n_threads, advance)
        pairs = Pairs(start, neighbors)
        problem = Problem(X, relevance, pairs, alpha=self.alpha, n_threads=n_threads)
        queries, weight = draw_queries(relevance, self.queries_per_object, rng)
        triplets, mean_relevant = problem.mine(
            pairs.start, queries, weight, self.n_random_triplets, rng
        )
        margin = mean_relevant or 1.0 if self.margin == "auto" else float(self.margin)
        return problem, triplets, margin, power

    def _find_start(self, X, init):
        """Where M starts, and what X is raised to."""
        if init is not None:
            return init, 1.0
        power, diagonal = 1.0, None
        if self.init == "auto":
            idf = Start.fit(X).idf
            if idf is not None:
                power, diagonal = POWER, idf ** (2 * POWER)
        elif self.init == "tfidf":
            diagonal = inverse_document_frequency(X) ** 2
        if diagonal is None or not diagonal.any():
            diagonal = np.ones(X.shape[1])
        return sparse.diags_array(diagonal, format="csr"), power

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: MatrixLike) -> Self:
        """Go on learning from a batch of samples, by stochastic gradient steps.

        The first call decides the support of the matrix and its start, and with
        ``margin="auto"`` the margin; after a `fit` they are those of the fitted one.
        Nothing is held out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Histograms: counts or frequencies, none negative; or a Dask collection of
            them, whose partitions are shuffled into batches that are learned from one
            after the other, on the cluster.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Their labels or relevance, as in `fit`. Triplets are formed within the
            batch.

        Returns
        -------
        self : object
            The estimator itself.
        """
        is_first = not hasattr(self, "M_")
        with replacing_state(self, afresh=False):
            if is_partitioned(X):
                self.__dict__.update(partial_fit_partitions(self, X, y))
                return self
            rows = self._check_rows(X, reset=is_first)
            relevance = check_relevance(y, n_samples=rows.shape[0])
            relevance.require_triplets()
            with callback_steps(self, X, y) as advance:
                self.__dict__.update(self._go_on(rows, relevance, is_first, advance))
                for name in HOLDOUT_ATTRIBUTES:
                    self.__dict__.pop(name, None)
        return self

    def _go_on(self, X, relevance, is_first, advance):
        """Fitted attributes after one more batch."""
        init, words = self._check_init(X), self._check_words(X)

        # From here on the inputs are sound: kernels check nothing.
        X = canonical_csr(X)
        with one_blas_thread():
            if is_first:
                rng = make_generator(self.random_state)
                problem, _, margin, power = self._pose(
                    X, relevance, rng, init=init, words=words, advance=advance
                )
                stream = _Stream(problem.pairs, problem.pairs.start, rng)
            else:
                margin, power = self.margin_, self.power_
                if self.margin != "auto":
                    margin = float(self.margin)
                stream = deepcopy(getattr(self, "_stream", None))
                if stream is None:
                    pairs = Pairs(self.M_.astype(np.float64), self.support_)
                    rng = make_generator(self.random_state)
                    stream = _Stream(pairs, pairs.start, rng)
                problem = Problem(
                    frequencies(X, power),
                    relevance,
                    stream.pairs,
                    alpha=self.alpha,
                    n_threads=effective_n_jobs(self.n_jobs),
                )
            objective, n_hard = self._sweep(problem, stream, margin)
        return {
            **_describe(problem, stream.m, power),
            "margin_": margin,
            "n_hard_triplets_": n_hard,
            "objective_": objective,
            "shrinkage_": 0.0,
            "n_iter_": stream.n_sweeps,
            "_stream": stream,
        }

    def _sweep(self, problem, stream, margin):
        """One epoch; returns the mean objective and the number of hard triplets."""
        queries, weight = draw_queries(
            problem.relevance, self.queries_per_object, stream.rng
        )
        order = stream.rng.permutation(len(queries))
        total, n_hard = 0.0, 0
        for batch in gen_batches(len(queries), BATCH_SIZE):
            some = np.sort(order[batch])
            share = len(some) / len(queries)
            n_random = round(share * self.n_random_triplets)
            triplets, _ = problem.mine(
                stream.m, queries[some], weight[some], n_random, stream.rng
            )
            value, slope, _ = problem.evaluate(stream.m, triplets, margin)
            total += share * value
            n_hard += triplets.n_hard
            # (mahalanobis-sgd)
            stream.squares += slope @ slope
            if stream.squares > 0:
                length = LEARNING_RATE * np.sqrt(problem.n_words / stream.squares)
                stream.m = np.maximum(stream.m - length * slope, 0)
        stream.n_sweeps += 1
        return total, n_hard

    # -- checks --

    def _check_rows(self, X, *, reset=False):
        X = super()._check_rows(X, reset=reset)
        check_non_negative(X, type(self).__name__)
        return X

    def _check_init(self, X):
        """`init` as CSR of float64, or None if it is a name."""
        if isinstance(self.init, str):
            return None
        n_words = X.shape[1]
        start = check_array(
            self.init, accept_sparse="csr", dtype=np.float64, input_name="init"
        )
        start = canonical_csr(start)
        if start.shape != (n_words, n_words):
            raise ValueError(
                f"init must have shape ({n_words}, {n_words}), as X has {n_words} "
                f"features; got {start.shape}."
            )
        check_non_negative(start, "init")
        if start.nnz == 0 or abs(start - start.T).max() > 1e-9 * start.max():
            raise ValueError("init must be a symmetric matrix with positive entries.")
        return start

    def _check_words(self, X):
        """`words`, a graph as CSR or vectors as an array, or None."""
        if self.words is None or self.n_neighbors == 0:
            return None
        n_words = X.shape[1]
        words = check_array(
            self.words,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            input_name="words",
        )
        if words.shape[0] != n_words or (
            sparse.issparse(words) and words.shape[1] != n_words
        ):
            raise ValueError(
                f"words must have a row for each of the {n_words} features of X, and "
                f"a column too if it is a sparse graph; got shape {words.shape}."
            )
        return words

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


class _Stream:
    """Where the steps of `partial_fit` have got to."""

    def __init__(self, pairs, m, rng):
        self.pairs = pairs
        self.m = m
        self.rng = rng
        self.squares = 0.0  # of all gradients so far
        self.n_sweeps = 0


def _rounds(n_iter):
    """1, 2, 4 ... and last n_iter; nothing if that is 0."""
    n_iter = int(n_iter)
    return sorted({min(2**k, n_iter) for k in range(n_iter.bit_length() + 1)} - {0})


def _mix(learned, start, shrinkage):
    return (1 - shrinkage) * learned + shrinkage * start


def _describe(problem, m, power):
    """Return the attributes of a model with the matrix of m."""
    pairs = problem.pairs
    M = (pairs.unit * pairs.matrix(m)).astype(problem.X.dtype)
    return {
        "encoder_": MatrixCosine(Matches(M, power)),
        "M_": M,
        "support_": pairs.support(),
        "power_": power,
    }
