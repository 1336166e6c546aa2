"""Spatial verification: candidates whose features have the query's arrangement."""

from dataclasses import dataclass
from numbers import Integral, Real
from typing import Literal, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from sklearn_simlearn._core.rows import starts_run
from sklearn_simlearn._core.sklearn import Interval, StrOptions, fit_context
from sklearn_simlearn._core.threads import count_threads
from sklearn_simlearn.feature_extraction import LocalFeatures, VisualVocabulary
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.index._rerank import Queries
from sklearn_simlearn.reranking._base import RerankingStep
from sklearn_simlearn.reranking._lists import (
    affinities,
    make_ids,
    read_candidates,
    sort_lists,
)
from sklearn_simlearn.reranking._verification_fast import (
    N_INTS,
    N_REALS,
    Images,
    Limits,
    verify,
)

# Largest number of matches of two images. Further words are ignored.
MAX_MATCHES = 2**20

# Number of pairs of images per call of a kernel, which cannot be interrupted.
N_PAIRS = 4096

# Tolerance for rounding errors, so that a match agrees with itself.
ROUNDING = 1e-6

# Squared distances are compared in single precision.
MAX_SQUARE = np.finfo(np.float32).max

N_UNKNOWNS = {None: 0, "affine": 6, "homography": 8}


class SpatialVerification(RerankingStep):
    """Rank candidates by the features that they share in the same arrangement.

    Features of two images match if they have the same visual word. Each match proposes
    the similarity transform (position, scale and angle) between its two features. The
    matches that agree with this transform are its inliers; each feature counts once.
    Candidates are ranked by the largest number of inliers, corrected for the number of
    features, and by their similarity. Read more in the
    :ref:`User Guide <spatial_verification>`.

    Parameters
    ----------
    max_distance : float, default=0.12
        Largest distance of an inlier from its transformed position, as a share of the
        longer side of the image. The distance is the geometric mean of the distances in
        both images, so query and candidate can be exchanged.

    max_angle : float, default=30
        Largest difference between the rotation of an inlier and that of the transform,
        in degrees.

    max_scale_ratio : float, default=2
        Largest ratio between the change of scale of an inlier and that of the
        transform.

    max_pairs_per_word : int, default=10
        A word that would match more pairs of features than this is not used.

    min_inliers : int, default=1
        Smallest number of inliers. If there are fewer, the number counts as 0.

    similarity_weight : float, default=2
        Number of inliers to which the highest similarity of a list is equivalent. The
        similarity of the last candidate counts as 0. With 0, the similarity only breaks
        ties.

    size_power : float in [0, 1], default=0.25
        Exponent of the ratio of the numbers of features, query to candidate, by which
        the number of inliers is multiplied. It corrects for images with many features,
        which have more inliers by chance. With 0, there is no correction.

    refine : {"affine", "homography"}, default=None
        Map that is fitted to the inliers before they are counted again: affine or a
        homography. The fit is discarded if it does not add inliers. None does not fit a
        map.

    n_jobs : int, default=None
        Number of threads. The results do not depend on it.

    Attributes
    ----------
    n_images_ : int
        Number of images in the database.

    See Also
    --------
    QueryExpansion : Searches again with the verified candidates.

    Examples
    --------
    >>> from sklearn_simlearn.feature_extraction import LocalFeatures
    >>> from sklearn_simlearn.reranking import SpatialVerification
    >>> query = LocalFeatures(
    ...     [0, 4], x=[0, 9, 0, 9], y=[0, 0, 9, 9], scale=[1] * 4, angle=[0] * 4,
    ...     words=[5, 6, 7, 8], image_sizes=[[10, 10]],
    ... )
    >>> scattered = LocalFeatures(
    ...     [0, 4], x=[9, 0, 4, 0], y=[9, 0, 0, 4], scale=[1] * 4,
    ...     angle=[0, 90, 180, 270], words=[5, 6, 7, 8], image_sizes=[[10, 10]],
    ... )
    >>> database = LocalFeatures.concatenate([scattered, query])
    >>> verifier = SpatialVerification().fit(database)
    >>> scores, ids = verifier.rerank(query, [[0.9, 0.8]], [[0, 1]])
    >>> ids
    array([[1, 0]])
    >>> verifier.verify(query, [[0, 1]]).n_inliers
    array([[1, 4]], dtype=int32)
    """

    _parameter_constraints: dict = {
        "max_distance": [Interval(Real, 0, None, closed="neither")],
        "max_angle": [Interval(Real, 0, 180, closed="both")],
        "max_scale_ratio": [Interval(Real, 1, None, closed="left")],
        "max_pairs_per_word": [Interval(Integral, 1, 2**31 - 1, closed="both")],
        "min_inliers": [Interval(Integral, 1, None, closed="left")],
        "similarity_weight": [Interval(Real, 0, None, closed="left")],
        "size_power": [Interval(Real, 0, 1, closed="both")],
        "refine": [StrOptions({"affine", "homography"}), None],
        "n_jobs": [Integral, None],
    }

    def __init__(
        self,
        max_distance: float = 0.12,
        *,
        max_angle: float = 30,
        max_scale_ratio: float = 2,
        max_pairs_per_word: int = 10,
        min_inliers: int = 1,
        similarity_weight: float = 2,
        size_power: float = 0.25,
        refine: Literal["affine", "homography"] | None = None,
        n_jobs: int | None = None,
    ):
        self.max_distance = max_distance
        self.max_angle = max_angle
        self.max_scale_ratio = max_scale_ratio
        self.max_pairs_per_word = max_pairs_per_word
        self.min_inliers = min_inliers
        self.similarity_weight = similarity_weight
        self.size_power = size_power
        self.refine = refine
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(
        self, database: LocalFeatures | SimilarityIndex, ids: ArrayLike | None = None
    ) -> Self:
        """Store the features of a database, sorted by image and word.

        Parameters
        ----------
        database : LocalFeatures or SimilarityIndex
            Features with words, one image per item; or an index with
            ``store_items=True``. The items of the index must be such features, or
            photographs if its estimator is a pipeline with a `VisualVocabulary`.

        ids : array-like of shape (n_images,), default=None
            Ids of the images, as in the index. None numbers the images from 0.

        Returns
        -------
        self : object
            The step itself.
        """
        if isinstance(database, SimilarityIndex):
            index = database._snapshot()
            ids, database = index.ids_, _stored_features(index)
        images = _sort_by_word(database, "The database")
        self._images, self._ids = images, make_ids(ids, len(database))
        self.n_images_ = len(database)
        return self

    def _rerank(self, queries, scores, ids, rows):
        images, numbers = self._read_queries(queries, len(rows))
        n_inliers, _ = self._verify(images, numbers, rows)
        n_inliers = np.where(n_inliers < self.min_inliers, 0, n_inliers)
        own, others = images.n_points[numbers, None], self._images.n_points[rows]
        ratio = np.maximum(own, 1) / np.maximum(others, 1)
        value = n_inliers * ratio**self.size_power
        is_excluded = queries.is_excluded(ids) if isinstance(queries, Queries) else None
        value += self.similarity_weight * affinities(scores, is_excluded)
        return sort_lists(np.where(rows < 0, -np.inf, value), ids, scores)

    def verify(
        self, queries: LocalFeatures, ids: ArrayLike, *, return_inliers: bool = False
    ) -> Bunch:
        """Return the inliers and transforms of candidates.

        Parameters
        ----------
        queries : LocalFeatures
            Features of the queries, one image per query.

        ids : array-like of shape (n_queries, n_candidates)
            Ids of the candidates; -1 or "" if there are no more.

        return_inliers : bool, default=False
            Whether to return the inliers, too. This takes twice the time.

        Returns
        -------
        result : :class:`~sklearn.utils.Bunch`
            Dictionary-like object, with the following attributes.

            n_inliers : ndarray of shape (n_queries, n_candidates), int32
                Number of inliers.
            transforms : ndarray of shape (n_queries, n_candidates, 3, 3)
                Homogeneous matrices that map positions in the query's image to
                positions in the candidate's image; NaN without inliers.
            inliers : object ndarray of shape (n_queries, n_candidates)
                Arrays of shape (n_inliers, 2) with the numbers of a feature in the
                query's image and of a feature in the candidate's image. Only with
                `return_inliers`.
        """
        check_is_fitted(self)
        _, _, rows = read_candidates(self._ids, ids, None, self)
        images, numbers = self._read_queries(queries, len(rows))
        n_inliers, transforms = self._verify(images, numbers, rows)
        found = Bunch(n_inliers=n_inliers, transforms=transforms)
        if return_inliers:
            found.inliers = self._list_inliers(images, numbers, rows, n_inliers)
        return found

    def _read_queries(self, queries, n_lists):
        """Return sorted features, and the numbers of the images of the queries."""
        if isinstance(queries, Queries):
            if queries.ids is not None:
                _, _, rows = read_candidates(
                    self._ids, queries.ids[:, None], None, self
                )
                return self._images, rows[:, 0]
            if queries.features is None:
                queries = _find_features(queries.index._state.model, queries.X)
            else:
                queries = queries.features
        if isinstance(queries, LocalFeatures) and len(queries) != n_lists:
            raise ValueError(
                f"Each list of candidates needs one query image; got "
                f"{len(queries)} images for {n_lists} lists."
            )
        return _sort_by_word(queries, "A query"), np.arange(n_lists)

    def _verify(self, images, numbers, rows):
        """Return numbers of inliers and transforms, in the shape of the lists."""
        is_there = rows >= 0
        query, item = numbers[np.nonzero(is_there)[0]], rows[is_there]
        found = np.zeros(len(item), dtype=np.int32)
        maps = np.full((len(item), 3, 3), np.nan)
        self._run(images, query, item, found, maps)
        n_inliers = np.zeros(rows.shape, dtype=np.int32)
        transforms = np.full((*rows.shape, 3, 3), np.nan)
        n_inliers[is_there], transforms[is_there] = found, maps
        return n_inliers, transforms

    def _list_inliers(self, images, numbers, rows, n_inliers):
        """Return the pairs of features that are inliers, in the shape of the lists."""
        is_there = rows >= 0
        query, item = numbers[np.nonzero(is_there)[0]], rows[is_there]
        counts = n_inliers[is_there]
        stops = np.cumsum(counts, dtype=np.int64)
        pairs = np.empty((counts.sum(), 2), dtype=np.int32)
        again = np.zeros(len(item), dtype=np.int32), np.empty((len(item), 3, 3))
        self._run(images, query, item, *again, stops - counts, pairs)
        # Convert positions in the order of words to the original numbers of features.
        side = (images, query), (self._images, item)
        for column, (sorted_images, which) in enumerate(side):
            offset = sorted_images.first[sorted_images.start[np.repeat(which, counts)]]
            pairs[:, column] = sorted_images.order[offset + pairs[:, column]]
        lists = np.empty(rows.shape, dtype=object)
        stops = np.cumsum(n_inliers)
        for i, (stop, count) in enumerate(zip(stops, n_inliers.flat, strict=True)):
            lists.flat[i] = pairs[stop - count : stop]
        return lists

    def _run(self, images, query, item, n_inliers, transforms, starts=None, pairs=None):
        """Call the kernel for pairs of images, some at a time."""
        n_threads = count_threads(self.n_jobs)
        n_words = int(np.diff(images.start).max(initial=0))
        n_matches = max(1, min(n_words * self.max_pairs_per_word, MAX_MATCHES))
        reals = np.empty((n_threads, N_REALS, n_matches), dtype=np.float32)
        ints = np.empty((n_threads, N_INTS, n_matches), dtype=np.int32)
        if starts is None:
            starts = np.zeros(len(item), dtype=np.int64)
            pairs = np.empty((0, 2), dtype=np.int32)
        limits = Limits(
            np.cos(np.deg2rad(self.max_angle)) - ROUNDING,
            np.log(self.max_scale_ratio) + ROUNDING,
            self.max_pairs_per_word,
            N_UNKNOWNS[self.refine],
        )
        sides = Images(*images.arrays), Images(*self._images.arrays)
        for first in range(0, len(item), N_PAIRS):
            part = slice(first, first + N_PAIRS)
            area = self._images.length[item[part]] * images.length[query[part]]
            square = np.minimum(self.max_distance**2 * area, MAX_SQUARE)
            # From here on, the inputs are valid. The kernel does not check them.
            verify(
                *sides,
                query[part],
                item[part],
                square.astype(np.float32),
                limits,
                n_threads,
                reals,
                ints,
                n_inliers[part],
                transforms[part],
                starts[part],
                pairs,
            )


@dataclass
class _Images:
    """Features of images, sorted by word within an image."""

    start: np.ndarray  # start of the words of each image
    words: np.ndarray  # distinct words of an image, ascending
    first: np.ndarray  # first feature of each word of each image
    points: np.ndarray  # x, y, scale, log scale, cosine and sine of the angle
    order: np.ndarray  # original number of each feature in its image
    length: np.ndarray  # longer side of each image

    @property
    def arrays(self):
        return self.start, self.words, self.first, self.points

    @property
    def n_points(self):
        """Number of features of each image."""
        return np.diff(self.first[self.start])


def _sort_by_word(features, what):
    if not isinstance(features, LocalFeatures) or features.words is None:
        raise ValueError(
            f"{what} of SpatialVerification must be a LocalFeatures with words; got "
            f"{features!r:.60}. Pass the features of the queries to `search` as "
            "`features`, and fit the step on the features of the items."
        )
    image = features.image_of_point
    order = np.lexsort((features.words, image))
    image, words = image[order], features.words[order]
    first = np.flatnonzero(starts_run(words, image))
    points = np.empty((len(order), 6), dtype=np.float32)
    angle = np.deg2rad(features.angle[order], dtype=np.float64)
    points[:, 0], points[:, 1] = features.x[order], features.y[order]
    points[:, 2], points[:, 3] = features.scale[order], np.log(features.scale[order])
    points[:, 4], points[:, 5] = np.cos(angle), np.sin(angle)
    return _Images(
        np.searchsorted(image[first], np.arange(len(features) + 1)),
        words[first],
        np.append(first, len(order)),
        points,
        order - features.offsets[image],
        _longer_sides(features),
    )


def _longer_sides(features):
    """Return the longer side of each image, or of the extent of its features."""
    if features.image_sizes is not None:
        return features.image_sizes.max(axis=1).astype(np.float64)
    length = np.zeros(len(features))
    place = np.maximum(features.x, features.y).astype(np.float64)
    np.maximum.at(length, features.image_of_point, place)
    return length


def _stored_features(index):
    items = _find_features(index._state.model, index._state.current_raw())
    if not isinstance(items, LocalFeatures):
        raise ValueError(
            "The index does not store local features or photographs as its items. Set "
            "store_items=True, or fit SpatialVerification on the LocalFeatures of the "
            "items, with their ids, before you pass it to the index."
        )
    return items


def _find_features(model, X):
    """Return the local features of photographs; return other samples unchanged.

    The features are the result of the steps of a pipeline up to the vocabulary.
    """
    steps = [] if model is None else model.item_steps
    kinds = [isinstance(step, VisualVocabulary) for step in steps]
    has_words = isinstance(X, LocalFeatures) and X.words is not None
    if X is None or has_words or True not in kinds:
        return X
    for step in steps[: kinds.index(True)]:
        X = step.transform(X)
    return steps[kinds.index(True)].assign(X)
