"""Sparse similarity matrix over a large vocabulary, learned from hard triplets."""

import warnings
from copy import copy, deepcopy
from functools import partial
from itertools import pairwise
from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from scipy.optimize import Bounds, minimize
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors import NearestNeighbors
from sklearn.preprocessing import normalize
from sklearn.utils import check_array, gen_batches
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.parallel import _get_threadpool_controller
from sklearn.utils.validation import check_non_negative, validate_data

from sklearn_simlearn._mahalanobis_fast import (
    collect,
    differentiate,
    find_common,
    score_queries,
    score_selves,
)
from sklearn_simlearn._random import make_generator
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn.base import (
    SimilarityMixin,
    all_or_nothing,
    open_context,
    row_dots,
    scale_rows,
)
from sklearn_simlearn.metrics import average_precision
from sklearn_simlearn.similarities import inverse_document_frequency

# Shares of the queries whose gradients are summed up apart, whatever `n_jobs`.
N_PARTS = 16

# Queries a kernel visits at a time, few enough to let Ctrl-C through.
BLOCK = 1024

# Vocabularies up to this size get exact neighbours even where FAISS is installed.
MAX_EXACT = 50_000

# What SciPy's L-BFGS-B says when it has made all its iterations.
MAX_ITER_REACHED = 1

# Root mean square of the first change of the diagonal, as a share of its start.
FIRST_STEP = 0.3


class SparseMahalanobisLearner(SimilarityMixin, CallbackSupportMixin, BaseEstimator):
    r"""Similarity of word histograms with a sparse matrix over the vocabulary.

    The cosine of tf-idf vectors compares each word with itself only. This learner [1]_
    also lets similar words match, by a symmetric, non-negative matrix :math:`M`:

    .. math::

        s(q, d) = \frac{q^\top M d}{\sqrt{q^\top M q} \sqrt{d^\top M d}} .

    Non-zero are the diagonal of :math:`M` and its entries at the nearest words of each
    word. They start as tf-idf weights and are learned from the triplets which those
    rank the wrong way round. A hold-out decides when to stop. The maths is in the
    :ref:`User Guide <mahalanobis>`.

    Parameters
    ----------
    n_neighbors : int, default=2
        Number of nearest words that each word may match, beside itself.

    words : array-like of shape (n_features, n_dims) or sparse matrix, default=None
        Where the nearest words come from: vectors of the words, such as the centres of
        a visual vocabulary; or a sparse graph of shape (n_features, n_features), whose
        stored entries are the neighbours, all of them; or None for the words that occur
        in the same training samples, by the cosine of their columns.

    init : {"tfidf", "identity"}, array-like or sparse matrix, default="tfidf"
        Where :math:`M` starts: the diagonal of squared inverse document frequencies;
        the identity; or a symmetric, non-negative matrix of shape (n_features,
        n_features), whose non-zero entries are learned too. Where all words are in all
        samples, "tfidf" is the identity.

    margin : float or "auto", default="auto"
        By how much the squared similarity of relevant samples is to exceed that of
        others. "auto" takes the mean that relevant ones have at the start, since the
        squares are of the order of 0.01 for large vocabularies.

    alpha : float, default=0.1
        Pull of :math:`M` towards its start.

    solver : {"lbfgs", "sgd"}, default="lbfgs"
        Quasi-Newton steps on all queries, by SciPy's L-BFGS-B; or projected gradient
        steps on batches of queries, each with triplets mined on the spot, for more
        queries than that.

    queries_per_object : int, default=80
        Number of samples of each object, drawn at random, that query the others.

    max_hard_triplets : int, default=None
        Use a random subset of that many hard triplets. None uses all of them, and is
        no slower: the cost is by pairs of a query and an item, not by triplets.

    n_random_triplets : int, default=10_000
        Number of triplets drawn at random beside the hard ones.

    refresh_triplets : int, default=None
        Mine triplets anew every so many iterations. None keeps those of the start.

    active_interval : int, default=10
        Queries without a violated triplet are left out until the next of these
        iterations. At the end all of them are looked at again.

    holdout : {"auto", "samples", "objects"} or None, default="auto"
        What is held out to decide which iteration was best, the start included: some
        samples of each object, which then query the others, to serve objects known
        from training; or whole objects, to serve new ones; or nothing. "auto" holds out
        samples if half of the objects have ``2 * holdout_per_object + 2`` of them; else
        objects, if there are 10; else one sample of each object that has 3.

    holdout_per_object : int, default=4
        Number of samples held out of each object that has at least two more.

    holdout_fraction : float, default=0.2
        Share of the objects held out.

    n_iter_no_change : int, default=10
        Stop when the score of the hold-out has no new best for so many iterations.

    max_iter : int, default=200
        Largest number of iterations; epochs for ``solver="sgd"``.

    tol : float, default=1e-4
        Stop when an iteration lowers the objective by no more than this. It starts
        near 1.

    batch_size : int, default=32
        Number of queries a step of ``solver="sgd"`` looks at.

    learning_rate : float, default=0.3
        Size of the steps of ``solver="sgd"``.

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

    margin_ : float
        The margin.

    n_hard_triplets_ : int
        Number of triplets that were the wrong way round when they were last mined.

    objective_ : float
        Value of the objective at `M_`. With ``solver="sgd"``, the mean over the batches
        of the epoch that led to it, or of the first if it is the start.

    holdout_scores_ : ndarray of shape (n_iterations + 1,)
        Mean average precision of the hold-out, at the start and after each iteration.
        Only if something is held out.

    best_iter_ : int
        The iteration of `M_`: the best of `holdout_scores_`, or the last. If it is 0,
        nothing that was learned did the hold-out any good.

    n_iter_ : int
        Number of iterations.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn_simlearn.similarities.CosineSimilarity : Where this learner starts from.
    OASIS : A full matrix, for small vocabularies.

    Notes
    -----
    An evaluation of the objective and its gradient walks the postings of the words of
    each query, and of those beside them, twice. Memory is four copies of `X`, up to
    four bytes for each pair of a query and an item, and a gradient of `M_` for each of
    16 shares of the queries.

    The similarity is the square root of the one in [1]_, so that it is an inner
    product; rankings are the same. It does not change with the length of a histogram:
    counts and frequencies serve alike.

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
    >>> tfidf = CosineSimilarity().fit(X[:900])
    >>> round(tfidf.score(X[900:], y[900:]), 2)
    0.52
    >>> learner = SparseMahalanobisLearner(random_state=0).fit(X[:900], y[:900])
    >>> learner.score(X[900:], y[900:]) > 1.05 * tfidf.score(X[900:], y[900:])
    True
    """

    _parameter_constraints: dict = {
        "n_neighbors": [Interval(Integral, 0, None, closed="left")],
        "words": ["array-like", "sparse matrix", None],
        "init": [StrOptions({"tfidf", "identity"}), "array-like", "sparse matrix"],
        "margin": [Interval(Real, 0, None, closed="neither"), StrOptions({"auto"})],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "solver": [StrOptions({"lbfgs", "sgd"})],
        "queries_per_object": [Interval(Integral, 1, None, closed="left")],
        "max_hard_triplets": [Interval(Integral, 0, None, closed="left"), None],
        "n_random_triplets": [Interval(Integral, 0, None, closed="left")],
        "refresh_triplets": [Interval(Integral, 1, None, closed="left"), None],
        "active_interval": [Interval(Integral, 1, None, closed="left")],
        "holdout": [StrOptions({"auto", "samples", "objects"}), None],
        "holdout_per_object": [Interval(Integral, 1, None, closed="left")],
        "holdout_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "learning_rate": [Interval(Real, 0, None, closed="neither")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        n_neighbors=2,
        *,
        words=None,
        init="tfidf",
        margin="auto",
        alpha=0.1,
        solver="lbfgs",
        queries_per_object=80,
        max_hard_triplets=None,
        n_random_triplets=10_000,
        refresh_triplets=None,
        active_interval=10,
        holdout="auto",
        holdout_per_object=4,
        holdout_fraction=0.2,
        n_iter_no_change=10,
        max_iter=200,
        tol=1e-4,
        batch_size=32,
        learning_rate=0.3,
        n_jobs=None,
        random_state=None,
    ):
        self.n_neighbors = n_neighbors
        self.words = words
        self.init = init
        self.margin = margin
        self.alpha = alpha
        self.solver = solver
        self.queries_per_object = queries_per_object
        self.max_hard_triplets = max_hard_triplets
        self.n_random_triplets = n_random_triplets
        self.refresh_triplets = refresh_triplets
        self.active_interval = active_interval
        self.holdout = holdout
        self.holdout_per_object = holdout_per_object
        self.holdout_fraction = holdout_fraction
        self.n_iter_no_change = n_iter_no_change
        self.max_iter = max_iter
        self.tol = tol
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X, y):
        """Learn the matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Histograms: counts or frequencies, none negative.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive where a sample is relevant (its weight), negative where it is junk.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = self._check_samples(X, reset=True)
        relevance = check_relevance(y, n_samples=X.shape[0])
        rng = make_generator(self.random_state)
        hold_out = self._hold_out(relevance, rng)
        held_out = np.zeros(len(relevance), dtype=bool)
        if hold_out is not None:
            held_out[hold_out.queries] = True
        queries, weight = self._choose_queries(relevance, held_out, rng)
        start, neighbors = self._check_init(X), self._check_words(X)

        # From here on the inputs are sound: kernels check nothing.
        context, advance = open_context(self, X, y)
        pairs = _Pairs(start, self._find_neighbors(X, neighbors, advance))
        problem = _Problem(X, relevance, held_out, pairs, effective_n_jobs(self.n_jobs))
        track = _Track(problem, hold_out, self.n_iter_no_change)

        def report(m):
            """Record an iteration; whether to stop."""
            is_over = track.record(m)
            describe = partial(self._serve, pairs, m, X.dtype)
            return advance("iteration", describe=describe) or is_over

        learn = self._descend if self.solver == "lbfgs" else self._step
        # On more threads BLAS would add up in another order.
        with _get_threadpool_controller().limit(limits=1, user_api="blas"):
            attributes = learn(problem, queries, weight, track, report, rng)
        attributes |= self._serve(pairs, track.best, X.dtype)
        attributes["best_iter_"] = track.best_iter
        attributes["n_iter_"] = track.n_iter
        vars(self).pop("holdout_scores_", None)  # of an earlier fit
        vars(self).pop("_stream", None)  # of batches that have ended
        if hold_out is not None:
            attributes["holdout_scores_"] = np.array(track.scores)
        vars(self).update(attributes)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def partial_fit(self, X, y):
        """Go on learning from a batch of samples, by one epoch of ``solver="sgd"``.

        The first call decides the support of the matrix and its start, and with
        ``margin="auto"`` the margin; after a `fit` they are those of the fitted one.
        Nothing is held out.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Histograms: counts or frequencies, none negative.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Their labels or relevance matrix. Triplets are formed within the batch.

        Returns
        -------
        self : object
            The estimator itself.
        """
        is_first = not hasattr(self, "M_")
        X = self._check_samples(X, reset=is_first)
        relevance = check_relevance(y, n_samples=X.shape[0])
        pairs, state, rng = getattr(self, "_stream", (None, None, None))
        state, rng = copy(state), deepcopy(rng) or make_generator(self.random_state)
        nobody = np.zeros(len(relevance), dtype=bool)
        queries, weight = self._choose_queries(relevance, nobody, rng)
        if is_first:
            start, neighbors = self._check_init(X), self._check_words(X)

        # From here on the inputs are sound: kernels check nothing.
        context, advance = open_context(self, X, y)
        if is_first:
            pairs = _Pairs(start, self._find_neighbors(X, neighbors, advance))
        elif pairs is None:
            pairs = _Pairs(self.M_.astype(np.float64), self.support_)
        state = state or _State(pairs.start)
        problem = _Problem(X, relevance, nobody, pairs, effective_n_jobs(self.n_jobs))
        if is_first or self.margin != "auto":
            margin = self._find_margin(problem, queries, weight)
        else:
            margin = self.margin_
        with _get_threadpool_controller().limit(limits=1, user_api="blas"):
            value, n_hard = self._sweep(problem, state, queries, weight, margin, rng)
        attributes = self._serve(pairs, state.m, X.dtype)
        attributes["margin_"] = margin
        attributes["objective_"] = value
        attributes["n_hard_triplets_"] = n_hard
        attributes["n_iter_"] = attributes["best_iter_"] = state.n_sweeps
        attributes["_stream"] = pairs, state, rng
        vars(self).pop("holdout_scores_", None)
        vars(self).update(attributes)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)
        return self

    # -- checks --

    def _check_samples(self, X, *, reset):
        """Frequencies as CSR, of the dtype of X."""
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_min_samples=2,
        )
        check_non_negative(X, type(self).__name__)
        X = normalize(sparse.csr_array(X), norm="l1")
        X.sum_duplicates()
        X.eliminate_zeros()
        return X

    def _validate_rows(self, X):
        X = super()._validate_rows(X)
        check_non_negative(X, type(self).__name__)
        return X

    def _hold_out(self, relevance, rng):
        """What to hold out, or None."""
        positive = relevance.positive
        sizes = np.bincount(positive.indices, minlength=positive.shape[1])
        n_wanted, mode = self.holdout_per_object, self.holdout
        objects = relevance.objects()
        candidates = np.flatnonzero(np.bincount(objects[objects >= 0]) >= 2)
        if mode == "auto":
            mode = "samples"
            if not sizes.any() or np.median(sizes[sizes > 0]) < 2 * n_wanted + 2:
                n_wanted = 1
                if len(candidates) >= 10:
                    mode = "objects"
                elif not (sizes >= 3).any():
                    mode = None
        if mode is None:
            return None
        if mode == "samples":
            row, column = _draw_per_column(positive, n_wanted, rng)
            drawn = np.unique(row[sizes[column] >= n_wanted + 2])
            # A sample of several objects may have lost all that were relevant to it.
            drawn_from = positive[drawn].astype(bool)
            n_left = sizes - np.bincount(drawn_from.indices, minlength=len(sizes))
            drawn = drawn[drawn_from @ (n_left > 0)]
            if len(drawn) == 0:
                raise ValueError(
                    f"y has no object with {n_wanted + 2} samples, so none can spare "
                    f"holdout_per_object={n_wanted}. Lower it, or hold out "
                    '"objects", or nothing.'
                )
            return _HoldOut(drawn, query_each_other=False)
        n_held_out = max(1, round(self.holdout_fraction * len(candidates)))
        if n_held_out >= len(candidates):
            raise ValueError(
                f"y has {len(candidates)} objects of two samples or more: "
                f"holdout_fraction={self.holdout_fraction} leaves none to train on."
            )
        held_out = rng.choice(candidates, n_held_out, replace=False)
        return _HoldOut(np.flatnonzero(np.isin(objects, held_out)), True)

    def _choose_queries(self, relevance, held_out, rng):
        """Up to `queries_per_object` samples of each object, and their weights."""
        rows = np.flatnonzero(~held_out)
        rest = relevance.take(rows)
        positive = rest.positive.copy()
        positive.data *= np.repeat(rest.find_queries(), np.diff(positive.indptr))
        positive.eliminate_zeros()
        if positive.nnz == 0:
            raise ValueError(
                "y must give some sample a relevant one and an irrelevant one to rank; "
                "none that is not held out has both."
            )
        row, _ = _draw_per_column(positive, self.queries_per_object, rng)
        queries = np.unique(row)
        # (mahalanobis-weight)  max N / N(object), the mean over the query's objects
        issued = positive[queries]
        n_issued = np.bincount(issued.indices, minlength=positive.shape[1])
        inverse = issued.astype(bool) @ (n_issued.max() / np.maximum(n_issued, 1))
        return rows[queries], inverse / np.diff(issued.indptr)

    def _check_init(self, X):
        """The matrix to start with, as CSR of float64."""
        n_words = X.shape[1]
        if isinstance(self.init, str):
            diagonal = np.ones(n_words)
            if self.init == "tfidf":
                diagonal = inverse_document_frequency(X) ** 2
                diagonal = diagonal if diagonal.any() else np.ones(n_words)
            return sparse.diags_array(diagonal, format="csr")
        start = check_array(
            self.init, accept_sparse="csr", dtype=np.float64, input_name="init"
        )
        start = sparse.csr_array(start)
        if start.shape != (n_words, n_words):
            raise ValueError(
                f"init must have shape ({n_words}, {n_words}), as X has {n_words} "
                f"features; got {start.shape}."
            )
        check_non_negative(start, "init")
        if start.sum() == 0 or abs(start - start.T).max() > 1e-9 * start.max():
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

    # -- learning --

    def _find_neighbors(self, X, words, advance):
        """Graph of the words that may match."""
        n_words = X.shape[1]
        n_neighbors = min(self.n_neighbors, n_words - 1)
        if n_neighbors == 0:
            return sparse.csr_array((n_words, n_words), dtype=bool)
        if sparse.issparse(words):
            row, column = words.tocoo().coords
        else:
            if words is None:
                n_threads = effective_n_jobs(self.n_jobs)
                blocks = _find_common(X, n_neighbors, n_threads)
            else:
                blocks = _find_nearest(words, n_neighbors)
            edges = []
            for block in blocks:
                edges.append(block)
                advance("neighbours")
            row, column = np.concatenate(edges, axis=1)
        ones = np.ones(len(row), dtype=bool)
        return sparse.csr_array((ones, (row, column)), shape=(n_words, n_words))

    def _find_margin(self, problem, queries, weight):
        if self.margin != "auto":
            return float(self.margin)
        return problem.mean_relevant(problem.pairs.start, queries, weight) or 1.0

    def _mine(self, problem, m, queries, weight, rng, share=1.0):
        """Triplets of some queries, which make up a share of all."""
        max_hard, n_random = self.max_hard_triplets, self.n_random_triplets
        if max_hard is not None:
            max_hard = round(share * max_hard)
        return problem.mine(m, queries, weight, max_hard, round(share * n_random), rng)

    def _evaluate(self, problem, m, triplets, margin, visited=None):
        """(mahalanobis-objective) and its gradient, with the losses of the queries."""
        value, slope, losses = problem.evaluate(m, triplets, margin, visited)
        stray = m - problem.pairs.start
        pull = self.alpha / problem.n_words
        return value + pull / 2 * stray @ stray, slope + pull * stray, losses

    def _descend(self, problem, queries, weight, track, report, rng):
        """Quasi-Newton steps; where the triplets in force change, SciPy starts anew."""
        m = problem.pairs.start
        # L-BFGS-B begins with a step of unit length: let it be one that matters.
        scale = FIRST_STEP * np.sqrt(problem.n_words)
        margin = self._find_margin(problem, queries, weight)
        triplets = self._mine(problem, m, queries, weight, rng)
        active = np.arange(len(queries))
        losses = np.ones(len(queries))
        stop = False

        def evaluate(x):
            nonlocal losses
            value, slope, losses = self._evaluate(
                problem, scale * x, triplets, margin, active
            )
            return value, scale * slope

        def refresh(m):
            """Leave out queries; whether one that was left out has a loss now."""
            nonlocal active
            if len(active) == len(queries) and losses.all():
                return False
            # Those that even twice the margin would satisfy will not be back soon.
            near = self._evaluate(problem, m, triplets, 2 * margin)[2] > 0
            back = np.setdiff1d(np.flatnonzero(near), active)
            active = np.flatnonzero(near)
            if len(back) == 0:
                return False
            return self._evaluate(problem, m, triplets, margin, back)[2].any()

        def step(intermediate_result):
            nonlocal triplets, active, changed, stop
            m = scale * intermediate_result.x
            stop = report(m)
            is_stale = (
                self.refresh_triplets and track.n_iter % self.refresh_triplets == 0
            )
            if is_stale:
                triplets = self._mine(problem, m, queries, weight, rng)
                active, changed = np.arange(len(queries)), True
            elif track.n_iter % self.active_interval == 0:
                # Such small changes SciPy can live with, for a while.
                changed |= refresh(m)
            if stop or is_stale:
                raise StopIteration

        changed = True
        while changed and not stop and track.n_iter < self.max_iter:
            changed = False
            result = minimize(
                evaluate,
                m / scale,
                jac=True,
                method="L-BFGS-B",
                bounds=Bounds(0, np.inf),
                callback=step,
                options={
                    "maxiter": self.max_iter - track.n_iter,
                    "ftol": self.tol,
                    "gtol": 0,
                },
            )
            m = scale * result.x
            changed |= refresh(m)
        if track.hold_out is None and result.status == MAX_ITER_REACHED and not stop:
            warnings.warn(
                f"The objective still falls after max_iter={self.max_iter} iterations, "
                f"by more than tol={self.tol}. Raise either, or hold out something to "
                "decide when to stop.",
                ConvergenceWarning,
                stacklevel=6,
            )
        return {
            "margin_": margin,
            "n_hard_triplets_": triplets.n_hard,
            "objective_": self._evaluate(problem, track.best, triplets, margin)[0],
        }

    def _step(self, problem, queries, weight, track, report, rng):
        """Gradient steps, an epoch after the other."""
        margin = self._find_margin(problem, queries, weight)
        state = _State(problem.pairs.start)
        values, stop = [], False
        while not stop and track.n_iter < self.max_iter:
            value, n_hard = self._sweep(problem, state, queries, weight, margin, rng)
            values.append(value)
            stop = report(state.m)
        return {
            "margin_": margin,
            "n_hard_triplets_": n_hard,
            "objective_": values[max(track.best_iter - 1, 0)],
        }

    def _sweep(self, problem, state, queries, weight, margin, rng):
        """One epoch; returns the mean objective and the number of hard triplets."""
        order = rng.permutation(len(queries))
        total = n_hard = 0
        for batch in gen_batches(len(queries), self.batch_size):
            some = np.sort(order[batch])
            share = len(some) / len(queries)
            triplets = self._mine(
                problem, state.m, queries[some], weight[some], rng, share
            )
            value, slope, _ = self._evaluate(problem, state.m, triplets, margin)
            total += share * value
            n_hard += triplets.n_hard
            # (mahalanobis-sgd)
            state.squares += slope @ slope
            if state.squares > 0:
                length = self.learning_rate * np.sqrt(problem.n_words / state.squares)
                state.m = np.maximum(state.m - length * slope, 0)
        state.n_sweeps += 1
        return total, n_hard

    def _serve(self, pairs, m, dtype):
        """The attributes that make up a model."""
        support = pairs.support.astype(bool)
        support.data[:] = True  # a pair may have the number 0
        return {
            "M_": (pairs.unit * pairs.matrix(m)).astype(dtype),
            "support_": support,
            "_n_features_out": pairs.support.shape[0],
        }

    # -- serving --

    def _compare(self, X, Y):
        """By the inverted file of the items, if all is sparse."""
        if not (sparse.issparse(X) and sparse.issparse(Y)):
            return super()._compare(X, Y)
        Q, D = self._encode_queries(X), self._encode_items(Y)
        dtype = np.result_type(Q, D)
        S = np.empty((Q.shape[0], D.shape[0]), dtype=dtype)
        n_threads = min(effective_n_jobs(self.n_jobs), len(S))
        file = D.astype(dtype, copy=False).tocsc()
        score_queries(*_arrays(Q.astype(dtype)), *_arrays(file), n_threads, S)
        return S

    def _encode_queries(self, X):
        X = normalize(X, norm="l1")
        Q = self._match(X)
        return scale_rows(Q, _inverse(np.sqrt(row_dots(X, Q))))

    def _encode_items(self, X):
        X = normalize(X, norm="l1")
        return scale_rows(X, _inverse(np.sqrt(row_dots(X, self._match(X)))))

    def _match(self, X):
        """X M, with sorted indices if it is sparse."""
        Q = X @ self.M_.astype(X.dtype, copy=False)
        if sparse.issparse(Q):
            Q.sort_indices()
        return Q

    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        return tags


class _Pairs:
    """The unknowns: the diagonal of M, then a pair of words for each two beside it.

    Parameters
    ----------
    start : csr_array of shape (n_words, n_words)
        Symmetric matrix to start with.

    neighbors : csr_array of shape (n_words, n_words)
        Non-zero where two words may match, one way or the other.

    Attributes
    ----------
    first, second : ndarray of shape (n_pairs,)
        The words of each pair.

    support : csr_array of shape (n_words, n_words)
        Number of the pair that each entry belongs to.

    unit : float
        Mean of the diagonal of `start`. The unknowns are multiples of it.

    start : ndarray of shape (n_pairs,)
        Where the unknowns start.
    """

    def __init__(self, start, neighbors):
        n_words = start.shape[0]
        linked = neighbors.astype(bool) + start.astype(bool)
        above = sparse.triu(linked + linked.T, 1, format="coo")
        diagonal = np.arange(n_words)
        self.first = np.concatenate([diagonal, above.row])
        self.second = np.concatenate([diagonal, above.col])
        number = np.arange(len(self.first), dtype=np.int32)
        self.support = sparse.csr_array(
            (
                np.concatenate([number, number[n_words:]]),
                (
                    np.concatenate([self.first, self.second[n_words:]]),
                    np.concatenate([self.second, self.first[n_words:]]),
                ),
            ),
            shape=start.shape,
        )
        self.unit = start.diagonal().mean() or start.data.mean()
        self.start = start[self.first, self.second] / self.unit

    def matrix(self, m):
        """M as CSR in units of the start, without the entries that are zero."""
        M = self.support.astype(np.float64)
        M.data = m[self.support.data]
        M.eliminate_zeros()
        return M


class _State:
    """Where gradient steps have got to."""

    def __init__(self, m):
        self.m = m
        self.squares = 0.0  # of all gradients so far
        self.n_sweeps = 0


class _Triplets:
    """Triplets of some queries: those implied by a ranking, and listed ones.

    Attributes
    ----------
    queries : ndarray of shape (n_queries,)
        Rows of the items.

    weight : ndarray of shape (n_queries,)
        Weight of each query's triplets, as a share of the total weight of all.

    n_hard : int
        Number of triplets that were ranked the wrong way round.

    arrays : tuple of ndarray
        What the kernel needs: the start of each query's ranking, the rankings, the
        start of its relevant items, their relevance, the start of its list, pairs of a
        relevant and an irrelevant item, their weights.
    """

    def __init__(self, queries, weight, rankings, relevance, listed, max_hard, rng):
        n_queries = len(queries)
        n_above = [np.cumsum(ranked >= 0)[ranked < 0] for ranked in rankings]
        self.n_hard = int(sum(n.sum() for n in n_above))
        listed_by = np.repeat(np.arange(n_queries), [len(part) for part, _ in listed])
        triplets = np.concatenate([part for part, _ in listed])
        triplet_weight = np.concatenate([part for _, part in listed])

        if max_hard is not None and self.n_hard > max_hard:
            entry_weight = np.concatenate(relevance)
            entry_query = np.repeat(np.arange(n_queries), [len(n) for n in n_above])
            relevant = ~np.concatenate([r[r < 0] for r in rankings])
            irrelevant = [r[r >= 0] for r in rankings]
            start = _starts(irrelevant)
            # Triplets are numbered by query, relevant item and rank of the other one.
            number = rng.choice(self.n_hard, max_hard, replace=False, shuffle=False)
            n_above = np.concatenate(n_above)
            end = np.cumsum(n_above)
            entry = np.searchsorted(end, number, side="right")
            rank = number - (end - n_above)[entry]
            other = np.concatenate(irrelevant)[start[entry_query[entry]] + rank]
            listed_by = np.concatenate([listed_by, entry_query[entry]])
            triplets = np.concatenate(
                [triplets, np.column_stack([relevant[entry], other])]
            )
            triplet_weight = np.concatenate([triplet_weight, entry_weight[entry]])
            order = np.argsort(listed_by, kind="stable")
            listed_by = listed_by[order]
            triplets, triplet_weight = triplets[order], triplet_weight[order]
            rankings = relevance = n_above = [np.empty(0)] * n_queries

        of_list = np.bincount(listed_by, triplet_weight, minlength=n_queries)
        of_ranking = [r @ n for r, n in zip(relevance, n_above, strict=True)]
        total = weight @ (of_list + of_ranking)
        self.queries = queries
        self.weight = weight / (total or 1.0)
        self.arrays = (
            _starts(rankings),
            np.concatenate(rankings).astype(np.int32),
            _starts(relevance),
            np.concatenate(relevance),
            np.searchsorted(listed_by, np.arange(n_queries + 1)),
            triplets.astype(np.int32, order="C"),
            triplet_weight,
        )


class _Problem:
    """Items that are searched, and what their similarities and losses are at any M.

    Parameters
    ----------
    X : csr_array of shape (n_items, n_words)
        Frequencies of the words.

    relevance : Relevance
        Of the items to each other.

    held_out : ndarray of shape (n_items,), dtype bool
        Items that no triplet is formed with.

    pairs : _Pairs
        The unknowns.

    n_threads : int
        Number of threads.
    """

    def __init__(self, X, relevance, held_out, pairs, n_threads):
        self.X = X
        self.relevance = relevance
        self.held_out = held_out
        self.pairs = pairs
        self.n_threads = n_threads
        self.n_items, self.n_words = X.shape
        self.rows = _arrays(X)
        file = X.tocsc()
        self.file = _arrays(file)
        # (mahalanobis-own)
        own = [X.power(2)]
        beside = slice(self.n_words, None)
        first, second = pairs.first[beside], pairs.second[beside]
        for batch in gen_batches(max(len(first), 1), 2**16):
            own.append(2 * file[:, first[batch]].multiply(file[:, second[batch]]))
        self.own = _arrays(sparse.hstack(own, format="csr"))
        start, word, pair = _arrays(pairs.support)
        of_word = self.file[0]
        self.support = start, pair, np.column_stack([of_word[word], of_word[word + 1]])

    def inverse_selves(self, m):
        """1 / S_ii, or 0."""
        selves = np.empty(self.n_items)
        score_selves(*self.own, m, self.n_threads, selves)
        return _inverse(selves)

    def similarities(self, m, rows):
        """Squared normalised similarities of some items to all."""
        Q = (self.X[rows] @ self.pairs.matrix(m)).astype(self.X.dtype, copy=False)
        S = np.empty((len(rows), self.n_items), dtype=Q.dtype)
        score_queries(*_arrays(Q), *self.file, self.n_threads, S)
        inverse_norms = np.sqrt(self.inverse_selves(m))
        return (S * inverse_norms * inverse_norms[rows, None]) ** 2

    def mean_relevant(self, m, queries, weight):
        """Mean similarity of relevant items."""
        means = np.empty(len(queries))
        for batch, rows, relevant in self.relevance.search(queries):
            relevant[:, self.held_out] = 0
            relevant = np.maximum(relevant, 0)
            total = row_dots(relevant, self.similarities(m, rows))
            means[batch] = total / relevant.sum(axis=1)
        return weight @ means / weight.sum()

    def mine(self, m, queries, weight, max_hard, n_random, rng):
        """Hard triplets at this M, all or a number of them, and random ones."""
        n_random = rng.multinomial(n_random, np.full(len(queries), 1 / len(queries)))
        rankings, relevance, listed = [], [], []
        for batch, rows, relevant in self.relevance.search(queries):
            S = self.similarities(m, rows)
            relevant[:, self.held_out] = -1
            for score, grade, n in zip(S, relevant, n_random[batch], strict=True):
                items = np.flatnonzero(grade >= 0)
                # Of equal ones the relevant come first: such triplets are not hard.
                items = items[np.lexsort((grade[items] == 0, -score[items]))]
                is_relevant = grade[items] > 0
                good, bad = items[is_relevant], items[~is_relevant]
                drawn = good[rng.integers(len(good), size=n)]
                other = bad[rng.integers(len(bad), size=n)]
                listed.append(
                    (np.column_stack([drawn, other]), grade[drawn].astype(np.float64))
                )
                last = np.flatnonzero(is_relevant)[-1] + 1
                rankings.append(np.where(is_relevant, ~items, items)[:last])
                relevance.append(grade[good].astype(np.float64))
        return _Triplets(queries, weight, rankings, relevance, listed, max_hard, rng)

    def evaluate(self, m, triplets, margin, visited=None):
        """Mean hinge in units of the margin, its gradient, the loss of each query.

        Only the `visited` queries count; the others have a loss of 0.
        """
        if visited is None:
            visited = np.arange(len(triplets.queries))
        inverse = self.inverse_selves(m)
        strength = m[self.support[1]].astype(self.X.dtype)
        losses = np.zeros(len(triplets.queries))
        self_slope = np.zeros((N_PARTS, self.n_items))
        slopes = np.zeros((N_PARTS, len(m)))
        for batch in gen_batches(max(len(visited), 1), BLOCK):
            differentiate(
                visited[batch],
                triplets.queries,
                triplets.weight,
                *self.rows,
                *self.file[1:],
                *self.support,
                strength,
                inverse,
                margin,
                *triplets.arrays,
                self.n_threads,
                losses,
                self_slope,
                slopes,
            )
        slope = np.empty_like(m)
        collect(self_slope, *self.own, self.n_threads, slopes, slope)
        return losses.sum() / margin, slope / margin, losses


class _HoldOut:
    """Samples that judge M.

    Parameters
    ----------
    queries : ndarray
        Rows of the held-out samples.

    query_each_other : bool
        Whether they search each other too, or the other samples only.
    """

    def __init__(self, queries, query_each_other):
        self.queries = queries
        self.query_each_other = query_each_other

    def score(self, problem, m):
        """Mean average precision."""
        values = []
        for _, rows, relevant in problem.relevance.search(self.queries):
            if not self.query_each_other:
                relevant[:, self.queries] = -1
            S = problem.similarities(m, rows)
            values.append(average_precision(relevant, S, n_jobs=problem.n_threads))
        return np.concatenate(values).mean()


class _Track:
    """The iterations so far, and the best of them."""

    def __init__(self, problem, hold_out, n_iter_no_change):
        self.problem = problem
        self.hold_out = hold_out
        self.n_iter_no_change = n_iter_no_change
        self.n_iter = self.best_iter = 0
        self.best = problem.pairs.start
        if hold_out is not None:
            self.scores = [hold_out.score(problem, self.best)]

    def record(self, m):
        """Take note of an iteration; whether the best one is too long ago."""
        self.n_iter += 1
        if self.hold_out is not None:
            self.scores.append(self.hold_out.score(self.problem, m))
            if self.scores[-1] <= self.scores[self.best_iter]:
                return self.n_iter - self.best_iter >= self.n_iter_no_change
        self.best, self.best_iter = m.copy(), self.n_iter
        return False


def _find_common(X, n_neighbors, n_threads, work_per_block=2**28):
    """Words and those that occur in the same samples, a block of edges at a time."""
    words = normalize(X.T.tocsr())
    samples = words.T.tocsr()
    # For each word, the words of all samples that have it.
    work = (words.astype(bool) @ np.diff(samples.indptr)).cumsum()
    edges = np.searchsorted(work, np.arange(work_per_block, work[-1], work_per_block))
    edges = np.unique([0, *edges, len(work)])
    arrays = *_arrays(words), *_arrays(samples)
    for first, last in pairwise(edges):
        nearest = np.empty((last - first, n_neighbors), dtype=np.int32)
        find_common(first, *arrays, n_threads, nearest)
        yield _edges(np.arange(first, last), nearest)


def _find_nearest(words, n_neighbors):
    """Words and those with the nearest vectors, a block of edges at a time."""
    n_words = len(words)
    search = None
    if n_words > MAX_EXACT:
        search = _search_faiss(words)
    if search is None:
        search = NearestNeighbors().fit(words).kneighbors
    for batch in gen_batches(n_words, 10_000):
        _, nearest = search(words[batch], n_neighbors + 1)
        some = np.arange(n_words)[batch]
        # A word is its own nearest one, unless others are at the same place.
        is_self = nearest == some[:, None]
        is_self[~is_self.any(axis=1), -1] = True
        yield _edges(some, nearest[~is_self].reshape(len(some), n_neighbors))


def _edges(words, nearest):
    """Words and their nearest ones as two rows, without those not found."""
    found = nearest >= 0
    return np.stack([np.repeat(words, found.sum(axis=1)), nearest[found]])


def _search_faiss(words):
    """Approximate search by the inverted lists of FAISS, or None without it."""
    try:
        import faiss
    except ImportError:
        return None
    words = np.ascontiguousarray(words, dtype=np.float32)
    n_lists = int(4 * np.sqrt(len(words)))
    index = faiss.IndexIVFFlat(
        faiss.IndexFlatL2(words.shape[1]), words.shape[1], n_lists
    )
    index.train(words[:: max(1, len(words) // (64 * n_lists))])
    index.add(words)
    index.nprobe = 16
    return lambda some, k: index.search(np.asarray(some, dtype=np.float32), k)


def _draw_per_column(positive, n, rng):
    """Rows and columns of up to n entries of each column, drawn at random."""
    row = np.repeat(np.arange(positive.shape[0]), np.diff(positive.indptr))
    order = np.lexsort((rng.random(positive.nnz), positive.indices))
    column = positive.indices[order]
    chosen = np.arange(len(order)) - np.searchsorted(column, column) < n
    return row[order][chosen], column[chosen]


def _arrays(X):
    """indptr, indices and data, of the types that kernels take."""
    X.sort_indices()
    return (
        X.indptr.astype(np.int64, copy=False),
        X.indices.astype(np.int32, copy=False),
        X.data,
    )


def _inverse(x):
    """1 / x, or 0 where x is 0."""
    return np.divide(1, x, out=np.zeros_like(x), where=x > 0)


def _starts(parts):
    """Where each part of a concatenation begins, and the last one ends."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)
