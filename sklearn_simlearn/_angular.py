"""Query-dependent bilinear similarities, regularised by an angle."""

import warnings
from numbers import Integral, Real
from typing import NamedTuple

import numpy as np
from joblib import effective_n_jobs
from scipy import sparse
from sklearn import get_config
from sklearn.base import BaseEstimator, _fit_context
from sklearn.callback import CallbackSupportMixin, with_callbacks
from sklearn.cluster import MiniBatchKMeans
from sklearn.exceptions import ConvergenceWarning
from sklearn.neighbors._base import _get_weights
from sklearn.preprocessing import normalize
from sklearn.utils import check_array, check_random_state, gen_batches
from sklearn.utils._chunking import get_chunk_n_rows
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.random import sample_without_replacement
from sklearn.utils.validation import check_is_fitted, validate_data
from threadpoolctl import threadpool_limits

from sklearn_simlearn._angular_fast import grams_csr, grams_dense, smo
from sklearn_simlearn._relevance import check_relevance
from sklearn_simlearn._triplets import check_triplets
from sklearn_simlearn.base import SimilarityMixin, all_or_nothing

# Candidates of one kind in a block: what bounds its Gram matrix to 2 MiB.
BLOCK_SIDE = 256

# Entries of the Gram matrices solved between two looks at callbacks and at Ctrl-C. As
# each counts for at least 2^14, there are at most 256 of them.
BATCH_SIZE = 2**22

# Steps a triplet in one visit to a block, where a problem has several.
STEPS_A_VISIT = 10

# Triplets of several blocks that are solved together: what bounds their Gram matrix.
MOST_FREE = 1000


class AngularBilinearRanker(SimilarityMixin, CallbackSupportMixin, BaseEstimator):
    r"""A bilinear similarity of its own for every query.

    For each of many *reference queries* :math:`q` a matrix :math:`W_q` is learned from
    a few labelled candidates, so that :math:`q^\top W_q x` ranks the relevant ones
    :math:`x_i` above the others :math:`x_j` by a unit margin. With few candidates a
    ranking SVM overfits; here the angle between :math:`W_q` and the identity is kept
    small as well [1]_:

    .. math::

        \min_W \; \tfrac12 \lVert W \rVert_F^2
            - \tfrac{\sigma}{2 d} (\operatorname{tr} W)^2
            + C \sum_{i, j} \max(0,\, 1 - q^\top W (x_i - x_j)) .

    A new query takes the mean of the normalised matrices of its nearest references. Its
    *surrogate* :math:`W^\top q` is compared with the stored items by the cosine, so one
    static index serves all queries, whatever is learned. The derivation is in the
    :ref:`User Guide <angular>`.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge loss of a triplet.

    sigma : float, default=0.95
        Weight :math:`\sigma` of the angle, at least 0 and below 1. Zero is the plain
        ranking SVM; close to one, nothing but a multiple of the identity is cheap.

    matrix : {"diagonal", "full"}, default="diagonal"
        Form of :math:`W`. A full one has rank one besides its multiple of the identity,
        and is stored as such.

    query_dependent : bool, default=True
        Whether each reference has its own :math:`W`. False learns a single one from the
        triplets of all references.

    references : {"medoids", "centers", "random"} or array-like, default="medoids"
        Where the reference queries come from: the samples next to the centres of
        k-means, the centres themselves, samples drawn at random; or an array, either
        one-dimensional with rows of `X` or two-dimensional with the queries. A
        reference that is no sample takes over what is relevant to the sample next to
        it. Samples that are relevant to nothing are passed over.

    n_references : int, default=1000
        Number of references; fewer where `X` has not as many, or where several centres
        have the same sample next to them. Not used with an array of `references`.

    candidates : {"balanced", "nearest", "hard", "random"}, default="balanced"
        How the labelled candidates of a reference are chosen: half relevant and half
        irrelevant at random; the nearest samples of whatever kind; the nearest relevant
        and the nearest irrelevant ones, half each; or any samples at random.

    n_candidates : int, default=50
        Number of candidates of a reference; fewer where one kind has not as many. Each
        relevant candidate makes a triplet with each irrelevant one.

    n_neighbors : int, default=10
        Number of references that a new query takes its matrix from.

    weights : {"uniform", "distance"} or callable, default="uniform"
        Weights of these: equal, by the inverse of their distance, or what a callable
        makes of an array of distances of shape (n_queries, n_neighbors).

    tol : float, default=1e-3
        Largest violation of the optimality conditions, in units of the margin.

    max_iter : int, default=1000
        Most steps of the solver, counted in multiples of the number of triplets.

    warm_start : bool, default=False
        Start from the solution of the last fit, if that had as many triplets. Along a
        path of `C` or `sigma` this saves most of the steps. Give `random_state` an int,
        or the triplets change between the fits.

    n_jobs : int, default=None
        Threads of k-means and over the references. The result does not depend on it.

    random_state : int, RandomState instance or None, default=None
        Decides on the references and on candidates drawn at random. An int makes `fit`
        repeatable.

    Attributes
    ----------
    reference_queries_ : {ndarray, csr_array} of shape (n_references, n_features)
        The references, of unit length.

    reference_indices_ : ndarray of shape (n_references,)
        Rows of `X` that are the references, or stand for them.

    directions_ : {ndarray, csr_array} of shape (n_references, n_features)
        The part :math:`v` of each :math:`W` that is learned; see `identity_weights_`. A
        single row with ``query_dependent=False`` and a diagonal matrix.

    identity_weights_ : ndarray of shape (n_references,)
        The multiple :math:`k` of the identity in each :math:`W`, which is
        :math:`\operatorname{diag}(v) + k I` or :math:`q v^\top + k I`. A reference
        without triplets has the identity itself. A single entry with
        ``query_dependent=False``.

    reference_weights_ : ndarray of shape (n_references, n_features)
        The diagonals :math:`w = v + k` of diagonal matrices.

    angles_ : ndarray of shape (n_references,)
        Angle between each :math:`W` and the identity in radians.

    n_triplets_ : ndarray of shape (n_references,)
        Number of triplets of each reference.

    n_steps_ : ndarray of shape (n_references,)
        Number of steps taken for each.

    n_iter_ : int
        The most steps taken for any reference, in multiples of its triplets.

    dual_objective_ : ndarray of shape (n_references,)
        Value of the dual problem, to be maximised.

    dual_gap_ : ndarray of shape (n_references,)
        By how much the primal objective is larger.

    violation_ : ndarray of shape (n_references,)
        Largest violation of the optimality conditions.

    n_features_in_ : int
        Width of the training data.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    sklearn.svm.LinearSVC : Solves the problem of a single reference for ``sigma=0``,
        from the differences of its candidates.

    Notes
    -----
    With `m` candidates of a reference, their Gram matrix costs
    ``O(m ** 2 * n_features)``, or as much for each non-zero feature of sparse data, and
    each step ``O(m)``. Beyond 512 candidates the problem is solved block by block, so
    that memory stays bounded. The model takes ``O(n_references * n_features)`` memory;
    of sparse data only the non-zero features are stored.

    A query costs ``O(n_references * n_features)`` to find its neighbours, and
    ``O(n_neighbors * n_features)`` for its surrogate. Surrogates of sparse queries have
    the same non-zero features with a diagonal matrix; with a full one they have those
    of all candidates of their neighbours as well.

    k-means works with dense centres. Where these would not fit into scikit-learn's
    ``working_memory``, `fit` refuses sparse data and asks for another kind of
    `references`.

    References
    ----------
    .. [1] Z. Kuang, J. Sun and K.-Y. K. Wong. "Learning regularized, query-dependent
       bilinear similarities for large scale image retrieval". CVPR Workshops, 2013.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import AngularBilinearRanker
    >>> from sklearn_simlearn.similarities import CosineSimilarity
    >>> X, y = load_digits(return_X_y=True)
    >>> cosine = CosineSimilarity(use_idf=False).fit(X[:900])
    >>> round(cosine.score(X[900:], y[900:]), 2)
    0.69
    >>> ranker = AngularBilinearRanker(n_references=200, random_state=0)
    >>> ranker = ranker.fit(X[:900], y[:900])
    >>> round(ranker.score(X[900:], y[900:]), 2)
    0.78
    >>> ranker = ranker.set_params(matrix="full").fit(X[:900], y[:900])
    >>> round(ranker.score(X[900:], y[900:]), 2)
    0.85
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "sigma": [Interval(Real, 0, 1, closed="left")],
        "matrix": [StrOptions({"diagonal", "full"})],
        "query_dependent": ["boolean"],
        "references": [
            StrOptions({"medoids", "centers", "random"}),
            "array-like",
            "sparse matrix",
        ],
        "n_references": [Interval(Integral, 1, None, closed="left")],
        "candidates": [StrOptions({"balanced", "nearest", "hard", "random"})],
        "n_candidates": [Interval(Integral, 2, None, closed="left")],
        "n_neighbors": [Interval(Integral, 1, None, closed="left")],
        "weights": [StrOptions({"uniform", "distance"}), callable],
        "tol": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        C=1.0,
        sigma=0.95,
        *,
        matrix="diagonal",
        query_dependent=True,
        references="medoids",
        n_references=1000,
        candidates="balanced",
        n_candidates=50,
        n_neighbors=10,
        weights="uniform",
        tol=1e-3,
        max_iter=1000,
        warm_start=False,
        n_jobs=None,
        random_state=None,
    ):
        self.C = C
        self.sigma = sigma
        self.matrix = matrix
        self.query_dependent = query_dependent
        self.references = references
        self.n_references = n_references
        self.candidates = candidates
        self.n_candidates = n_candidates
        self.n_neighbors = n_neighbors
        self.weights = weights
        self.tol = tol
        self.max_iter = max_iter
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit(self, X, y):
        """Choose references and candidates, and learn a matrix for each reference.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        y : array-like of shape (n_samples,) or (n_samples, n_columns)
            Labels, where the integer -1 marks a distractor; or a relevance matrix,
            positive where a sample is relevant, negative where it is junk.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = validate_data(
            self,
            X,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            order="C",
            ensure_min_samples=2,
        )
        relevance = check_relevance(y, n_samples=X.shape[0])
        _check_learnable(relevance)
        X = _unit_rows(X)
        # A stream each, so that the candidates do not depend on how references came.
        seeds = check_random_state(self.random_state).randint(2**31 - 1, size=2)
        references, indices, are_samples = self._choose_references(
            X, relevance, np.random.RandomState(seeds[0])
        )
        blocks = self._choose_candidates(
            X,
            relevance,
            references,
            indices,
            are_samples,
            np.random.RandomState(seeds[1]),
        )
        if not blocks:
            raise ValueError(
                f"No reference has both a relevant and an irrelevant candidate in y "
                f"with {len(indices)} references and n_candidates={self.n_candidates}: "
                f"raise either, or choose other candidates than "
                f'"{self.candidates}".'
            )
        return self._learn(X, y, references, indices, blocks)

    @with_callbacks
    @_fit_context(prefer_skip_nested_validation=True)
    @all_or_nothing
    def fit_triplets(self, X, triplets):
        """Learn from triplets instead of labels.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            Training samples.

        triplets : array-like of shape (n_triplets, 3), dtype int
            Rows of `X`: a query, a sample that is relevant to it, and one that is not,
            or less so. The queries become the references; `references`, `candidates`
            and their numbers are not used.

        Returns
        -------
        self : object
            The estimator itself.
        """
        X = validate_data(
            self, X, accept_sparse="csr", dtype=[np.float64, np.float32], order="C"
        )
        triplets = check_triplets(triplets, X.shape[0])
        X = _unit_rows(X)
        indices, query = np.unique(triplets[:, 0], return_inverse=True)
        blocks = _blocks_of_triplets(query, triplets[:, 1], triplets[:, 2])
        return self._learn(X, None, X[indices], indices, blocks)

    def _choose_references(self, X, relevance, rng):
        """The queries, the samples that stand for them, and whether they are these."""
        eligible = np.flatnonzero(relevance.can_query)
        if not isinstance(self.references, str):
            return self._given_references(X, eligible)
        n_references = min(self.n_references, len(eligible))
        if n_references == len(eligible):
            return X[eligible], eligible, True
        if self.references == "random":
            chosen = sample_without_replacement(
                len(eligible), n_references, random_state=rng
            )
            indices = eligible[np.sort(chosen)]
            return X[indices], indices, True

        _check_memory(
            X,
            n_references,
            "k-means, which has dense centres",
            'lower n_references or use references="random"',
        )
        kmeans = MiniBatchKMeans(
            n_references,
            batch_size=max(1024, 4 * n_references),
            n_init=1,
            random_state=rng,
        )
        among = X[eligible]
        if sparse.issparse(among):  # k-means takes no 64-bit indices
            among.indices = among.indices.astype(np.int32, copy=False)
            among.indptr = among.indptr.astype(np.int32, copy=False)
        with threadpool_limits(effective_n_jobs(self.n_jobs), user_api="openmp"):
            centers = normalize(kmeans.fit(among).cluster_centers_)
        nearest = _nearest_rows(centers, X, eligible)
        if self.references == "medoids":
            indices = np.unique(nearest)
            return X[indices], indices, True
        return _like(centers, X), nearest, False

    def _given_references(self, X, eligible):
        references = check_array(
            self.references,
            accept_sparse="csr",
            dtype=None,
            ensure_2d=False,
            input_name="references",
        )
        if references.ndim == 1:
            n_samples = X.shape[0]
            if references.dtype.kind not in "iu":
                raise ValueError(
                    "A one-dimensional array of references must hold rows of X; got "
                    f"{references.dtype}."
                )
            if references.min() < 0 or references.max() >= n_samples:
                raise ValueError(
                    f"references must be rows of X, from 0 to {n_samples - 1}; got "
                    f"{references.min()} to {references.max()}."
                )
            return X[references], references.astype(np.int64), True
        if references.ndim != 2 or references.shape[1] != X.shape[1]:
            raise ValueError(
                f"references must have the {X.shape[1]} features of X; got shape "
                f"{references.shape}."
            )
        references = _unit_rows(_like(references.astype(X.dtype), X))
        return references, _nearest_rows(references, X, eligible), False

    def _choose_candidates(self, X, relevance, references, indices, are_samples, rng):
        """Blocks of all pairs of a relevant and an irrelevant candidate."""
        n_samples = X.shape[0]
        by_distance = self.candidates in ("nearest", "hard")
        n_relevant = self.n_candidates // 2
        blocks = []
        n_rows = get_chunk_n_rows(32 * n_samples, max_n_rows=len(indices))
        for batch in gen_batches(len(indices), n_rows):
            # 1 for relevant, 0 for irrelevant, -1 for junk and the reference itself
            kind = relevance.block(indices[batch], slice(None))
            if are_samples:
                kind[np.arange(len(kind)), indices[batch]] = -1
            if by_distance:
                S = safe_sparse_dot(references[batch], X.T, dense_output=True)
            for i, reference in enumerate(range(batch.start, batch.stop)):
                if self.candidates in ("nearest", "random"):
                    pools = [(kind[i] >= 0, self.n_candidates)]
                else:
                    pools = [
                        (kind[i] == 1, n_relevant),
                        (kind[i] == 0, self.n_candidates - n_relevant),
                    ]
                chosen = []
                for pool, n in pools:
                    rows = np.flatnonzero(pool)
                    if len(rows) > n and by_distance:
                        rows = rows[_largest(S[i : i + 1, rows], n)[0]]
                    elif len(rows) > n:
                        draw = sample_without_replacement(
                            len(rows), n, random_state=rng
                        )
                        rows = rows[np.sort(draw)]
                    chosen.append(rows)
                rows = np.concatenate(chosen)
                relevant = kind[i, rows] == 1
                blocks += _blocks_of_pairs(reference, rows[relevant], rows[~relevant])
        return blocks

    def _learn(self, X, y, references, indices, blocks):
        if self.matrix == "full" and not self.query_dependent:
            _check_memory(
                X,
                len(indices),
                "a single full matrix, which has a dense row for each reference",
                "lower n_references",
            )

        # From here on the inputs are sound: kernels check nothing.
        dual = _Dual(
            X,
            references,
            blocks,
            pooled=not self.query_dependent,
            diagonal=self.matrix == "diagonal",
            kappa=self.sigma / (X.shape[1] * (1 - self.sigma)),
            C=self.C,
            tol=self.tol,
            max_iter=self.max_iter,
            n_threads=effective_n_jobs(self.n_jobs),
            keep_alpha=self.warm_start,
        )
        if self.warm_start and hasattr(self, "_alpha"):
            dual.start_from(self._alpha)

        def attributes():
            return self._describe(dual, indices)

        context = self._init_callback_context(max_subtasks=None)
        context.call_on_fit_task_begin(estimator=self, X=X, y=y)
        stop = False
        with threadpool_limits(1, user_api="blas"):
            for task in dual.tasks():
                while not (stop or task.done):
                    part = context.subcontext(task_name=task.name)
                    part.call_on_fit_task_begin(estimator=self, X=X, y=y)
                    task.advance()
                    stop = part.call_on_fit_task_end(
                        estimator=self,
                        X=X,
                        y=y,
                        reconstruction_attributes=attributes,
                    )
            fitted = attributes()
        n_late = np.count_nonzero(dual.is_late)
        if n_late:
            warnings.warn(
                f"{n_late} of {np.count_nonzero(dual.n_triplets)} problems did not "
                f"reach tol={self.tol} in max_iter={self.max_iter} steps a triplet. "
                "Raise either, or lower C or sigma.",
                ConvergenceWarning,
                stacklevel=2,
            )
        for name, value in fitted.items():
            setattr(self, name, value)
        context.call_on_fit_task_end(
            estimator=self, X=X, y=y, reconstruction_attributes=fitted
        )
        return self

    def _describe(self, dual, indices):
        """The fitted attributes, from the solution so far."""
        n_features = dual.X.shape[1]
        directions, trace = dual.directions()
        n_steps, violation, sum_alpha, quadratic, hinge = dual.report().T

        # (angular-norm)  |W|^2 = <W, A W> + sigma / d (tr W)^2
        trace_W = trace / (1 - self.sigma)
        norm = np.sqrt(np.maximum(quadratic, 0) + self.sigma / n_features * trace_W**2)
        identity_weights = dual.kappa * trace
        # No triplets, or candidates that differ by rounding errors only: the identity.
        empty = norm <= 1e-8 * sum_alpha
        norm[empty] = np.sqrt(n_features)
        identity_weights[empty] = 1
        if empty.any():
            keep = np.broadcast_to(~empty, directions.shape[0])
            directions = _scale_rows(directions, keep.astype(np.float64))
        cosine = trace_W / (norm * np.sqrt(n_features))
        cosine[empty] = 1

        objective = sum_alpha - quadratic / 2
        n_triplets = dual.n_triplets
        fitted = {
            "reference_queries_": dual.references,
            "reference_indices_": indices,
            "directions_": directions.astype(dual.X.dtype, copy=False),
            "identity_weights_": identity_weights,
            "angles_": np.arccos(np.clip(cosine, -1, 1)),
            "n_triplets_": n_triplets,
            "n_steps_": n_steps.astype(np.int64),
            "n_iter_": int(np.ceil(n_steps / np.maximum(n_triplets, 1)).max()),
            "dual_objective_": objective,
            "dual_gap_": quadratic / 2 + self.C * hinge - objective,
            "violation_": violation,
            "_norm": norm,
            "_n_features_out": n_features,
        }
        if self.warm_start:
            fitted["_alpha"] = dual.alpha
        return fitted

    @property
    def reference_weights_(self):
        """Diagonals of the learned matrices, one a row."""
        check_is_fitted(self)
        if self.matrix == "full":
            raise AttributeError(
                "Full matrices have no vector of weights: reference_queries_, "
                "directions_ and identity_weights_ define them."
            )
        directions = self.directions_
        if sparse.issparse(directions):
            _check_memory(
                directions,
                directions.shape[0],
                "dense weights",
                "add directions_ and identity_weights_ for the rows you need",
            )
            directions = _dense(directions)
        return directions + self.identity_weights_[:, None].astype(directions.dtype)

    def _encode_queries(self, X):
        X = _unit_rows(X)
        width = self.reference_queries_.shape[0]
        width += 0 if sparse.issparse(X) else X.shape[1]
        n_rows = get_chunk_n_rows(32 * width, max_n_rows=X.shape[0])
        surrogates = [
            self._surrogates(X[batch]) for batch in gen_batches(X.shape[0], n_rows)
        ]
        if sparse.issparse(X):
            return sparse.vstack(surrogates, format="csr")
        return np.concatenate(surrogates)

    def _surrogates(self, Q):
        """(angular-surrogate) for rows of unit length."""
        if self.query_dependent:
            share, on_identity = self._mix(Q)
            mixed = share @ self.directions_
            if self.matrix == "diagonal":
                mixed = _multiply(Q, mixed if sparse.issparse(Q) else _dense(mixed))
        else:
            on_identity = np.repeat(self.identity_weights_, Q.shape[0])
            if self.matrix == "diagonal":
                mixed = _multiply(Q, _dense(self.directions_))
            else:
                mixed = (Q @ self.reference_queries_.T) @ self.directions_
        surrogates = _like(mixed, Q) + _scale_rows(Q, on_identity)
        return normalize(surrogates.astype(Q.dtype, copy=False), copy=False)

    def _mix(self, Q):
        """Shares of the neighbours' directions in each surrogate, and of the query."""
        n_queries, n_references = Q.shape[0], self.reference_queries_.shape[0]
        n_neighbors = min(self.n_neighbors, n_references)
        similarity = safe_sparse_dot(Q, self.reference_queries_.T, dense_output=True)
        neighbors = _largest(similarity, n_neighbors)
        similarity = np.take_along_axis(similarity, neighbors, axis=1)
        distance = np.sqrt(np.maximum(2 - 2 * _round(similarity), 0))
        share = _get_weights(distance.astype(np.float64), self.weights)
        share = 1.0 if share is None else np.asarray(share)
        share = share / self._norm[neighbors]
        on_identity = np.sum(share * self.identity_weights_[neighbors], axis=1)
        if self.matrix == "full":
            share = share * similarity
        share = sparse.csr_array(
            (
                share.astype(Q.dtype).ravel(),
                neighbors.ravel(),
                np.arange(n_queries + 1) * n_neighbors,
            ),
            shape=(n_queries, n_references),
        )
        return share, on_identity

    def _encode_items(self, X):
        return _unit_rows(X)


# -- Triplets, in blocks of bounded size --


class _Block(NamedTuple):
    """Triplets of one reference among a bounded number of candidates."""

    reference: int
    rows: np.ndarray  # of X, the relevant ones first
    n_relevant: int
    pairs: np.ndarray | None = None  # (2, n_triplets) places in rows; None for all

    @property
    def n_triplets(self):
        if self.pairs is None:
            return self.n_relevant * (len(self.rows) - self.n_relevant)
        return self.pairs.shape[1]

    def triplets(self):
        """Places in `rows` of the relevant and of the irrelevant side."""
        if self.pairs is not None:
            return self.pairs
        place = np.arange(len(self.rows), dtype=np.int32)
        relevant, irrelevant = place[: self.n_relevant], place[self.n_relevant :]
        return np.repeat(relevant, len(irrelevant)), np.tile(irrelevant, len(relevant))


def _blocks_of_pairs(reference, relevant, irrelevant):
    """All pairs, as a grid of blocks; no block where one kind is missing."""
    blocks = []
    for i in range(0, len(relevant), BLOCK_SIDE):
        for j in range(0, len(irrelevant), BLOCK_SIDE):
            own = relevant[i : i + BLOCK_SIDE]
            rows = np.concatenate([own, irrelevant[j : j + BLOCK_SIDE]])
            blocks.append(_Block(reference, rows, len(own)))
    return blocks


def _blocks_of_triplets(query, relevant, irrelevant):
    """Blocks of listed triplets, for queries numbered from 0."""
    order = np.argsort(query, kind="stable")
    ends = np.cumsum(np.bincount(query))
    blocks = []
    for reference, own in enumerate(np.split(order, ends[:-1])):
        i_rows, i = np.unique(relevant[own], return_inverse=True)
        j_rows, j = np.unique(irrelevant[own], return_inverse=True)
        i_tile, i = np.divmod(i.astype(np.int32), BLOCK_SIDE)
        j_tile, j = np.divmod(j.astype(np.int32), BLOCK_SIDE)
        for a in range(i_tile.max() + 1):
            for b in range(j_tile.max() + 1):
                inside = (i_tile == a) & (j_tile == b)
                if inside.any():
                    own = i_rows[a * BLOCK_SIDE : (a + 1) * BLOCK_SIDE]
                    other = j_rows[b * BLOCK_SIDE : (b + 1) * BLOCK_SIDE]
                    rows = np.concatenate([own, other])
                    pairs = np.stack([i[inside], j[inside] + np.int32(len(own))])
                    blocks.append(_Block(reference, rows, len(own), pairs))
    return blocks


# -- Solving them --


class _Dual:
    """The dual problems of all references, or the one of all together.

    Attributes
    ----------
    alpha : list of ndarray or None
        The variables of the triplets, block by block; None for zeros.

    beta : list of ndarray
        Their sums over the triplets of each candidate, (angular-beta).

    block_report : ndarray of shape (n_blocks, 5)
        Columns of the kernel's report.

    is_late : ndarray of shape (n_problems,), dtype bool
        Whether `max_iter` came before `tol`.
    """

    def __init__(
        self,
        X,
        references,
        blocks,
        *,
        pooled,
        diagonal,
        kappa,
        C,
        tol,
        max_iter,
        n_threads,
        keep_alpha,
    ):
        self.X = X
        self.references = references
        self.blocks = blocks
        self.pooled = pooled
        self.diagonal = diagonal
        self.kappa = kappa
        self.C = C
        self.tol = tol
        self.max_iter = max_iter
        self.n_threads = n_threads
        self.keep_alpha = keep_alpha
        self.reference = np.array([block.reference for block in blocks])
        self.owner = np.zeros_like(self.reference) if pooled else self.reference
        self.n_rows = np.array([len(block.rows) for block in blocks])
        self.block_triplets = np.array([block.n_triplets for block in blocks])
        self.alpha = [np.zeros(n) if keep_alpha else None for n in self.block_triplets]
        self.beta = [np.zeros(n) for n in self.n_rows]
        self.block_report = np.zeros((len(blocks), 5))
        n_problems = 1 if pooled else references.shape[0]
        self.n_triplets = np.zeros(n_problems, dtype=np.int64)
        np.add.at(self.n_triplets, self.owner, self.block_triplets)
        self.is_late = np.zeros(n_problems, dtype=bool)
        self.descents = []

    def start_from(self, alpha):
        """Take over a solution, if it is one for as many triplets."""
        if list(map(len, alpha)) == self.block_triplets.tolist():
            self.alpha = [np.minimum(a, self.C) for a in alpha]
            self.beta = [
                _beta(a, *block.triplets(), len(block.rows))
                for a, block in zip(self.alpha, self.blocks, strict=True)
            ]

    def tasks(self):
        """What to do in turn: batches of small problems, then each large one."""
        n_blocks = np.bincount(self.owner)
        small = np.flatnonzero((n_blocks[self.owner] == 1) & (not self.pooled))
        size = np.cumsum(np.maximum(self.n_rows[small] ** 2, 2**14)) // BATCH_SIZE
        batches = np.split(small, np.flatnonzero(np.diff(size)) + 1)
        large = np.unique(np.delete(self.owner, small))
        self.descents = [
            _Descent(self, np.flatnonzero(self.owner == owner)) for owner in large
        ]
        return [_Batch(self, batch) for batch in batches if len(batch)] + self.descents

    def solve(self, numbers, *, scores=None, max_iter, n_threads=1):
        """Run SMO on some blocks, each by itself; returns the kernel's report.

        Without the `scores` of the candidates, a block is all there is to its problem.
        """
        blocks = [self.blocks[number] for number in numbers]
        n_rows, n_triplets = self.n_rows[numbers], self.block_triplets[numbers]
        offsets = _offsets(n_rows)
        gram_offsets = _offsets(n_rows**2)
        triplet_offsets = _offsets(n_triplets)
        grams = np.empty(gram_offsets[-1])
        layout = (
            self.reference[numbers],
            np.concatenate([block.rows for block in blocks]),
            offsets,
            gram_offsets,
            self.diagonal,
            self.kappa,
            n_threads,
            grams,
        )
        if sparse.issparse(self.X):
            rows, queries = _csr_arrays(self.X, self.references)
            grams_csr(*rows, *queries, self.X.shape[1], *layout)
        else:
            grams_dense(self.X, self.references, *layout)

        if scores is None:
            scores = np.zeros(offsets[-1])
            for b, number in enumerate(numbers):
                if self.alpha[number] is not None:
                    gram = grams[gram_offsets[b] : gram_offsets[b + 1]]
                    gram = gram.reshape(n_rows[b], n_rows[b])
                    scores[offsets[b] : offsets[b + 1]] = gram @ self.beta[number]
        alpha = np.zeros(triplet_offsets[-1])
        for b, number in enumerate(numbers):
            if self.alpha[number] is not None:
                alpha[triplet_offsets[b] : triplet_offsets[b + 1]] = self.alpha[number]
        sides = [block.triplets() for block in blocks]
        relevant = np.concatenate([i for i, _ in sides])
        irrelevant = np.concatenate([j for _, j in sides])
        report = np.empty((len(blocks), 5))
        smo(
            grams,
            gram_offsets,
            offsets,
            relevant,
            irrelevant,
            triplet_offsets,
            self.C,
            self.tol,
            max_iter,
            n_threads,
            alpha,
            scores,
            report,
        )

        shift = np.repeat(offsets[:-1], n_triplets)
        beta = _beta(alpha, relevant + shift, irrelevant + shift, offsets[-1])
        for b, number in enumerate(numbers):
            self.alpha[number] = alpha[triplet_offsets[b] : triplet_offsets[b + 1]]
            self.beta[number] = beta[offsets[b] : offsets[b + 1]]
        return report

    def report(self):
        """The kernel's report for each problem."""
        for descent in self.descents:
            descent.look()
        report = np.zeros((len(self.n_triplets), 5))
        np.add.at(report, self.owner, self.block_report)
        report[:, 1] = 0
        np.maximum.at(report[:, 1], self.owner, self.block_report[:, 1])
        return report

    def directions(self):
        """The learned part of each W, and its trace: (angular-solution)."""
        combine = sparse.csr_array(
            (
                np.concatenate(self.beta),
                (
                    np.repeat(self.reference, self.n_rows),
                    np.concatenate([block.rows for block in self.blocks]),
                ),
            ),
            shape=(self.references.shape[0], self.X.shape[0]),
        )
        directions = combine @ self.X
        weights = _multiply(directions, self.references)
        trace = weights.sum(axis=1, dtype=np.float64)
        if self.pooled:
            trace = trace.sum(keepdims=True)
            weights = _like(weights.sum(axis=0)[None], self.X)
        return (weights if self.diagonal else directions), trace


class _Batch:
    """Problems of one block each, solved at once."""

    name = "references"

    def __init__(self, dual, numbers):
        self.dual = dual
        self.numbers = numbers
        self.done = False

    def advance(self):
        dual, numbers = self.dual, self.numbers
        report = dual.solve(
            numbers,
            max_iter=dual.max_iter,
            n_threads=min(dual.n_threads, len(numbers)),
        )
        dual.block_report[numbers] = report
        at_limit = report[:, 0] >= dual.max_iter * dual.block_triplets[numbers]
        dual.is_late[dual.owner[numbers]] = at_limit & (report[:, 1] > dual.tol)
        if not dual.keep_alpha:
            for number in numbers:
                dual.alpha[number] = None
        self.done = True


class _Descent:
    """One problem over several blocks, a pass through them at a time.

    A block sees the others through W alone, which is kept here: (angular-blocks).
    """

    name = "pass"

    def __init__(self, dual, numbers):
        self.dual = dual
        self.numbers = numbers
        self.done = False
        self.n_passes = 0
        # A diagonal W has one row, a full one a row for each of its references.
        references, self.place = np.unique(dual.reference[numbers], return_inverse=True)
        if dual.diagonal:
            self.place[:] = 0
        self.queries = dual.references[references]
        self.directions = np.zeros((self.place.max() + 1, dual.X.shape[1]))
        self.trace = 0.0
        for number, place in zip(numbers, self.place, strict=True):
            if dual.beta[number].any():
                self._move(place, dual.beta[number], *self._features(number))

    def advance(self):
        n_steps = sum(self._visit(max_iter=STEPS_A_VISIT))
        self.n_passes += 1
        self.done = n_steps == 0 or self.n_passes == self.dual.max_iter
        self.dual.is_late[self.dual.owner[self.numbers[0]]] = self.done and n_steps > 0
        if not self.done:
            self._solve_free()

    def look(self):
        """Bring the report up to date."""
        sum(self._visit(max_iter=0))

    def _visit(self, max_iter):
        """Solve the blocks in turn; yields the number of steps taken in each."""
        dual = self.dual
        for number, place in zip(self.numbers, self.place, strict=True):
            q, rows, t = self._features(number)
            if dual.diagonal:
                surrogate = q * self.directions[0]
            else:
                surrogate = (self.queries @ q) @ self.directions
            scores = rows @ surrogate + dual.kappa * self.trace * t
            before = dual.beta[number]
            report = dual.solve(np.array([number]), scores=scores, max_iter=max_iter)[0]
            n_steps = report[0]
            if n_steps:
                self._move(place, dual.beta[number] - before, q, rows, t)
            report[0] += dual.block_report[number, 0]
            dual.block_report[number] = report
            yield n_steps

    def _features(self, number):
        """The query, the candidates, and their products with the query."""
        block = self.dual.blocks[number]
        q = _dense(self.dual.references[[block.reference]])[0].astype(np.float64)
        rows = self.dual.X[block.rows]
        return q, rows, rows @ q

    def _move(self, place, beta, q, rows, t):
        step = rows.T @ beta
        self.directions[place] += q * step if self.dual.diagonal else step
        self.trace += beta @ t

    def _solve_free(self):
        """Solve for the triplets strictly between the bounds, of all blocks together.

        In general position they are no more than the parameters of W, and they are
        what the blocks are slow to agree on.
        """
        dual = self.dual
        free = [
            np.flatnonzero((dual.alpha[number] > 0) & (dual.alpha[number] < dual.C))
            for number in self.numbers
        ]
        fit = np.cumsum([len(own) for own in free]) <= MOST_FREE
        chosen = [
            (number, dual.blocks[number], own, place)
            for number, own, place in zip(
                self.numbers[fit], free[: fit.sum()], self.place[fit], strict=True
            )
            if len(own)
        ]
        if not chosen:
            return
        n_own = [len(own) for _, _, own, _ in chosen]
        i, j = np.concatenate(
            [
                block.rows[np.stack(block.triplets())[:, own]]
                for _, block, own, _ in chosen
            ],
            axis=1,
        )
        queries = [block.reference for _, block, _, _ in chosen]
        Q = dual.references[np.repeat(queries, n_own)].astype(np.float64)
        difference = dual.X[i].astype(np.float64) - dual.X[j].astype(np.float64)
        on_query = _multiply(Q, difference)
        t = on_query.sum(axis=1)

        # The triplets are candidates themselves, set against one of score 0.
        n = len(t)
        gram, scores = np.zeros((n + 1, n + 1)), np.zeros(n + 1)
        if dual.diagonal:
            gram[:n, :n] = _dense(on_query @ on_query.T)
            scores[:n] = on_query @ self.directions[0]
        else:
            gram[:n, :n] = _dense(Q @ Q.T) * _dense(difference @ difference.T)
            surrogates = _dense(Q @ self.queries.T) @ self.directions
            scores[:n] = _multiply(difference, surrogates).sum(axis=1)
        gram[:n, :n] += dual.kappa * np.outer(t, t)
        scores[:n] += dual.kappa * self.trace * t
        before = np.concatenate(
            [dual.alpha[number][own] for number, _, own, _ in chosen]
        )
        alpha = before.copy()
        smo(
            gram.ravel(),
            _offsets([gram.size]),
            _offsets([n + 1]),
            np.arange(n, dtype=np.int32),
            np.full(n, n, dtype=np.int32),
            _offsets([n]),
            dual.C,
            dual.tol,
            dual.max_iter,
            1,
            alpha,
            scores,
            np.empty((1, 5)),
        )

        place = np.repeat([place for _, _, _, place in chosen], n_own)
        combine = sparse.csr_array(
            (alpha - before, (place, np.arange(n))),
            shape=(len(self.directions), n),
        )
        features = on_query if dual.diagonal else difference
        self.directions += _dense(combine @ features)
        self.trace += (alpha - before) @ t
        parts = np.split(alpha, np.cumsum(n_own)[:-1])
        for (number, block, own, _), part in zip(chosen, parts, strict=True):
            dual.alpha[number][own] = part
            dual.beta[number] = _beta(
                dual.alpha[number], *block.triplets(), len(block.rows)
            )


def _offsets(sizes):
    return np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)])


def _beta(alpha, relevant, irrelevant, n_candidates):
    """(angular-beta): sums of alpha over the triplets, negative if irrelevant."""
    return np.bincount(relevant, alpha, n_candidates) - np.bincount(
        irrelevant, alpha, n_candidates
    )


def _csr_arrays(*matrices):
    """What the kernel takes of each: indices of one type for all, 64-bit indptr."""
    dtype = np.result_type(*(matrix.indices for matrix in matrices))
    return [
        (
            matrix.data,
            matrix.indices.astype(dtype, copy=False),
            matrix.indptr.astype(np.int64, copy=False),
        )
        for matrix in matrices
    ]


# -- Rows, and which of them are near --


def _unit_rows(X):
    """A copy with rows of unit length; as a csr_array without duplicates if sparse."""
    if sparse.issparse(X):
        X = sparse.csr_array(X, copy=True)
        X.sum_duplicates()
        return normalize(X, copy=False)
    return normalize(X)


def _dense(X):
    return X.toarray() if sparse.issparse(X) else X


def _like(rows, X):
    """Rows in a container of the kind of X."""
    return sparse.csr_array(rows) if sparse.issparse(X) else _dense(rows)


def _multiply(X, Y):
    """Product entry by entry, sparse if X is."""
    return sparse.csr_array(X.multiply(Y)) if sparse.issparse(X) else X * Y


def _scale_rows(X, scale):
    if sparse.issparse(X):
        return sparse.diags_array(scale) @ X
    return scale[:, None] * X


def _round(S):
    """Cosines without their rounding errors: equal ones stay equal however they were
    summed, or dense and sparse data, or two BLAS libraries, would break ties apart."""
    return np.round(S, 5 if S.dtype == np.float32 else 12)


def _largest(S, k):
    """Columns of the k largest cosines of each row in ascending order, the first ones
    of those that are equal."""
    S = _round(S)
    threshold = np.partition(S, S.shape[1] - k, axis=1)[:, [S.shape[1] - k]]
    keep = threshold <= S
    for row in np.flatnonzero(np.count_nonzero(keep, axis=1) > k):
        tied = np.flatnonzero(S[row] == threshold[row])
        n_spare = np.count_nonzero(keep[row]) - k
        keep[row, tied[len(tied) - n_spare :]] = False
    return np.nonzero(keep)[1].reshape(len(S), k)


def _nearest_rows(queries, X, eligible):
    """The eligible row of X next to each query."""
    nearest = []
    n_rows = get_chunk_n_rows(24 * len(eligible), max_n_rows=queries.shape[0])
    among = X[eligible]
    for batch in gen_batches(queries.shape[0], n_rows):
        S = safe_sparse_dot(queries[batch], among.T, dense_output=True)
        nearest.append(_largest(S, 1)[:, 0])
    return eligible[np.concatenate(nearest)]


# -- Refusals --


def _check_learnable(relevance):
    """Refuse targets in which no sample has both something relevant and irrelevant."""
    queries = np.flatnonzero(relevance.can_query)
    n_rows = get_chunk_n_rows(8 * len(relevance), max_n_rows=64)
    for batch in gen_batches(len(queries), n_rows) if len(queries) else ():
        kind = relevance.block(queries[batch], slice(None))
        # Each is relevant to itself.
        has_relevant = np.count_nonzero(kind == 1, axis=1) > 1
        if np.any(has_relevant & (kind == 0).any(axis=1)):
            return
    raise ValueError(
        "y has no triplet to learn from: it takes a sample with another one that is "
        "relevant to it, and one that is not."
    )


def _check_memory(X, n_rows, what, remedy):
    """Refuse to make dense rows of sparse data beyond the working memory."""
    limit = get_config()["working_memory"]
    needed = n_rows * X.shape[1] * 8 / 2**20
    if sparse.issparse(X) and needed > limit:
        raise ValueError(
            f"{needed:.0f} MiB would be needed for {what} of {X.shape[1]} features, "
            f"above the working_memory of {limit} MiB: {remedy}, or raise the limit by "
            "sklearn.set_config(working_memory=...)."
        )
