"""Sparse similarity matrix over a large vocabulary, learned from hard triplets."""

import math
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from itertools import count
from numbers import Integral, Real
from typing import Any, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from scipy import sparse
from sklearn.callback import with_callbacks
from sklearn.exceptions import ConvergenceWarning

from sklearn_simlearn._core.counts import NonNegativeMixin
from sklearn_simlearn._core.dask import is_partitioned
from sklearn_simlearn._core.dask_batches import partial_fit_partitions
from sklearn_simlearn._core.encoders import Encoder
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import Relevance, check_relevance
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import Interval, StrOptions, fit_context
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.threads import count_threads, one_blas_thread
from sklearn_simlearn._core.typing import Matrix, MatrixLike, RandomState
from sklearn_simlearn._core.warn import warn_user
from sklearn_simlearn._holdout import START, choose, forget_holdout
from sklearn_simlearn._validation import HOLDOUT_OR_NUMBER, Validation
from sklearn_simlearn.base import SimilarityLearner, callback_steps, replacing_state
from sklearn_simlearn.mahalanobis._encoders import (
    Matches,
    MatrixCosine,
    MixedCosine,
    frequencies,
    interpolate,
)
from sklearn_simlearn.mahalanobis._neighbors import check_words, find_neighbors
from sklearn_simlearn.mahalanobis._problem import (
    Pairs,
    Problem,
    Triplets,
    descend,
    draw_queries,
)
from sklearn_simlearn.mahalanobis._start import check_init, find_start
from sklearn_simlearn.mahalanobis._stream import Stream

# Problem of some samples, its triplets, the margin, and the power of the samples.
Posed: TypeAlias = tuple[Problem, Triplets, float, float]

# The hold-out measures M after 1, 2, 4 ... iterations, up to this number.
FOLD_MAX_ITER = 24

# Number of queries per object in a fold of the hold-out, as a share of
# `queries_per_object`.
FOLD_QUERIES = 0.375

# Shares of the start that the hold-out tries.
SHARES = (0.0, 0.25, 0.5, 0.75, 0.9)


class Candidate(NamedTuple):
    """Number of iterations, and the share of the start that is mixed in."""

    n_iter: int
    share: float


class SparseMahalanobisLearner(NonNegativeMixin, PaperFormMixin, SimilarityLearner):
    r"""Similarity of word histograms with a sparse matrix over the vocabulary.

    The cosine of tf-idf vectors compares each word only with itself. This learner [1]_
    also lets similar words match, through a symmetric, non-negative matrix :math:`M`:

    .. math::

        s(q, d) = \frac{q^\top M d}{\sqrt{q^\top M q} \sqrt{d^\top M d}} .

    Each word may match itself and its nearest words; all other entries of :math:`M` are
    zero. The initial :math:`M`, the start, is a diagonal matrix of word weights. The
    entries are learned from triplets that the start ranks in the wrong order. A
    hold-out decides how far to move away from the start. `from_paper` returns the form
    of the paper. The maths is in the :ref:`User Guide <mahalanobis>`.

    Parameters
    ----------
    n_neighbors : int, default=2
        Number of nearest words that each word may match, in addition to itself.

    words : array-like of shape (n_features, n_dims) or sparse matrix, default=None
        Source of the nearest words. An array holds the vectors of the words, such as
        the centres of a visual vocabulary; an exact search finds the nearest ones. A
        sparse graph of shape (n_features, n_features) holds an entry for each neighbour
        of a word. None takes the words that occur in the same training samples, by the
        cosine of the columns of `X`. For more than about 100,000 vectors, pass a graph
        from an approximate search.

    init : {"auto", "tfidf", "identity"}, array-like or sparse matrix, default="auto"
        Initial :math:`M`. "tfidf" is the diagonal of squared inverse document
        frequencies, as in [1]_. "identity" is the plain cosine. An array is a
        symmetric, non-negative matrix of shape (n_features, n_features); its non-zero
        entries are learned, too. If `X` holds counts, "auto" is the cosine of tf-idf to
        the power 3/4: the counts and the weights are raised to this power, in `fit` and
        in searches. For other data, or if all words occur in all samples, "auto" is
        "identity". If all words occur in all samples, so is "tfidf".

    holdout : str, int or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of samples that are held out to decide how far to move away from the start.
        Hold out whole objects ("objects") if future queries are of objects that are not
        in `y`, or "samples" if they are of the objects in `y`. An int holds out this
        number of samples of each object. They query the other samples after each
        iteration, and the best matrix is kept, as in [1]_, which holds out 4. None
        holds out nothing.

    margin : float or "auto", default="auto"
        Margin by which the squared similarity of relevant samples should exceed that of
        other samples. "auto" is the mean squared similarity of relevant samples at the
        start. For large vocabularies, squared similarities are of the order of 0.01.

    alpha : float, default=0.1
        Strength of the penalty that keeps :math:`M` close to the start. [1]_ has no
        such penalty.

    queries_per_object : int, default=80
        Number of samples of each object, drawn at random, that query the others.

    n_random_triplets : int, default=10_000
        Number of triplets drawn at random, in addition to the hard triplets.

    max_iter : int, default=200
        Largest number of iterations. If `holdout` is a string, the limit is 24.

    tol : float, default=1e-4
        Stop when an iteration reduces the objective, which is about 1 at the start, by
        at most this value.

    n_jobs : int, default=None
        Number of threads in `fit` and `similarity`. It does not change the result.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out, which samples query, and which triplets are
        drawn. An int makes `fit` exactly repeatable.

    Attributes
    ----------
    M_ : csr_array of shape (n_features, n_features)
        The learned matrix, of the dtype of `X`. Its scale has no effect.

    support_ : csr_array of shape (n_features, n_features), dtype bool
        Mask of the entries of :math:`M` that were learned.

    power_ : float
        Power to which samples are raised before they are compared: 0.75 for counts with
        ``init="auto"``, else 1.

    margin_ : float
        The margin that was used.

    n_hard_triplets_ : int
        Number of triplets that were ranked in the wrong order when they were collected.

    objective_ : float
        Value of the objective at `M_`; after `partial_fit`, the mean over the batches.

    share_ : float
        Share of the start in `M_`, chosen by the hold-out. If it is 1, the start is
        kept.

    n_iter_ : int
        Number of iterations that led to `M_`. It is 1 if the start is kept, since
        scikit-learn requires at least one.

    See Also
    --------
    sklearn_simlearn.similarities.CosineSimilarity : The start of this learner.
    OASIS : Learns a full matrix, for small vocabularies.

    Notes
    -----
    Each evaluation of the objective and its gradient reads, twice, the postings of the
    words of each query and of the words that may match them. If at least a tenth of the
    entries of `X` are non-zero, dense matrices are multiplied instead. `fit` stores
    five copies of `X`, a dense copy for dense products, up to four bytes for each pair
    of a query and an item, and 16 gradients of `M_`.

    The similarity is the square root of that in [1]_. This makes it an inner product
    and does not change the rankings. The length of a histogram has no effect.

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
    SparseMahalanobisLearner(holdout='samples', random_state=0)  # share of the start...
    >>> learner.score(X_test, y_test) > 1.05 * tfidf.score(X_test, y_test)
    True
    """

    _parameter_constraints: dict[str, Any] = {
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "words": ["array-like", "sparse matrix", None],
        "init": [
            StrOptions({"auto", "tfidf", "identity"}),
            "array-like",
            "sparse matrix",
        ],
        "holdout": HOLDOUT_OR_NUMBER,
        "margin": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "queries_per_object": [Interval(Integral, 1, None, closed="left")],
        "n_random_triplets": [Interval(Integral, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    _paper_parameters = {
        "n_neighbors": 2,
        "init": "tfidf",
        "holdout": 4,
        "alpha": 0.0,
        "queries_per_object": 80,
    }

    def __init__(
        self,
        n_neighbors: int = 2,
        *,
        words: MatrixLike | None = None,
        init: Literal["auto", "tfidf", "identity"] | MatrixLike = "auto",
        holdout: str | int | None = "auto",
        margin: float | Literal["auto"] = "auto",
        alpha: float = 0.1,
        queries_per_object: int = 80,
        n_random_triplets: int = 10_000,
        max_iter: int = 200,
        tol: float = 1e-4,
        n_jobs: int | None = None,
        random_state: RandomState = None,
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

    def _unused_parameters(self) -> dict[str, str]:
        is_graph = sparse.issparse(self.words)
        return {"n_neighbors": "a graph of words"} if is_graph else {}

    def _check_support(self, X: Matrix) -> dict[str, Any]:
        """Return `init` and `words`, checked."""
        n_words = X.shape[1]
        words = check_words(self.words if self.n_neighbors else None, n_words)
        return {"init": check_init(self.init, n_words), "words": words}

    def _learn(
        self, X: Matrix, relevance: Relevance, advance: Callable[..., bool]
    ) -> dict[str, Any]:
        support = self._check_support(X)
        rng = make_generator(self.random_state)

        # From here on, the inputs are valid. Kernels do not check them.
        X = canonical_csr(X)
        pose: Callable[..., Posed] = partial(self._pose, **support, advance=advance)
        candidate: Any = Candidate(self.max_iter, 0.0)
        attributes: dict[str, Any] = {}
        validation = None
        # On more threads, BLAS would sum in another order.
        with one_blas_thread():
            if isinstance(self.holdout, str):
                path = partial(self._path, X, relevance, pose)
                candidate, attributes = choose(
                    path, X, relevance, self.holdout, rng, advance
                )
            elif self.holdout is not None:
                validation = Validation(X, relevance, self.holdout, rng)
                X, relevance = X[validation.train], relevance.take(validation.train)
            if candidate is START:
                candidate = Candidate(0, 1.0)
            posed = pose(X, relevance, self.queries_per_object, rng)
            return attributes | self._solve(posed, candidate, validation, advance)

    def _solve(
        self,
        posed: Posed,
        candidate: Candidate,
        validation: Validation | None,
        advance: Callable[..., bool],
    ) -> dict[str, Any]:
        """Return the fitted attributes of a candidate.

        A `validation` measures the matrix after each iteration; the best one is used.
        """
        problem, triplets, margin, power = posed
        start, share = problem.pairs.start, candidate.share
        iterations = count(1)

        def validate(m: np.ndarray, n_iter: int) -> None:
            if validation is None:
                return
            encoder = _describe(problem, m, power)["encoder_"]
            candidate = Candidate(n_iter, 0.0) if n_iter else START
            validation.record(candidate, encoder, lambda: (m, n_iter))

        def report(learned: np.ndarray) -> bool:
            m = interpolate(learned, start, share)
            validate(m, next(iterations))
            return advance("iteration", partial(_describe, problem, m, power))

        validate(start, 0)
        steps = descend(problem, triplets, margin, candidate.n_iter, self.tol, report)
        last = steps[-1]
        m, n_iter = interpolate(last.m, start, share), last.n_iter
        attributes: dict[str, Any] = {}
        if validation is not None:
            m, n_iter = validation.best
            share, attributes = float(n_iter == 0), validation.attributes()
        objective, _, _ = problem.evaluate(m, triplets, margin)
        if self.holdout is None and not last.has_ended:
            warn_user(
                f"The objective still falls by more than tol={self.tol} after max_iter="
                f"{self.max_iter} iterations. Increase either, or set a holdout to "
                "choose the number of iterations.",
                ConvergenceWarning,
            )
        return {
            **attributes,
            **_describe(problem, m, power),
            "margin_": margin,
            "n_hard_triplets_": triplets.n_hard,
            "objective_": objective,
            "share_": share,
            "n_iter_": max(n_iter, 1),
        }

    def _path(
        self,
        X: sparse.csr_array,
        relevance: Relevance,
        pose: Callable[..., Posed],
        train: np.ndarray,
        rng: np.random.Generator,
    ) -> Iterator[tuple[Any, Encoder]]:
        """Yield the candidates, each with the encoder that it learns from some rows."""
        rest = relevance.take(train)
        if not rest.find_queries().any():
            return
        n_queries = math.ceil(FOLD_QUERIES * self.queries_per_object)
        problem, triplets, margin, power = pose(X[train], rest, n_queries, rng)
        pairs = problem.pairs
        start = Matches(pairs.matrix(pairs.start), power)
        yield START, MatrixCosine(start)
        max_iter = min(self.max_iter, FOLD_MAX_ITER)
        for step in descend(problem, triplets, margin, max_iter, self.tol):
            learned = Matches(pairs.matrix(step.m), power)
            for share in SHARES:
                mixed = MixedCosine(learned, start, share)
                yield Candidate(step.limit, share), mixed

    def _pose(
        self,
        X: sparse.csr_array,
        relevance: Relevance,
        n_queries: int,
        rng: np.random.Generator,
        *,
        init: str | sparse.csr_array,
        words: Matrix | None,
        advance: Callable[[str], bool],
    ) -> Posed:
        """Return the problem of some samples."""
        items = relevance.items_of(X)
        start, power = find_start(items, init)
        X = frequencies(X, power)
        n_threads = count_threads(self.n_jobs)
        neighbors = find_neighbors(X, words, self.n_neighbors, n_threads, advance)
        pairs = Pairs(start, neighbors)
        problem = Problem(X, relevance, pairs, alpha=self.alpha, n_threads=n_threads)
        queries, weight = draw_queries(relevance, n_queries, rng)
        triplets, mean_relevant = problem.mine(
            pairs.start, queries, weight, self.n_random_triplets, rng
        )
        margin = mean_relevant or 1.0 if self.margin == "auto" else float(self.margin)
        return problem, triplets, margin, power

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(self, X: MatrixLike, y: TargetLike) -> Self:
        """Continue learning from a batch of samples, by stochastic gradient steps.

        The first call determines the support of the matrix, its start and, with
        ``margin="auto"``, the margin. After a `fit`, the values of the fit are used.
        Nothing is held out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Histograms of counts or of other non-negative numbers; or a Dask collection,
            whose partitions are shuffled into batches. The cluster learns from one
            batch after the other.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels or relevance, as in `fit`. Triplets are formed within the batch.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self, afresh=False):
            if is_partitioned(X):
                self.__dict__.update(partial_fit_partitions(self, X, y))
                return self
            rows = self._check_rows(X, reset=not hasattr(self, "M_"))
            relevance = check_relevance(y, n_samples=rows.shape[0])
            relevance.require_triplets()
            with callback_steps(self, X, y) as advance:
                self.__dict__.update(self._go_on(rows, relevance, advance))
                forget_holdout(self)
        return self

    def _go_on(
        self, X: Matrix, relevance: Relevance, advance: Callable[[str], bool]
    ) -> dict[str, Any]:
        """Return the fitted attributes after one more batch."""
        support, n_queries = self._check_support(X), self.queries_per_object
        X = canonical_csr(X)
        with one_blas_thread():
            if not hasattr(self, "M_"):
                rng = make_generator(self.random_state)
                problem, _, margin, power = self._pose(
                    X, relevance, n_queries, rng, **support, advance=advance
                )
                stream = Stream(problem.pairs, rng)
            else:
                power = self.power_
                margin = self.margin_ if self.margin == "auto" else float(self.margin)
                if hasattr(self, "_stream"):
                    stream = deepcopy(self._stream)
                else:
                    pairs = Pairs(self.M_.astype(np.float64), self.support_)
                    stream = Stream(pairs, make_generator(self.random_state))
                problem = Problem(
                    frequencies(X, power),
                    relevance,
                    stream.pairs,
                    alpha=self.alpha,
                    n_threads=count_threads(self.n_jobs),
                )
            objective, n_hard = stream.sweep(
                problem, margin, n_queries, self.n_random_triplets
            )
        return {
            **_describe(problem, stream.m, power),
            "margin_": margin,
            "n_hard_triplets_": n_hard,
            "objective_": objective,
            "share_": 0.0,
            "n_iter_": stream.n_sweeps,
            "_stream": stream,
        }


def _describe(problem: Problem, m: np.ndarray, power: float) -> dict[str, Any]:
    """Return the attributes of a model with the unknowns m."""
    pairs = problem.pairs
    M = (pairs.unit * pairs.matrix(m)).astype(problem.X.dtype)
    return {
        "encoder_": MatrixCosine(Matches(M, power)),
        "M_": M,
        "support_": pairs.support(),
        "power_": power,
    }
