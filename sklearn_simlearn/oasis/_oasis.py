"""Online algorithm for scalable image similarity (OASIS)."""

from copy import deepcopy
from numbers import Integral, Real
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.sparse.linalg import svds
from sklearn.callback import with_callbacks
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.dask import is_partitioned
from sklearn_simlearn._core.dask_batches import partial_fit_partitions
from sklearn_simlearn._core.paper import PaperFormMixin
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.relevance import check_relevance
from sklearn_simlearn._core.sklearn import Interval, StrOptions, fit_context
from sklearn_simlearn._core.targets import TargetLike
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.triplets import check_triplets, triplet_sampler
from sklearn_simlearn._core.typing import MatrixLike, RandomState
from sklearn_simlearn._holdout import (
    START,
    choose,
    forget_holdout,
    warn_of_no_holdout,
)
from sklearn_simlearn._validation import HOLDOUT_OR_SEVERAL, Validation
from sklearn_simlearn.base import TripletLearner, callback_steps, replacing_state
from sklearn_simlearn.oasis._dask import learn_held_out, learn_plain
from sklearn_simlearn.oasis._encoders import Bilinear, Dissimilarity, Factors
from sklearn_simlearn.oasis._path import Candidate, Path
from sklearn_simlearn.oasis._steps import (
    Rankers,
    Settings,
    draw_stream,
    given_stream,
    positive_factor,
    refuse_long_rows,
)

# Largest W of the plain form, in GiB.
MAX_GIB = 4


class OASIS(PaperFormMixin, TripletLearner):
    r"""Bilinear similarity learned online from triplets.

    OASIS [1]_ learns a matrix :math:`W` so that :math:`S_W(q, x) = q^\top W x` ranks
    samples relevant to a query above all others by a margin of one. Each triplet of a
    query, a relevant and an irrelevant sample, :math:`(q, x^+, x^-)`, changes :math:`W`
    just enough to reach the margin, by a step of at most `C`:

    .. math::

        W \leftarrow W + \tau\, q (x^+ - x^-)^\top, \qquad
        \tau = \min\left(C,\;
            \frac{\max(0,\, 1 - S_W(q, x^+) + S_W(q, x^-))}
                 {\lVert q \rVert^2 \lVert x^+ - x^- \rVert^2}\right).

    By default, OASIS learns from rows of unit length and hard negatives, and ranks by
    the cosine under :math:`W`. It mixes this similarity with the plain cosine as far as
    this improves the rankings of held-out samples. `from_paper` returns the form of the
    paper. The derivations are in the :ref:`User Guide <oasis>`.

    Parameters
    ----------
    C : float, default=0.1
        Largest step :math:`\tau`. Smaller values resist label noise.

    n_triplets : int, default=100_000
        Number of triplets to draw and visit. There is no convergence criterion. With a
        `holdout`, this is an upper bound: held-out samples choose among 1,000, 4,000
        and 16,000 triplets, with ``holdout="samples"`` also 64,000, ... `fit_triplets`
        does not use it. With a `holdout`, held-out queries choose among 1,000, 4,000,
        ... and all of the given triplets, in random order. Otherwise all given triplets
        are visited in their order.

    holdout : str, int or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of samples that are held out to decide how far to move away from the start,
        the cosine (of tf-idf if `X` holds counts). Hold out whole classes ("objects")
        if future queries are of classes that are not in `y`, or "samples" if they are
        of the classes in `y`. Unless `y` holds judgements, metrics in closed form are
        also tried as initial :math:`W`. None learns the plain form from `n_triplets`
        triplets: rows of `X` without scaling, random negatives, and the similarity
        :math:`q^\top W x`. An int also learns the plain form. It holds out this number
        of samples of each class, at least two, which query each other after every
        10,000 triplets, and keeps the best :math:`W`.

    symmetric : {None, "final", "online", "dissimilarity"}, default=None
        Symmetry of the :math:`W` of the plain form. None does not enforce it. "final"
        takes :math:`(W + W^\top) / 2` at the end, "online" after every step.
        "dissimilarity" learns :math:`S_W(q, x) = -(q - x)^\top W (q - x)` instead.

    psd : {None, "final"} or int, default=None
        Project the :math:`W` of the plain form onto the symmetric positive
        semi-definite matrices: never, at the end, or after every `psd` triplets and at
        the end. `transform` then embeds queries and items in the same space.

    n_components : int, default=None
        Number of dimensions of the embedding to keep; in the plain form, rank of a
        factorisation of :math:`W`. None keeps all.

    n_models : int, default=1
        Number of rankers to train and average. Each draws its own `n_triplets`
        triplets.

    relevance_threshold : float, default=0.0
        Largest joint probability at which two samples count as irrelevant to each
        other, if `y` is a relevance matrix.

    n_jobs : int, default=None
        Number of rankers to train at a time, by the current joblib backend. In a
        :func:`joblib.parallel_config` context, the rankers can run on a cluster.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out and which triplets are drawn. An int makes
        `fit` exactly repeatable, for any `n_jobs`.

    Attributes
    ----------
    share_ : float
        Share of the start in the similarity; 1 if the start is kept. The plain form
        sets neither this attribute nor those from `offset_` to `idf_`.

    components_ : ndarray of shape (n_components, n_features)
        Matrix that embeds rows of unit length. Not set if `share_` is 1. In the
        plain form with `psd`, ``components_.T @ components_`` is :math:`W`, or its best
        approximation of rank `n_components`.

    offset_ : ndarray of shape (n_components,)
        Vector that is subtracted from embedded rows.

    metric_ : {"whitened", "discriminant"} or None
        Metric in closed form that :math:`W` started from: whitening within classes, or
        the coordinates of a discriminant analysis; None if it started from the
        identity.

    shrinkage_ : float or None
        Weight of a multiple of the identity in the covariance within classes, for
        `metric_`.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if `X` holds counts.

    W_ : ndarray of shape (n_features, n_features)
        The learned matrix of the plain form, of the dtype of `X`.

    symmetry_index_ : float
        Frobenius norm of the symmetric part of `W_`, as a share of the norm of `W_`. It
        is 1 if :math:`W` is symmetric.

    query_components_, item_components_ : ndarray of shape (n_components, n_features)
        In the plain form with `n_components` and no `psd`, the factors:
        ``query_components_.T @ item_components_`` approximates :math:`W`.

    loss_curve_ : ndarray of shape (n_intervals,)
        Mean hinge loss over each 10,000 triplets. Each loss is computed before the
        update.

    n_triplets_ : int
        Number of triplets that each ranker has visited, over all calls of
        `partial_fit`. With an int as `holdout`, number of triplets up to the best `W_`.

    n_updates_ : int
        Number of these triplets that changed :math:`W`, over all rankers.

    See Also
    --------
    sklearn.neighbors.NeighborhoodComponentsAnalysis : Learns a distance, from all
        pairs at once.

    Notes
    -----
    With a `holdout`, data of more than 500 features is projected onto its 500 leading
    directions first, which bounds the cost of a triplet. The start uses all features.
    `transform` returns the columns of the start followed by the learned columns.

    If `X` is a Dask array or DataFrame, `fit` shuffles its partitions into up to 16
    streams of batches. It trains one ranker per stream on the cluster, with
    `n_triplets` triplets each, and averages the rankers. A sample of about 20,000 rows
    is used for the hold-out and to find the leading directions. See
    :ref:`the User Guide <scaling>`.

    In the plain form, a triplet costs ``O(n_features ** 2)`` time for dense data. For
    sparse data, the time is proportional to the number of non-zeros of the query times
    that of the other two samples. :math:`W` holds ``n_features ** 2`` numbers. Memory
    does not depend on `n_triplets`.

    BLAS uses one thread during training, so results do not depend on the number of
    cores.

    References
    ----------
    .. [1] G. Chechik, V. Sharma, U. Shalit and S. Bengio. "Large scale online learning
       of image similarity through ranking". Journal of Machine Learning Research, 11,
       1109-1135, 2010.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from sklearn_simlearn import OASIS
    >>> X, y = load_digits(return_X_y=True)
    >>> oasis = OASIS(holdout="samples", random_state=0).fit(X[:900], y[:900])
    >>> round(oasis.score(X[900:], y[900:]), 2)
    0.81
    """

    _parameter_constraints: dict = {
        "C": [Interval(Real, 0, None, closed="neither")],
        "n_triplets": [Interval(Integral, 1, None, closed="left")],
        "holdout": HOLDOUT_OR_SEVERAL,
        "symmetric": [StrOptions({"final", "online", "dissimilarity"}), None],
        "psd": [
            StrOptions({"final"}),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "n_models": [Interval(Integral, 1, None, closed="left")],
        "relevance_threshold": [Interval(Real, 0, None, closed="left")],
        "n_jobs": [Integral, None],
        "random_state": ["random_state"],
    }

    _paper_parameters = {
        "C": 0.1,
        "holdout": None,
        "symmetric": None,
        "psd": None,
        "n_components": None,
        "n_models": 1,
    }

    def __init__(
        self,
        C: float = 0.1,
        *,
        n_triplets: int = 100_000,
        holdout: str | int | None = "auto",
        symmetric: Literal["final", "online", "dissimilarity"] | None = None,
        psd: Literal["final"] | int | None = None,
        n_components: int | None = None,
        n_models: int = 1,
        relevance_threshold: float = 0.0,
        n_jobs: int | None = None,
        random_state: RandomState = None,
    ):
        self.C = C
        self.n_triplets = n_triplets
        self.holdout = holdout
        self.symmetric = symmetric
        self.psd = psd
        self.n_components = n_components
        self.n_models = n_models
        self.relevance_threshold = relevance_threshold
        self.n_jobs = n_jobs
        self.random_state = random_state

    def _learn(self, X, relevance, advance, triplets=None):
        rng = make_generator(self.random_state)
        validation = None
        if isinstance(self.holdout, Integral):
            validation = Validation(
                X, relevance, self.holdout, rng, among_themselves=True
            )
            X, relevance = X[validation.train], relevance.take(validation.train)
        elif self.holdout is None and triplets is not None:
            return self._learn_given(X, triplets, advance)
        if self.holdout is None or validation is not None:
            sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
            streams = self._draw(sampler, rng)
            return self._learn_plain(X, streams, advance, validation=validation)
        path = self._path(X, relevance, triplets)

        # From here on, the inputs are valid. Kernels do not check them.
        with one_blas_thread():
            choice = choose(path, X, relevance, self.holdout, rng, advance, race=True)
            attributes = path.refit(choice.candidate, rng, advance)
        return attributes | choice.attributes

    def _learn_partitions(self, X, y):
        rng = make_generator(self.random_state)
        if isinstance(self.holdout, Integral):
            raise ValueError(
                f"holdout={self.holdout} needs the samples in memory. For a Dask "
                "collection, pass None, 'auto', 'objects' or 'samples'."
            )
        if self.holdout is None:
            return learn_plain(self, X, y, rng, self._serve_plain)
        return learn_held_out(self, X, y, rng, self._path)

    def _path(self, X, relevance, triplets=None):
        if self.symmetric is not None or self.psd is not None:
            raise ValueError(
                "symmetric and psd need the plain form. Set holdout=None to use them."
            )
        return Path(
            X,
            relevance,
            n_triplets=self.n_triplets,
            n_models=self.n_models,
            n_components=self.n_components,
            known_classes=self.holdout == "samples",
            threshold=self.relevance_threshold,
            settings=self._settings(),
            triplets=triplets,
        )

    # -- the plain form --

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit(
        self, X: MatrixLike, y: TargetLike, *, n_features: int | None = None
    ) -> Self:
        """Continue learning from `n_triplets` triplets of a batch of samples.

        Learns the plain form, regardless of `holdout`, since a stream has no data to
        hold out. After a `fit` with a `holdout`, learning starts from the beginning.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples; or a Dask collection, whose partitions are shuffled into
            batches. The cluster learns from one batch after the other.

        y : {array-like, sparse matrix} of shape (n_samples,) or (n_samples, n_columns)
            Labels or relevance matrix. Triplets are formed within the batch.

        n_features : int, default=None
            Number of features of the data. A sparse batch may have fewer columns; the
            missing ones count as zero.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self, afresh=hasattr(self, "share_")):
            forget_holdout(self)
            if is_partitioned(X):
                self.__dict__.update(partial_fit_partitions(self, X, y))
                return self
            rows = self._check_batch(X, n_features)
            relevance = check_relevance(y, n_samples=rows.shape[0])
            sampler = triplet_sampler(relevance, threshold=self.relevance_threshold)
            # One stream of random numbers runs through all batches.
            rng = deepcopy(getattr(self, "_rng", None))
            rng = rng or make_generator(self.random_state)
            streams = self._draw(sampler, rng)
            with callback_steps(self, X, y) as advance:
                attributes = self._learn_plain(rows, streams, advance)
                self.__dict__.update(attributes, _rng=rng)
        return self

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def partial_fit_triplets(
        self, X: MatrixLike, triplets: ArrayLike, *, n_features: int | None = None
    ) -> Self:
        """Continue learning the plain form from given triplets, as `partial_fit` does.

        Nothing is held out. A warning is raised unless `holdout` is None.

        Parameters
        ----------
        X : {array-like, sparse matrix} of shape (n_samples, n_features)
            A batch of samples.

        triplets : array-like of shape (n_triplets, 3)
            Rows of `X`: a query, a relevant sample, and a less relevant sample.

        n_features : int, default=None
            Number of features of the data. A sparse batch may have fewer columns.

        Returns
        -------
        self : object
            The estimator itself.
        """
        with replacing_state(self, afresh=hasattr(self, "share_")):
            forget_holdout(self)
            rows = self._check_batch(X, n_features)
            triplets = check_triplets(triplets, rows.shape[0])
            warn_of_no_holdout(self, "partial_fit_triplets")
            with callback_steps(self, X, None) as advance:
                self.__dict__.update(self._learn_given(rows, triplets, advance))
        return self

    @property
    def symmetry_index_(self) -> float:
        """Norm of the symmetric part of `W_`, as a share of the norm of `W_`."""
        check_is_fitted(self)
        if not hasattr(self, "W_"):
            raise AttributeError(
                "Only the plain form has W_ and symmetry_index_. Set holdout=None."
            )
        norm = linalg.norm(self.W_)
        return float(linalg.norm((self.W_ + self.W_.T) / 2) / norm) if norm else 1.0

    def _check_batch(self, X, n_features):
        if n_features is not None and sparse.issparse(X) and X.shape[1] < n_features:
            X = X.tocsr(copy=True)
            X.resize(X.shape[0], n_features)
        return self._check_rows(X, reset=not hasattr(self, "W_"))

    def _draw(self, sampler, rng):
        return [draw_stream(sampler, stream) for stream in rng.spawn(self.n_models)]

    def _learn_given(self, X, triplets, advance):
        """Visit given triplets once, in their order."""
        stream = given_stream(triplets)
        return self._learn_plain(X, [stream], advance, n_triplets=len(triplets))

    def _learn_plain(self, X, streams, advance, *, n_triplets=None, validation=None):
        """Learn from one stream of triplets per ranker; return the fitted attributes.

        Learning continues from `W_` if that is set. A `validation` chooses the best of
        the models after every interval.
        """
        refuse_long_rows(X, is_compared=validation is not None)
        rankers = Rankers(self._first_W(X), X, streams, self._settings())
        n_triplets_before = getattr(self, "n_triplets_", 0)
        n_updates_before = getattr(self, "n_updates_", 0)

        def describe():
            return self._serve_plain(rankers.average()) | {
                "loss_curve_": np.array(rankers.losses),
                "n_triplets_": n_triplets_before + rankers.n_triplets,
                "n_updates_": n_updates_before + rankers.n_updates,
            }

        def validate(candidate):
            model = describe()
            # The next steps change W in place.
            validation.record(candidate, model["encoder_"], lambda: deepcopy(model))

        # From here on, the inputs are valid. Kernels do not check them.
        with one_blas_thread():
            if validation is not None:
                validate(START)
            for _ in rankers.learn_up_to(n_triplets or self.n_triplets):
                if validation is not None:
                    validate(Candidate(None, None, rankers.n_triplets, 0.0))
                if advance("interval", describe):
                    break
            if validation is not None:
                return validation.best | validation.attributes()
            return describe()

    def _settings(self):
        return Settings(self.C, self.symmetric, self.psd, self.n_jobs)

    def _first_W(self, X):
        """Return a new matrix to start from."""
        if hasattr(self, "W_"):
            return self.W_.astype(X.dtype, copy=True)
        n_features = X.shape[1]
        gib = n_features**2 * X.dtype.itemsize / 2**30
        if gib > MAX_GIB:
            raise ValueError(
                f"W of {n_features} features would take {gib:.3g} GiB, more than "
                f"{MAX_GIB} GiB. Set a holdout, which learns in a few hundred "
                "directions, or reduce the number of features."
            )
        return np.eye(n_features, dtype=X.dtype)

    def _serve_plain(self, W):
        """Return the attributes of a model of the plain form."""
        if self.symmetric == "final":
            W = (W + W.T) / 2
        encoder, attributes = Bilinear(W), {}
        if self.psd is not None:
            components = positive_factor(W)
            W = components.T @ components
            components = components[: self.n_components]
            encoder, attributes = Factors(components), {"components_": components}
        elif self.n_components is not None:
            left, right = _factorise(W, self.n_components)
            encoder = Factors(left, right)
            attributes = {"query_components_": left, "item_components_": right}
        if self.symmetric == "dissimilarity":
            encoder = Dissimilarity(encoder)
        return {"encoder_": encoder, "W_": W, **attributes}


def _factorise(W, rank):
    """Return left and right; left.T @ right is the best approximation of this rank."""
    if 4 * rank < W.shape[0]:
        U, s, Vt = svds(W, k=rank, v0=np.ones(W.shape[0], dtype=W.dtype))
        U, s, Vt = U[:, ::-1], s[::-1], Vt[::-1]
    else:
        U, s, Vt = linalg.svd(W)
    root = np.sqrt(s[:rank])
    left, right = (U[:, :rank] * root).T, root[:, None] * Vt[:rank]
    return np.ascontiguousarray(left), np.ascontiguousarray(right)
