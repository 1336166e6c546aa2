"""Maps of queries and documents, and a shift of judged documents."""

from numbers import Integral, Real
from typing import Literal

from scipy import sparse

from sklearn_simlearn._core.judged_relevance import JudgedRelevance
from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.sklearn import Interval, StrOptions
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import RandomState
from sklearn_simlearn._holdout import HOLDOUT, choose
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.query_map._path import Candidate, Path
from sklearn_simlearn.query_map._two_widths import Documents, TwoWidths

# Largest number of features for maps, which have the square of this in numbers.
MAX_FEATURES = 4096

# Shift without a hold-out.
SHIFT = 0.6


class QueryDocumentMap(SimilarityLearner):
    r"""Maps of frozen vectors, learned from judgements of queries against documents.

    Queries and documents are vectors of one embedding model, which is not trained.
    From the unit vectors :math:`q` and :math:`d`, the learner makes

    .. math::

        q' = \frac{(I + V)^\top q}{\lVert (I + V)^\top q \rVert}, \qquad
        d' = \frac{(I + U)^\top d}{\lVert (I + U)^\top d \rVert}, \qquad
        s(q, d) = \langle q', d' \rangle .

    The maps minimise a listwise softmax loss with a penalty on :math:`V` and
    :math:`U`. Then each judged document is shifted towards the queries that it is
    relevant to: :math:`d'' \propto d' + g\, m`, with :math:`m` the unit vector along
    the mean of these :math:`q'`. Held-out queries choose among the cosine, the maps,
    the shift and both. The derivations are in the :ref:`User Guide <query_map>`.

    Parameters
    ----------
    maps : {"both", "queries"} or None, default="both"
        Sides that are mapped. With "queries" and ``shift=False``, documents are
        encoded as the cosine encodes them, so a stored index stays valid when the
        learner is fitted again. None learns no map, only the shift.

    shift : bool, default=True
        Whether judged documents may be shifted. A document is recognised by its
        values, in single precision. New documents are not shifted. With labels,
        nothing is shifted.

    alpha : float, default=20.0
        Strength of the penalty. Larger values keep the maps closer to the identity.

    max_iter : int, default=60
        Number of steps, each on a batch of 256 queries. With 200 steps, the maps gain
        more from some thousand queries, in more than three times the time.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of data that is held out to choose. With judgements: queries, which search
        all documents ("queries", the same as "auto"); or queries and half of the
        documents, if most future documents are new ("documents"). With labels: whole
        classes ("objects", the same as "auto") or samples of known classes
        ("samples"). With fewer than 40 queries, only a shift of 0.3 is tried. None
        takes the maps after `max_iter` steps and a shift of 0.6.

    random_state : int, RandomState instance or None, default=None
        Decides which queries are held out and the order of the batches. An int makes
        `fit` exactly repeatable.

    Attributes
    ----------
    query_map_ : ndarray of shape (n_features, n_document_features) or None
        The matrix :math:`I + V` that unit rows of queries are multiplied by; None if
        queries are not mapped. If documents have another width, the product of the
        rotation and of :math:`I + V`.

    document_map_ : ndarray of shape (n_document_features, n_document_features) or None
        The matrix :math:`I + U` of the documents; None if they are not mapped.

    shift_ : float
        The factor :math:`g`; 0 if nothing is shifted.

    n_iter_ : int
        Number of steps, at least 1 as scikit-learn requires.

    loss_curve_ : ndarray of shape (n_steps,)
        Loss of the batch of each step, without the penalty; empty without maps.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if the documents hold counts.

    holdout_results_ : dict
        The candidates and their measures on the held-out queries.

    holdout_gain_, holdout_error_ : float
        Gain of the chosen candidate over the cosine on held-out queries, and its
        standard error: of nDCG@10 with judgements, of mean average precision with
        labels.

    n_features_in_ : int
        Width of the training data; of the queries, if documents have another width.

    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Column names of the training data, if it had any.

    See Also
    --------
    EmbeddingModelMap : Maps queries of a new embedding model to an old one.
    OASIS : Learns one map for both sides, from triplets.
    sklearn_simlearn.metrics.Judgements : The judgements to pass as `y`.

    Notes
    -----
    Rows have at most 4,096 features if maps are learned. Reduce wider rows by
    :class:`~sklearn.decomposition.TruncatedSVD`, or pass ``maps=None``.

    A step uses at most 2,048 documents: those relevant to the queries of the batch,
    and a sample of the others. So the time of a fit does not grow with the number of
    documents. Memory is bounded by the `working_memory` of scikit-learn.

    Queries and documents may be dense vectors of different widths. Then there is no
    cosine to start from. The start is a rotation of the queries into the space of the
    documents, the one nearest to the pairs of a query and the mean of its relevant
    documents. Such a start needs some hundred queries. If items are encoded by both
    models, :class:`EmbeddingModelMap` is better.

    Documents must be served with the values that they had in `fit`. If a step before
    the learner computes them again with other rounding errors, they are not
    recognised and count as new.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn_simlearn import QueryDocumentMap
    >>> from sklearn_simlearn.metrics import Judgements
    >>> rng = np.random.default_rng(0)
    >>> documents = rng.standard_normal((90, 8))
    >>> topic = np.arange(60) % 30
    >>> queries = np.roll(documents[topic], 1, axis=1)
    >>> queries += 0.5 * rng.standard_normal(queries.shape)
    >>> y = Judgements(topic[:, None] == np.arange(90), documents)
    >>> model = QueryDocumentMap(random_state=0).fit(queries[:40], y[:40])
    >>> model.shift_ > 0
    True
    >>> model.score(queries[40:], y[40:]) > 0.2
    True
    """

    _parameter_constraints: dict = {
        "maps": [StrOptions({"both", "queries"}), None],
        "shift": ["boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "holdout": HOLDOUT,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        maps: Literal["both", "queries"] | None = "both",
        *,
        shift: bool = True,
        alpha: float = 20.0,
        max_iter: int = 60,
        holdout: str | int | None = "auto",
        random_state: RandomState = None,
    ):
        self.maps = maps
        self.shift = shift
        self.alpha = alpha
        self.max_iter = max_iter
        self.holdout = holdout
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        shift = self.shift and isinstance(relevance, JudgedRelevance)
        self._check_task(X, shift)
        rng = make_generator(self.random_state)
        path = Path(
            X,
            relevance,
            maps=self.maps,
            shift=shift,
            alpha=self.alpha,
            max_iter=self.max_iter,
        )
        with one_blas_thread():
            if self.holdout is None:
                n_iter = 0 if self.maps is None else self.max_iter
                candidate = Candidate(n_iter, SHIFT if shift else 0.0)
                return path.refit(candidate, rng, advance)
            choice = choose(path, X, relevance, self.holdout, rng, advance)
            attributes = path.refit(choice.candidate, rng, advance)
        return attributes | choice.attributes

    def _unused_parameters(self):
        names = ("alpha", "max_iter") if self.maps is None else ()
        return dict.fromkeys(names, "maps=None")

    def _stack(self, rows, documents):
        checker = Documents()
        found = checker._check_rows(documents, reset=True)
        if found.shape[1] == rows.shape[1]:
            return super()._stack(rows, documents)
        if sparse.issparse(rows) or sparse.issparse(found):
            raise ValueError(
                f"Queries have {rows.shape[1]} features and documents "
                f"{found.shape[1]}. Different widths need dense vectors on both sides."
            )
        self._documents = checker
        return TwoWidths(rows, found)

    @property
    def _has_two_widths(self):
        return hasattr(self, "_documents")

    def _check_items(self, X):
        return (self._documents if self._has_two_widths else self)._check_rows(X)

    def _check_task(self, X, shift):
        """Raise if there is nothing to learn, or the rows are too wide for maps."""
        if self.maps is None and not shift:
            raise ValueError(
                "With maps=None, only judged documents are shifted, and there are "
                "none: set shift=True and pass Judgements as y, or set maps."
            )
        if self.maps is not None and X.shape[1] > MAX_FEATURES:
            raise ValueError(
                f"Maps of {X.shape[1]} features are too large; the limit is "
                f"{MAX_FEATURES}. Reduce the features, for example by TruncatedSVD, or "
                "pass maps=None to learn the shift of judged documents alone."
            )
