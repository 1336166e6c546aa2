"""Two-covariance model, also known as PLDA."""

from numbers import Integral, Real

from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.sklearn import Interval
from sklearn_simlearn._core.threads import one_blas_thread
from sklearn_simlearn._core.typing import RandomState
from sklearn_simlearn._holdout import HOLDOUT, choose
from sklearn_simlearn._query_sets import QuerySetsMixin
from sklearn_simlearn.base import SimilarityLearner
from sklearn_simlearn.two_covariance._path import Path, learn_plain

# Largest number of held-out samples of a fold that are searched. With more, the
# hold-out would take longer than the fit.
MAX_ROWS = 250


class TwoCovarianceSimilarity(QuerySetsMixin, SimilarityLearner):
    r"""Likelihood ratio of "same class" in a Gaussian model, for new classes.

    The two-covariance model [1]_, a form of probabilistic linear discriminant analysis
    (PLDA) [2]_, describes a sample of class :math:`c` as

    .. math:: x = m + y_c + e, \qquad y_c \sim N(0, B), \quad e \sim N(0, W).

    In coordinates in which :math:`W` is the identity and :math:`B` is diagonal with
    entries :math:`\beta_i`, the log likelihood ratio of "same class" and "different
    classes" is, up to terms that are constant for a query,

    .. math::

        s(q, d) = \sum_i \frac{\beta_i}{1 + 2 \beta_i}\, q_i d_i
        - \frac12 \sum_i \frac{\beta_i^2}{(1 + \beta_i)(1 + 2 \beta_i)}\, d_i^2 .

    By default, a hold-out chooses among this ratio, the cosine after whitening within
    classes, and the cosine after a discriminant analysis. It also chooses the share of
    the start, the cosine of the samples, in the similarity. If nothing helps on the
    held-out classes, the start is kept. ``holdout=None`` is the plain model. The
    derivations are in the :ref:`User Guide <two_covariance>`.

    Parameters
    ----------
    shrinkage : float, default=None
        Weight from 0 to 1 of a multiple of the identity in the estimate of :math:`W`.
        None lets the hold-out choose between 0.1 and 0.5. Without a hold-out, None
        means 0.1.

    n_components : int, default=None
        Largest number of coordinates, those with the largest :math:`\beta_i`. None
        keeps all coordinates with a positive :math:`\beta_i`.

    holdout : str or None, default="auto"
        One of "auto", "objects", "samples", "queries" and "documents" (:ref:`holdout`).
        Kind of samples that are held out to decide how far to move away from the start,
        the cosine (of tf-idf if `X` holds counts). Hold out whole classes ("objects")
        if future queries are of classes that are not in `y`, or "samples" if they are
        of the classes in `y`. None learns the plain model from the unscaled rows of
        `X`, and ranks by the likelihood ratio.

    random_state : int, RandomState instance or None, default=None
        Decides which samples are held out, and which rows determine the leading
        directions of wide data.

    Attributes
    ----------
    form_ : {"whitened", "discriminant", "ratio", "unit ratio"}
        Form of the learned similarity: the cosine of whitened coordinates; the cosine
        of coordinates times :math:`\sqrt{\beta_i / (1 + 2 \beta_i)}`; the likelihood
        ratio; or the likelihood ratio of coordinates that are scaled to equal length.
        If the start is kept, this attribute and those up to `between_` are not set.

    shrinkage_ : float
        The shrinkage of :math:`W`.

    components_ : ndarray of shape (n_components, n_features)
        Matrix that maps rows to the coordinates.

    offset_ : ndarray of shape (n_components,)
        Mean in the coordinates, which is subtracted from mapped rows.

    between_ : ndarray of shape (n_components,)
        Variances :math:`\beta_i` between classes, in descending order.

    share_ : float
        Weight of the start in the similarity; 1 if the start is kept. Set only with a
        `holdout`.

    idf_ : ndarray of shape (n_features,) or None
        Inverse document frequencies, if `X` holds counts. Set only with a `holdout`.

    See Also
    --------
    OASIS : Learns from triplets instead.

    MemoryVectorQuery : Queries with sets of samples, for any similarity.

    sklearn.discriminant_analysis.LinearDiscriminantAnalysis : Coordinates for known
        classes.

    Notes
    -----
    A fit takes ``O(n_samples * n_features ** 2 + n_features ** 3)`` time. Data of more
    than 500 features is projected onto its 500 leading directions first. The start uses
    all features.

    The columns of a relevance matrix are classes; their weights are ignored. A sample
    without a class, such as a distractor, is a class of one sample. If `y` holds pairs
    or judgements, :math:`W` is half of the covariance of the differences of relevant
    samples.

    References
    ----------
    .. [1] N. Brümmer and E. de Villiers. "The speaker partitioning problem". Odyssey,
       2010.
    .. [2] S. Ioffe. "Probabilistic linear discriminant analysis". ECCV, 2006.

    Examples
    --------
    Vectors of 40 classes, of which 20 are used for training. The classes differ in four
    of ten directions:

    >>> import numpy as np
    >>> from sklearn_simlearn import TwoCovarianceSimilarity
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat(np.arange(40), 10)
    >>> X = 3 * rng.standard_normal((400, 10))
    >>> X[:, :4] = 2 * rng.standard_normal((40, 4))[y]
    >>> X[:, :4] += 0.3 * rng.standard_normal((400, 4))
    >>> known, new = y < 20, y >= 20
    >>> model = TwoCovarianceSimilarity(random_state=0).fit(X[known], y[known])
    >>> round(model.score(X[new], y[new]), 2)
    0.84

    Five samples that query together:

    >>> from sklearn_simlearn.model_selection import make_query_sets
    >>> sets = make_query_sets(y[new], size=5, random_state=0)
    >>> round(model.score(X[new], y[new], groups=sets), 2)
    0.86
    """

    _parameter_constraints: dict = {
        "shrinkage": [Interval(Real, 0, 1, closed="both"), None],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "holdout": HOLDOUT,
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        shrinkage: float | None = None,
        *,
        n_components: int | None = None,
        holdout: str | None = "auto",
        random_state: RandomState = None,
    ):
        self.shrinkage = shrinkage
        self.n_components = n_components
        self.holdout = holdout
        self.random_state = random_state

    def _learn(self, X, relevance, advance):
        rng = make_generator(self.random_state)
        params = {"shrinkage": self.shrinkage, "n_components": self.n_components}
        # On more threads, BLAS would sum in another order.
        with one_blas_thread():
            if self.holdout is None:
                return learn_plain(X, relevance, rng, **params)
            path = Path(X, relevance, **params)
            choice = choose(
                path,
                X,
                relevance,
                self.holdout,
                rng,
                advance,
                race=True,
                max_rows=MAX_ROWS,
            )
            return path.refit(choice.candidate, rng) | choice.attributes
