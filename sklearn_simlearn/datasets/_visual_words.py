"""Synthetic images of objects as noisy bags of visual words."""

from numbers import Integral, Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import Bunch

from sklearn_simlearn._core.random import make_generator
from sklearn_simlearn._core.rows import starts_run
from sklearn_simlearn._core.sklearn import Interval, validate_params

# Size of the scratch memory of a block of images, in cells of about 20 bytes. Another
# value changes the order of the random numbers, and therefore the data.
BLOCK_SIZE = 1 << 18

N_REDRAWS = 20  # redraws of the repeated words of an object; most need fewer

# Groups are at different points of the integer lattice. With this radius, the distance
# of words is at most 0.4 within a group and at least 0.6 between groups.
GROUP_RADIUS = 0.2


@validate_params(
    {
        "n_objects": [Interval(Integral, 1, None, closed="left")],
        "n_images_per_object": [Interval(Integral, 1, None, closed="left"), tuple],
        "skew": [Interval(Real, 0, None, closed="left")],
        "n_distractors": [Interval(Integral, 0, None, closed="left")],
        "n_words": [Interval(Integral, 2, 2**31 - 1, closed="both")],
        "n_words_per_object": [Interval(Integral, 1, None, closed="left")],
        "visibility": [Interval(Real, 0, 1, closed="right")],
        "burst": [Interval(Real, 0, 1, closed="left")],
        "noise": [Interval(Real, 0, 1, closed="both")],
        "n_clutter": [Interval(Real, 0, None, closed="left")],
        "zipf_exponent": [Interval(Real, 0, 3, closed="both")],
        "group_size": [Interval(Integral, 1, None, closed="left")],
        "n_dims": [Interval(Integral, 1, None, closed="left")],
        "shuffle": ["boolean"],
        "return_X_y": ["boolean"],
        "dtype": "no_validation",  # checked below: a type or its name
        "random_state": ["random_state"],
    },
    prefer_skip_nested_validation=True,
)
def make_visual_words(
    n_objects: int = 50,
    n_images_per_object: int | tuple[int, int] = 10,
    *,
    skew: float = 0.0,
    n_distractors: int = 0,
    n_words: int = 1000,
    n_words_per_object: int = 50,
    visibility: float = 0.5,
    burst: float = 0.2,
    noise: float = 0.3,
    n_clutter: float = 25,
    zipf_exponent: float = 1.0,
    group_size: int = 4,
    n_dims: int = 16,
    shuffle: bool = True,
    return_X_y: bool = False,
    dtype: npt.DTypeLike = np.float64,
    random_state: int | np.random.RandomState | None = None,
) -> Any:
    """Generate images of objects as sparse counts of visual words.

    An object is a set of words. An image of the object shows some of these words,
    possibly several times. Some occurrences are replaced by a neighbouring word, and
    words of the background are added. Frequencies follow Zipf's law: the frequency of
    word ``k`` is proportional to ``(k + 1) ** -zipf_exponent``.

    Parameters
    ----------
    n_objects : int, default=50
        Number of objects.

    n_images_per_object : int or tuple (low, high), default=10
        Number of images of each object. With a tuple, each object draws its own
        number from `low` to `high`, both included.

    skew : float, default=0.0
        Skewness of the numbers of images, if `n_images_per_object` is a tuple. With 0,
        all numbers are equally likely. With larger values, most objects have a number
        near `low` and few near `high`.

    n_distractors : int, default=0
        Number of images that show only background. They have as many occurrences of
        words as the other images on average. Their label is -1.

    n_words : int, default=1000
        Size of the vocabulary. Word 0 is the most frequent.

    n_words_per_object : int, default=50
        Number of different words in an object, drawn with their frequencies.

    visibility : float in (0, 1], default=0.5
        Probability that an image shows a given word of its object.

    burst : float in [0, 1), default=0.2
        Probability that an occurrence of a word is followed by another one: a word
        occurs ``c`` times with probability ``(1 - burst) * burst ** (c - 1)``.

    noise : float in [0, 1], default=0.3
        Probability that an occurrence of an object's word is counted as one of the
        other words of its group, all equally likely.

    n_clutter : float, default=25
        Mean number of background words in an image, before bursts. The number has a
        Poisson distribution, and the words are drawn with their frequencies.

    zipf_exponent : float in [0, 3], default=1.0
        Exponent of Zipf's law; 0 makes all words equally frequent.

    group_size : int, default=4
        Number of neighbouring words: those from ``k * group_size`` on form group
        `k`. The last group is smaller if `n_words` is not a multiple.

    n_dims : int, default=16
        Dimension of the word vectors.

    shuffle : bool, default=True
        Whether to shuffle the images. If False, they come sorted by object, and
        distractors come last.

    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.

    dtype : {np.float64, np.float32}, default=np.float64
        Type of the counts and of the word vectors.

    random_state : int, RandomState instance or None, default=None
        Random state. Pass an int for reproducible data.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : csr_array of shape (n_images, n_words)
            Counts of the words in each image, with sorted indices.
        target : ndarray of shape (n_images,), int64
            The object in each image; -1 for distractors.
        words : ndarray of shape (n_words, n_dims)
            Word vectors. The nearest neighbours of a word, by Euclidean distance,
            are the other words of its group.
        objects : ndarray of shape (n_objects, n_words_per_object), int32
            The words of each object, in increasing order.

    (data, target) : tuple if `return_X_y` is True
        The counts and the objects.

    See Also
    --------
    load_digit_words : Visual words of real images.

    Notes
    -----
    Images are generated in blocks, about 100,000 per second. A million images need
    little more memory than the result, and with NumPy 2.5 and newer, 1.6 times as much.
    An image may be empty if `visibility` and `n_clutter` are small.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import make_visual_words
    >>> scenes = make_visual_words(20, (2, 6), n_distractors=100, random_state=0)
    >>> scenes.data.shape[1], scenes.words.shape
    (1000, (1000, 16))
    >>> int((scenes.target == -1).sum())
    100
    >>> X, y = make_visual_words(5, 3, return_X_y=True, shuffle=False)
    >>> y
    array([0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 4])
    """
    low, high = _check_range(n_images_per_object)
    if n_words_per_object > n_words:
        raise ValueError(
            "n_words_per_object must be at most n_words; got "
            f"{n_words_per_object} of {n_words}."
        )
    dtype = np.dtype(dtype)
    if dtype not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64; got {dtype}.")
    rng = make_generator(random_state)

    zipf = _Zipf(n_words, zipf_exponent)
    objects = _draw_objects(n_objects, n_words_per_object, zipf, rng)
    spread = (high - low + 1) * rng.random(n_objects) ** (1 + skew)
    y = np.repeat(np.arange(n_objects), low + spread.astype(np.int64))
    y = np.concatenate([y, np.full(n_distractors, -1)])
    if shuffle:
        rng.shuffle(y)
    X = _draw_images(
        y, objects, zipf, visibility, burst, noise, n_clutter, group_size, dtype, rng
    )
    if return_X_y:
        return X, y
    words = _place_words(n_words, group_size, n_dims, rng).astype(dtype, copy=False)
    return Bunch(data=X, target=y, words=words, objects=objects)


def _check_range(n_images_per_object):
    """Return the smallest and the largest number of images of an object."""
    if isinstance(n_images_per_object, Integral):
        return n_images_per_object, n_images_per_object
    if not (
        len(n_images_per_object) == 2
        and all(isinstance(n, Integral) for n in n_images_per_object)
        and 1 <= n_images_per_object[0] <= n_images_per_object[1]
    ):
        raise ValueError(
            "n_images_per_object must be an int or two ints (low, high) with "
            f"1 <= low <= high; got {n_images_per_object!r}."
        )
    return n_images_per_object


class _Zipf:
    """Sampler of words by Zipf's law, with Walker's alias method.

    A draw takes constant time. It picks a word `k` uniformly and keeps it with
    probability ``keep[k]``. Otherwise it returns ``alias[k]``, a word more frequent
    than the average.
    """

    def __init__(self, n_words, exponent):
        scaled = np.arange(1, n_words + 1, dtype=np.float64) ** -exponent
        scaled *= n_words / scaled.sum()
        # Rare words lack 1 - scaled. They take it from the surplus of frequent words,
        # both in order. If the surplus of a frequent word is too small for the last
        # rare word, the frequent word takes the difference from the next frequent word.
        n_frequent = max(1, np.searchsorted(-scaled, -1.0))
        over = np.cumsum(scaled[:n_frequent] - 1)
        lack = np.cumsum(1 - scaled[n_frequent:])
        taken = np.append(0.0, lack)
        donor = np.searchsorted(over, taken[:-1], side="right")
        last_taker = np.searchsorted(taken, over)
        borrowed = taken[np.minimum(last_taker, len(lack))] - over
        self.n_words = int(n_words)
        self.frequency = scaled / n_words
        self.keep = np.append(1 - borrowed, scaled[n_frequent:])
        self.alias = np.append(np.arange(1, n_frequent + 1), donor)
        # Due to rounding, the last words may lack a tiny amount for which no surplus is
        # left.
        self.alias = np.minimum(self.alias, n_frequent - 1).astype(np.int32)

    def draw(self, size, rng):
        u = rng.random(size)
        u *= self.n_words
        word = u.astype(np.int32)
        u -= word
        return np.where(u < self.keep[word], word, self.alias[word])


def _place_words(n_words, group_size, n_dims, rng):
    """Return word vectors whose nearest neighbours are the words of their group."""
    n_groups = -(-n_words // group_size)
    side = 2
    while side**n_dims < n_groups:
        side += 1
    # The digits of a number in base `side` are a point of the lattice.
    code = rng.choice(min(side**n_dims, 2**62), n_groups, replace=False)
    centres = np.empty((n_groups, n_dims))
    for axis in range(n_dims):
        code, centres[:, axis] = np.divmod(code, side)
    # Uniform within a ball, so that no two words coincide even in one dimension.
    words = rng.standard_normal((n_words, n_dims))
    length = GROUP_RADIUS * rng.random((n_words, 1)) ** (1 / n_dims)
    words *= length / np.linalg.norm(words, axis=1, keepdims=True)
    words += np.repeat(centres, group_size, axis=0)[:n_words]
    return words


def _draw_objects(n_objects, n_words_per_object, zipf, rng):
    """Return sets of words, as if words were drawn until enough are different."""
    objects = np.empty((n_objects, n_words_per_object), dtype=np.int32)
    block = max(1, BLOCK_SIZE // n_words_per_object)
    for start in range(0, n_objects, block):
        _draw_block_of_objects(objects[start : start + block], zipf, rng)
    return objects


def _draw_block_of_objects(objects, zipf, rng):
    """Fill the rows of `objects`."""
    objects[:] = zipf.draw(objects.shape, rng)
    objects.sort(axis=1)
    unfinished = np.flatnonzero(_repeats(objects).any(axis=1))
    for _ in range(N_REDRAWS):
        rows = objects[unfinished]
        again = _repeats(rows)
        rows[again] = zipf.draw(np.count_nonzero(again), rng)
        rows.sort(axis=1)
        objects[unfinished] = rows
        unfinished = unfinished[_repeats(rows).any(axis=1)]
    # The other rows need words that are too rare to draw one by one. An equivalent
    # method: the first draw of a word happens at an exponentially distributed time,
    # with its frequency as rate. The first words are taken.
    for i in unfinished:
        kept = np.unique(objects[i])
        race = rng.standard_exponential(zipf.n_words) / zipf.frequency
        race[kept] = np.inf
        n_missing = objects.shape[1] - len(kept)
        new = np.argpartition(race, n_missing - 1)[:n_missing]
        objects[i] = np.sort(np.append(kept, new))


def _repeats(rows):
    """Return the mask of entries of sorted rows that equal the previous one."""
    again = np.zeros(rows.shape, dtype=bool)
    np.equal(rows[:, 1:], rows[:, :-1], out=again[:, 1:])
    return again


def _draw_images(
    y, objects, zipf, visibility, burst, noise, n_clutter, group_size, dtype, rng
):
    """Return the counts of words in one image per label, as a CSR array."""
    n_images, n_words = len(y), zipf.n_words
    n_seen = visibility * objects.shape[1]
    n_cells = objects.shape[1] + (n_seen + n_clutter) / (1 - burst)
    block = int(max(1, BLOCK_SIZE // n_cells))
    # An occurrence is the number image * n_words + word. After sorting, equal numbers
    # form a run, and the length of the run is the count.
    key_dtype = np.int32 if block * n_words < 2**31 else np.int64
    image_keys = np.arange(block, dtype=key_dtype) * n_words

    counts = np.empty(0, dtype=dtype)
    columns = np.empty(0, dtype=np.int32)
    indptr = np.zeros(n_images + 1, dtype=np.int64)
    for start in range(0, n_images, block):
        labels = y[start : start + block]
        keys = image_keys[: len(labels)]
        shows = np.flatnonzero(labels >= 0)
        own = objects[labels[shows]] + keys[shows, None]
        own = own[rng.random(own.shape, dtype=np.float32) < visibility]
        clutter = np.repeat(
            keys, rng.poisson(np.where(labels >= 0, n_clutter, n_clutter + n_seen))
        )
        clutter += zipf.draw(len(clutter), rng)

        own = np.repeat(own, rng.geometric(1 - burst, len(own)))
        clutter = np.repeat(clutter, rng.geometric(1 - burst, len(clutter)))
        # Noise is not applied to background words, because they are drawn at random.
        _mistake(own, n_words, group_size, noise, rng)

        occurrences = np.concatenate([own, clutter])
        occurrences.sort()
        first = np.flatnonzero(starts_run(occurrences))
        distinct = occurrences[first]

        stop = start + len(labels)
        ends = np.searchsorted(distinct, keys + n_words)
        indptr[start + 1 : stop + 1] = indptr[start] + ends
        begin, end = indptr[start], indptr[stop]
        if end > len(columns):
            # Extrapolate the total from the blocks so far.
            room = int(1.05 * end * n_images / stop)
            columns.resize(room, refcheck=False)
            counts.resize(room, refcheck=False)
        columns[begin:end] = distinct % n_words
        counts[begin:end] = np.diff(first, append=len(occurrences))
    columns.resize(indptr[-1], refcheck=False)
    counts.resize(indptr[-1], refcheck=False)
    if indptr[-1] < 2**31:
        indptr = indptr.astype(np.int32)
    X = sparse.csr_array((counts, columns, indptr), shape=(n_images, n_words))
    X.has_canonical_format = True
    return X


def _mistake(keys, n_words, group_size, noise, rng):
    """Move a share `noise` of the occurrences to another word of the group."""
    moved = np.flatnonzero(rng.random(len(keys), dtype=np.float32) < noise)
    word = keys[moved] % n_words
    place = word % group_size
    size = np.minimum(group_size, n_words - word + place)
    # A step of 1 .. size - 1 around the group. The only word of a group stays.
    step = 1 + (rng.random(len(moved)) * (size - 1)).astype(keys.dtype)
    keys[moved] += (place + step) % size - place
