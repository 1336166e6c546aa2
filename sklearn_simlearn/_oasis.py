"""Online algorithm for scalable image similarity (OASIS)."""

from copy import copy, deepcopy
from functools import partial
from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from joblib.parallel import get_active_backend
from scipy import linalg, sparse
from scipy.sparse.linalg import svds
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.utils import _safe_indexing, check_array
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.parallel import Parallel, _get_threadpool_controller, delayed
from sklearn.utils.validation import validate_data

from sklearn_simlearn._oasis_fast import sweep_sparse, sweep_support, take_steps
from sklearn_simlearn._random import make_generator
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn._triplets import check_triplets, triplet_sampler
from sklearn_simlearn.base import (
    SimilarityMixin,
    all_or_nothing,
    append_columns,
    row_dots,
)
from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.similarities import inverse_document_frequency

# Attributes that some parameters bring about and others do not.
OPTIONAL_ATTRIBUTES = (
    "components_",
    "query_components_",
    "item_components_",
    "validation_scores_",
)

# The codes of the kernel. "final" learns as None does and projects in the end.
LEARNED = {None: 0, "final": 0, "online": 1, "dissimilarity": 2}


class OASIS(SimilarityMixin, CallbackSupportMixin, BaseEstimator):
    r"""Bilinear similarity learned online from triplets.

    OASIS [1]_ learns a matrix :math:`W` so that :math:`S_W(q, x) = q^\top W x` ranks
    samples relevant to the query above all others by a unit margin. Each triplet
    :math:`(q, x^+, x^-)` moves :math:`W` just far enough to satisfy it:

    .. math::

        W \leftarrow W + \tau\, q (x^+ - x^-)^\top, \qquad
        \tau = \min\left(C,\;
            \frac{\max(0,\, 1 - S_W(q, x^+) + S_W(q, x^-))}
                 {\lVert q \rVert^2 \lVert x^+ - x^- \rVert^2}\right).

    The derivation is in the :ref:`User Guide <oasis>`.

    Parameters
    ----------
    C : float, default=0.1
        Largest step :math:`\tau`. Smaller values resist label noise.

    n_triplets : int, default=100_000
        Number of triplets drawn and visited, each once. This is the whole training
        budget: an online learner has no convergence to wait for.

    init : str or array-like of shape (n_features, n_features), default="identity"
        Where :math:`W` starts: "identity", "zero", "tfidf", which is the diagonal of
        squared inverse document frequencies, for raw counts, or a matrix.

    symmetric : {None, "final", "online", "dissimilarity"}, default=None
        How :math:`W` is made symmetric: not at all; by
        :math:`(W + W^\top) / 2` at the end; by the same after every step; or by
        learning :math:`S_W(q, x) = -(q - x)^\top W (q - x)` instead.

    psd : {None, "final"} or int, default=None
        Project :math:`W` onto the symmetric positive semi-definite matrices: never, at
        the end, or after every so many triplets and at the end. `transform` then embeds
        queries and items in the same space.

    n_components : int, default=None
        Serve a factorisation of this rank instead of :math:`W` itself: queries and
        items become dense vectors of `n_components` numbers.

    n_models : int, default=1
        Train this many rankers on independent triplets, `n_triplets` each, and average
        them.

    parallel : {"average", "hogwild"}, default="average"
        What `n_jobs` is for: rankers side by side, or several threads that update one
        ranker without waiting for each other. The latter is not reproducible.

    early_stopping : bool, default=False
        Hold out some of the samples, score them at regular intervals, keep the best
        :math:`W` and stop when it stays the best.

    validation_fraction : float, default=0.1
        Share of the samples to hold out.

    validation_interval : int, default=10_000
        Number of triplets between two validations; also between two points of
        `loss_curve_` and two callbacks.

    n_iter_no_change : int, default=5
        Number of validations without a new best after which to stop.

    relevance_threshold : float, default=0.0
        With a relevance matrix, the joint probability up to which two samples count as
        irrelevant to each other.

    support : sparse matrix of shape (n_features, n_features), default=None
        Entries of :math:`W` that may be non-zero, beside its diagonal. :math:`W` is
        then sparse, for vocabularies too large for a dense one.

    max_memory : float, default=4.0
        Largest dense :math:`W` to allocate, in GiB.

    warm_start : bool, default=False
        Begin `fit` with the :math:`W` of the last one.

    n_jobs : int, default=None
        Number of rankers to train at a time, or of threads with
        ``parallel="hogwild"``. The joblib backend in force is used, so a
        :func:`joblib.parallel_config` spreads the rankers over a cluster.

    random_state : int, RandomState instance or None, default=None
        Decides which triplets are drawn. An int makes `fit` repeatable, to the bit and
        for any `n_jobs` unless ``parallel="hogwild"``.

    Attributes
    ----------
    W_ : ndarray or csr_array of shape (n_features, n_features)
        The learned similarity matrix, of the dtype of `X`; sparse if there is a
        `support`.

    components_ : ndarray of shape (n_components, n_features)
        With `psd`, the embedding: ``components_.T @ components_`` is :math:`W`, or its
        best approximation of rank `n_components`.

    query_components_, item_components_ : ndarray of shape (n_components, n_features)
        With `n_components` and no `psd`, the factors:
        ``query_components_.T @ item_components_`` approximates :math:`W`.

    loss_curve_ : ndarray of shape (n_intervals,)
        Mean hinge loss over each interval, every loss taken before its own update.

    validation_scores_ : ndarray of shape (n_intervals + 1,)
        Mean average precision of the held-out samples before the first triplet and
        after each interval, with `early_stopping`.

    n_triplets_ : int
        Number of triplets that each ranker has visited, over all calls of
        `partial_fit`.

    n_updates_ : int
        Number of them that moved :math:`W`, of all rankers.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn.neighbors.NeighborhoodComponentsAnalysis : Learns a distance, from all
        pairs at once.

    Notes
    -----
    A triplet costs ``O(n_features ** 2)`` for dense data, done in blocks by BLAS, and
    for sparse data the number of non-zeros of the query times those of the other two.
    :math:`W` takes ``n_features ** 2`` numbers, or those of `support`. Memory does not
    depend on `n_triplets`.

    BLAS is held to one thread while training, so that results do not depend on the
    number of cores.

    References
    ----------
    .. [1] G. Chechik, V. Sharma, U. Shalit and S. Bengio. "Large scale online learning
       of image similarity through ranking". Journal of Machine Learning Research, 11,
       1109-1135, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn.preprocessing import normalize
    >>> from sklearn_simlearn import OASIS
    >>> X, y = load_digits(return_X_y=True)
    >>> X = normalize(X)
    >>> oasis = OASIS(random_state=0).fit(X[:900], y[:900])
    >>> round(oasis.score(X[900:], y[900:]), 2)
    0.78
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_triplets": [Interval(Integral, 1, None, closed="left")],
        "init": [
            StrOptions({"identity", "zero", "tfidf"}),
            "array-like",
            "sparse matrix",
        ],
        "symmetric": [StrOptions({"final", "online", "dissimilarity"}), None],
        "psd": [
            StrOptions({"final"}),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "parallel": [StrOptions({"average", "hogwild"})],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "validation_interval": [Interval(Integral, 1, None, closed="left")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "relevance_threshold": [Interval(Real, 0, None, closed="left")],
        "support": ["sparse matrix", None],
        "max_memory": [Interval(Real, 0, None, closed="neither")],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        C=0.1,
        *,
        n_triplets=100_000,
        init="identity",
        symmetric=None,
        psd=None,
        n_components=None,
        n_models=1,
        parallel="average",
        early_stopping=False,
        validation_fraction=0.1,
        validation_interval=10_000,
        n_iter_no_change=5,
        relevance_threshold=0.0,
        support=None,
        max_memory=4.0,
        warm_start=False,
        n_jobs=None,
        random_state=None,
    ):
        self.C = C
        self.n_triplets = n_triplets
        self.init = init
        self.symmetric = symmetric
        self.psd = psd
        self.n_components = n_components
        self.n_models = n_models
        self.parallel = parallel
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.validation_interval = validation_interval
        self.n_iter_no_change = n_iter_no_change
        self.relevance_threshold = relevance_threshold
        self.support = support
        self.max_memory = max_memory
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X, y, *, validation=None):
        """Learn the similarity matrix.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            whose positive values are weights and whose negative ones mark junk.

        validation : tuple (X, y), default=None
            Samples to validate on with `early_stopping`, instead of held-out ones.

        Returns
        -------
        self : object
            The estimator itself.
        """
        W = getattr(self, "W_", None) if self.warm_start else None
        X = self._check_samples(X, reset=True)
        relevance = check_relevance(y, n_samples=X.shape[0])
        rng = make_generator(self.random_state)
        if validation is not None:
            if not self.early_stopping:
                raise ValueError("validation is for early_stopping=True.")
            validation = self._validate_rows(validation[0]), validation[1]
        elif self.early_stopping:
            X, y, validation = self._hold_out(X, y, rng)
            relevance = check_relevance(y)
        sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
        W = self._start(X, W)

        # From here on the inputs are sound: kernels check nothing.
        streams = [_drawn(sampler, stream) for stream in rng.spawn(self.n_models)]
        self._learn(X, y, W, streams, self.n_triplets, validation=validation)
        vars(self).pop("_rng", None)  # of a stream of batches that has ended
        return self

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def partial_fit(self, X, y, *, n_features=None):
        """Go on learning, from `n_triplets` triplets of one batch of samples.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Its labels or relevance matrix. Triplets are formed within the batch.

        n_features : int, default=None
            Width of the data, if a sparse batch may be narrower: the columns it lacks
            count as zero.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = self._check_batch(X, n_features)
        relevance = check_relevance(y, n_samples=X.shape[0])
        sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
        # One stream of random numbers runs through all batches.
        rng = (
            deepcopy(self._rng)
            if hasattr(self, "_rng")
            else make_generator(self.random_state)
        )
        W = self._start(X, getattr(self, "W_", None))

        streams = [_drawn(sampler, stream) for stream in rng.spawn(self.n_models)]
        self._learn(X, y, W, streams, self.n_triplets, go_on=True)
        self._rng = rng
        return self

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit_triplets(self, X, triplets):
        """Learn from given triplets, each visited once, in their order.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Samples.

        triplets : array-like of shape (n_triplets, 3)
            Rows of `X`: a query, a sample relevant to it, and one that is less so.

        Returns
        -------
        self : object
            The estimator itself.
        """
        W = getattr(self, "W_", None) if self.warm_start else None
        X = self._check_samples(X, reset=True)
        triplets = check_triplets(triplets, X.shape[0])
        W = self._start(X, W)
        self._learn(X, None, W, [_in_order(triplets)], len(triplets))
        return self

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def partial_fit_triplets(self, X, triplets, *, n_features=None):
        """Go on learning from given triplets.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples.

        triplets : array-like of shape (n_triplets, 3)
            Rows of `X`: a query, a sample relevant to it, and one that is less so.

        n_features : int, default=None
            Width of the data, if a sparse batch may be narrower.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = self._check_batch(X, n_features)
        triplets = check_triplets(triplets, X.shape[0])
        W = self._start(X, getattr(self, "W_", None))
        self._learn(X, None, W, [_in_order(triplets)], len(triplets), go_on=True)
        return self

    # -- checks --

    def _check_samples(self, X, *, reset):
        if self.psd is not None and self.support is not None:
            raise ValueError(
                "psd needs a dense W: its projection would fill entries outside of "
                "support. Leave out one of them."
            )
        if self.support is not None and self.symmetric in ("online", "dissimilarity"):
            raise ValueError('With support, symmetric must be None or "final".')
        if self.parallel == "hogwild" and self.n_models > 1:
            raise ValueError(
                'parallel="hogwild" has all threads on one ranker: set n_models=1.'
            )
        X = validate_data(
            self,
            X,
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
        )
        if sparse.issparse(X) and not X.has_canonical_format:
            X = X.copy()
            X.sum_duplicates()
        if self.support is not None and not sparse.issparse(X):
            X = sparse.csr_array(X)
        return X

    def _check_batch(self, X, n_features):
        if n_features is not None and sparse.issparse(X) and X.shape[1] < n_features:
            X = X.tocsr(copy=True)
            X.resize(X.shape[0], n_features)
        return self._check_samples(X, reset=not hasattr(self, "W_"))

    def _hold_out(self, X, y, rng):
        n_held_out = max(2, round(self.validation_fraction * X.shape[0]))
        order = rng.permutation(X.shape[0])
        held_out, rest = np.sort(order[:n_held_out]), np.sort(order[n_held_out:])
        y_held_out, y_rest = _safe_indexing(y, held_out), _safe_indexing(y, rest)
        # Fails before any work where the held-out samples give no ranking to score.
        try:
            triplet_sampler(check_relevance(y_held_out))
        except ValueError as error:
            raise ValueError(
                f"The {n_held_out} held-out samples cannot be scored ({error}) Raise "
                "validation_fraction or pass validation=(X, y) to fit."
            ) from None
        return X[rest], y_rest, (X[held_out], y_held_out)

    # -- learning --

    def _start(self, X, W):
        """A matrix to begin with that is nobody else's: W if given, else `init`."""
        n_features = X.shape[1]
        if W is not None:
            if W.shape[0] != n_features:
                raise ValueError(
                    f"X has {n_features} features, but W has {W.shape[0]} from the fit "
                    "before: set warm_start=False to start anew."
                )
            return W.astype(X.dtype, copy=True)
        if self.support is not None:
            return self._start_on_support(X)
        gib = n_features**2 * X.dtype.itemsize / 2**30
        if gib > self.max_memory:
            raise ValueError(
                f"W would have {n_features} x {n_features} entries and take {gib:.3g} "
                f"GiB, more than max_memory={self.max_memory} GiB. Reduce the number "
                "of features (TruncatedSVD, HashingVectorizer, max_features), pass a "
                "sparse support, or raise max_memory."
            )
        if isinstance(self.init, str):
            return np.diag(self._initial_diagonal(X))
        W = check_array(
            self.init, accept_sparse="csr", dtype=X.dtype, input_name="init"
        )
        if W.shape != (n_features, n_features):
            raise ValueError(
                f"init must have shape ({n_features}, {n_features}); got {W.shape}."
            )
        W = W.toarray() if sparse.issparse(W) else np.array(W, order="C")
        if self.symmetric in ("online", "dissimilarity"):
            W = (W + W.T) / 2
        return W

    def _start_on_support(self, X):
        n_features = X.shape[1]
        if self.support.shape != (n_features, n_features):
            raise ValueError(
                f"support must have shape ({n_features}, {n_features}); got "
                f"{self.support.shape}."
            )
        pattern = sparse.csr_array(abs(self.support), dtype=X.dtype)
        if self.symmetric == "final":
            pattern = pattern + pattern.T
        pattern = (pattern + sparse.eye_array(n_features, dtype=X.dtype)).tocsr()
        if isinstance(self.init, str):
            start = sparse.diags_array(self._initial_diagonal(X))
        else:
            start = check_array(
                self.init, accept_sparse="csr", dtype=X.dtype, input_name="init"
            )
        start = sparse.csr_array(start, dtype=X.dtype)
        # The values of `start`, on the whole of the pattern and nowhere else.
        pattern.data[:] = 1
        outside = (start - start.multiply(pattern)).tocsr()
        outside.eliminate_zeros()
        if outside.nnz:
            raise ValueError(f"init has {outside.nnz} non-zeros outside of support.")
        W = (pattern + start).tocsr()
        W.data -= 1
        W.sort_indices()
        return W

    def _initial_diagonal(self, X):
        if self.init == "zero":
            return np.zeros(X.shape[1], dtype=X.dtype)
        if self.init == "identity":
            return np.ones(X.shape[1], dtype=X.dtype)
        return (inverse_document_frequency(X) ** 2).astype(X.dtype)

    def _learn(self, X, y, W, streams, n_triplets, *, validation=None, go_on=False):
        """Visit the triplets of the streams, a ranker each; set the attributes."""
        n_intervals = -(-n_triplets // self.validation_interval)
        context = self._init_callback_context(max_subtasks=n_intervals)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)

        rankers = [W] + [W.copy() for _ in streams[1:]]
        n_done = n_updates = 0
        losses, scores, best = [], [], None
        if validation is not None:
            scores, best = [self._validate(W, validation)], W.copy()
        with _get_threadpool_controller().limit(limits=1, user_api="blas"):
            while n_done < n_triplets:
                subcontext = context.subcontext(task_name="interval")
                subcontext.call_on_fit_task_begin(estimator=self, X=X, y=y)
                n = min(self.validation_interval, n_triplets - n_done)
                rankers, loss, n_moves = self._visit(X, rankers, streams, n, n_done)
                n_done += n
                n_updates += n_moves
                losses.append(loss / (n * len(streams)))
                stop = False
                if validation is not None:
                    W = _average(rankers)
                    scores.append(self._validate(W, validation))
                    if scores[-1] > max(scores[:-1]):
                        best = W.copy()
                    stop = len(scores) - 1 - np.argmax(scores) >= self.n_iter_no_change
                stop |= subcontext.call_on_fit_task_end(
                    estimator=self,
                    X=X,
                    y=y,
                    reconstruction_attributes=partial(self._serve, rankers),
                )
                if stop:
                    break

        attributes = self._serve(rankers if best is None else [best])
        attributes["loss_curve_"] = np.array(losses)
        attributes["n_triplets_"] = n_done
        attributes["n_updates_"] = n_updates
        if go_on:
            attributes["n_triplets_"] += getattr(self, "n_triplets_", 0)
            attributes["n_updates_"] += getattr(self, "n_updates_", 0)
        if validation is not None:
            attributes["validation_scores_"] = np.array(scores)
        for name in OPTIONAL_ATTRIBUTES:
            vars(self).pop(name, None)  # of an earlier fit, with other parameters
        vars(self).update(attributes)
        context.call_on_fit_task_end(estimator=self, X=X, y=y)

    def _visit(self, X, rankers, streams, n_triplets, n_done):
        """Show each ranker its next triplets; with an int `psd`, project in between."""
        sweep = delayed(_sweep)
        # Elsewhere than in threads, equal matrices may be shipped as one and the same.
        backend, _ = get_active_backend(prefer="threads")
        in_place = getattr(backend, "supports_sharedmem", False)
        loss = n_updates = 0
        while n_triplets > 0:
            n = n_triplets
            if isinstance(self.psd, Integral):
                n = min(n, self.psd - n_done % self.psd)
            blocks = [stream(n) for stream in streams]
            if self.parallel == "hogwild":
                blocks = np.array_split(blocks[0], effective_n_jobs(self.n_jobs))
                rankers = rankers * len(blocks)
            jobs = (
                sweep(W, X, block, self.C, LEARNED[self.symmetric], in_place)
                for W, block in zip(rankers, blocks, strict=True)
            )
            need = {"require": "sharedmem"} if self.parallel == "hogwild" else {}
            results = Parallel(self.n_jobs, prefer="threads", **need)(jobs)
            rankers = [W for W, _, _ in results][: len(streams)]
            loss += sum(loss for _, loss, _ in results)
            n_updates += sum(n_moves for _, _, n_moves in results)
            n_done += n
            n_triplets -= n
            if isinstance(self.psd, Integral) and n_done % self.psd == 0:
                for W in rankers:
                    W[:] = _positive_part(W)[0]
        return rankers, loss, n_updates

    def _validate(self, W, validation):
        model = copy(self)
        vars(model).update(self._serve([W], factorise=False))
        return map_scorer(model, *validation)

    def _serve(self, rankers, *, factorise=True):
        """The attributes that make up a model of the average of the rankers."""
        W = _average(rankers)
        if self.symmetric == "final":
            W = (W + W.T) / 2
        attributes = {}
        n_components = self.n_components if factorise else None
        if self.psd is not None:
            W, components = _positive_part(W)
            attributes["components_"] = components[:n_components]
        elif n_components is not None:
            left, right = _factorise(W, n_components)
            attributes["query_components_"] = left
            attributes["item_components_"] = right
        n_columns = next(iter(attributes.values()), W).shape[0]
        if self.symmetric == "dissimilarity":
            n_columns += 2
        return {"W_": W, "_n_features_out": n_columns, **attributes}

    # -- serving --

    def _encode_queries(self, X):
        left = self._left(X)
        if self.symmetric != "dissimilarity":
            return left
        # -(q - x)' W (q - x) = 2 q' W x - x' W x - q' W q
        own = row_dots(left, self._right(X))
        return append_columns(2 * left, np.column_stack([np.ones_like(own), -own]))

    def _encode_items(self, X):
        right = self._right(X)
        if self.symmetric != "dissimilarity":
            return right
        own = row_dots(self._left(X), right)
        return append_columns(right, np.column_stack([-own, np.ones_like(own)]))

    def _left(self, X):
        """Rows whose products with those of `_right` are q' W x."""
        if hasattr(self, "components_"):
            return X @ self.components_.T
        if hasattr(self, "query_components_"):
            return X @ self.query_components_.T
        return X @ self.W_

    def _right(self, X):
        if hasattr(self, "components_"):
            return X @ self.components_.T
        if hasattr(self, "item_components_"):
            return X @ self.item_components_.T
        return X


def _drawn(sampler, rng):
    """A stream of triplets, the same however many are taken at a time."""
    left = np.empty((0, 3), dtype=np.int64)

    def take(n):
        nonlocal left
        parts = [left]
        while sum(map(len, parts)) < n:
            parts.append(sampler.draw(5000, rng))
        drawn = np.concatenate(parts)
        left = drawn[n:]
        return drawn[:n]

    return take


def _in_order(triplets):
    """A stream of given triplets."""
    position = 0

    def take(n):
        nonlocal position
        position += n
        return triplets[position - n : position]

    return take


def _average(rankers):
    return rankers[0] if len(rankers) == 1 else sum(rankers) / len(rankers)


def _positive_part(W):
    """The nearest symmetric positive semi-definite matrix A' A, and A."""
    eigenvalues, vectors = linalg.eigh((W + W.T) / 2)
    keep = eigenvalues > max(0, eigenvalues[-1]) * len(W) * np.finfo(W.dtype).eps
    A = (np.sqrt(eigenvalues[keep]) * vectors[:, keep]).T[::-1]
    return A.T @ A, np.ascontiguousarray(A)


def _factorise(W, rank):
    """Factors of the best approximation of a rank: left.T @ right."""
    if sparse.issparse(W) or 4 * rank < W.shape[0]:
        rank = min(rank, W.shape[0] - 1)
        U, s, Vt = svds(W, k=rank, v0=np.ones(W.shape[0], dtype=W.dtype))
        U, s, Vt = U[:, ::-1], s[::-1], Vt[::-1]
    else:
        U, s, Vt = linalg.svd(W)
    root = np.sqrt(s[:rank])
    left, right = (U[:, :rank] * root).T, root[:, None] * Vt[:rank]
    return np.ascontiguousarray(left), np.ascontiguousarray(right)


def _sweep(W, X, triplets, C, learned, in_place=True):
    """Visit the triplets in order; returns W, the sum of losses, the number of steps.

    W is updated in place, or first copied.
    """
    if not in_place:
        W = W.copy()
    if not sparse.issparse(X):
        # Held in `fit` already, but this may be another process.
        with _get_threadpool_controller().limit(limits=1, user_api="blas"):
            return W, *_sweep_dense(W, X, triplets, C, learned)
    if X.nnz == 0:
        return W, float(len(triplets)), 0
    longest = int(np.diff(X.indptr).max())
    if sparse.issparse(W):
        support = (W.indices.astype(X.indices.dtype), W.indptr.astype(X.indptr.dtype))
    total_loss, n_updates = 0.0, 0
    for start in range(0, len(triplets), 1000):  # few enough to let Ctrl-C through
        rows = X.data, X.indices, X.indptr, triplets[start : start + 1000], C
        if sparse.issparse(W):
            loss, n_moves = sweep_support(W.data, *support, *rows, longest)
        else:
            loss, n_moves = sweep_sparse(W, *rows, learned, longest)
        total_loss += loss
        n_updates += n_moves
    return W, total_loss, n_updates


def _sweep_dense(W, X, triplets, C, learned):
    """Blocks of triplets at the speed of matrix products, with the very same steps.

    (oasis-block)  Within a block, the margin of triplet t is <V_t, W> as the block
    began plus what the steps since have added to it, sum_s tau_s <V_t, V_s>. Both are
    products of stacked rows, and so is the sum of all steps.
    """
    gemm = linalg.blas.get_blas_funcs("gemm", (W,))
    block = int(np.clip(X.shape[1] // 3, 64, 256))
    total_loss, n_updates = 0.0, 0
    for start in range(0, len(triplets), block):
        rows = triplets[start : start + block]
        q, positive, negative = X[rows[:, 0]], X[rows[:, 1]], X[rows[:, 2]]
        if learned == LEARNED["dissimilarity"]:
            # (oasis-dissim)  a = q - x+, b = q - x-, V = b b' - a a', so that
            # <V_t, V_s> = (b_t b_s)^2 + (a_t a_s)^2 - (a_t b_s)^2 - (b_t a_s)^2
            a, b = q - positive, q - negative
            margin = row_dots(b @ W, b) - row_dots(a @ W, a)
            cross = (a @ b.T) ** 2
            gram = (b @ b.T) ** 2 + (a @ a.T) ** 2 - cross - cross.T
            norm2 = np.diagonal(gram)
            pairs = [(b, b, 1), (a, a, -1)]
        else:
            # V = q a' with a = x+ - x-, and <V_t, V_s> = (q_t q_s) (a_t a_s)
            a = positive - negative
            margin = row_dots(q @ W, a)
            gram = (q @ q.T) * (a @ a.T)
            norm2 = np.diagonal(gram)
            pairs = [(q, a, 1)]
            if learned == LEARNED["online"]:
                # Each step is followed by sym(.): it adds tau (q a' + a q') / 2.
                cross = q @ a.T
                gram = (gram + cross * cross.T) / 2
                pairs = [(q, a, 0.5), (a, q, 0.5)]
        tau = np.empty(len(rows), dtype=W.dtype)
        loss, n_moves = take_steps(
            margin.astype(np.float64), gram, norm2.astype(np.float64), C, tau
        )
        total_loss += loss
        n_updates += n_moves
        moved = tau > 0
        for left, right, sign in pairs:
            # W' += right' (tau left), in place: the transpose of W is in BLAS's order.
            step = (sign * tau[moved])[:, None] * left[moved]
            gemm(1.0, right[moved].T, step.T, 1.0, W.T, trans_b=True, overwrite_c=True)
    return total_loss, n_updates
