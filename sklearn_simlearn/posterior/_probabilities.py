"""Class probabilities of rows of unit length."""

import warnings

import numpy as np
from scipy import linalg, sparse
from scipy.special import softmax
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils import gen_batches
from sklearn.utils.extmath import safe_sparse_dot

from sklearn_simlearn._core.directions import Affine, principal_directions, project
from sklearn_simlearn._core.encoders import storable
from sklearn_simlearn._core.rows import unit_rows
from sklearn_simlearn._core.sklearn import get_chunk_n_rows
from sklearn_simlearn._core.typing import Matrix

# (posterior-ridge)  Penalty, and the factor that turns regression values into logits.
RIDGE = 0.1
RIDGE_SHARPNESS = 20.0

# (posterior-features)  Penalty of the coefficients of landmarks. It exceeds the error
# of sums over `BLOCK` rows in single precision.
LANDMARK_RIDGE = 0.03
BLOCK = 1024

# Steps of k-means from landmarks drawn at random. More steps change little.
N_STEPS = 5

# Smallest spread of the rows. If rows are closer to each other, a kernel of their true
# spread would amplify rounding errors.
MIN_SPREAD = 1e-4

# (posterior-discriminants)  Shrinkage of the covariance towards the mean variance.
SHRINKAGE = 0.1


class Posterior:
    """Base of class probabilities of rows.

    `width` is the number of temporary values per row; it limits the size of a batch.
    """

    width: int

    def probabilities(self, rows: Matrix) -> np.ndarray:
        """Return the probabilities of a few rows, in double precision."""
        raise NotImplementedError

    def of(self, rows: Matrix) -> np.ndarray:
        """Return the probabilities of any number of rows."""
        n_rows = get_chunk_n_rows(32 * self.width, max_n_rows=rows.shape[0])
        if n_rows >= rows.shape[0]:
            return self.probabilities(rows)
        return np.concatenate(
            [
                self.probabilities(rows[batch])
                for batch in gen_batches(rows.shape[0], n_rows)
            ]
        )


@storable
class Linear(Posterior):
    """Linear classifier: softmax(W x + b)."""

    def __init__(self, W: np.ndarray, b: np.ndarray):
        self.W, self.b = W, b
        self.width = len(W)

    def probabilities(self, rows: Matrix) -> np.ndarray:
        """Return the probabilities of a few rows."""
        scores = safe_sparse_dot(rows, self.W.T, dense_output=True)
        return softmax(scores.astype(np.float64) + self.b, axis=1)


def fit_means(rows: Matrix, labels: np.ndarray, sharpness: float) -> Linear:
    """Return the softmax of cosines with the class means: (posterior-means)."""
    means = unit_rows(np.asarray(safe_sparse_dot(_one_hot(labels).T, rows)))
    return Linear((sharpness * means).astype(rows.dtype), np.zeros(len(means)))


class Coordinates:
    """Centred rows, projected onto their leading directions.

    Parameters
    ----------
    rows : ndarray or csr_array
        Rows of unit length.

    rng : Generator
        Draws the rows from which the directions are computed.
    """

    def __init__(self, rows: Matrix, rng: np.random.Generator):
        self.directions = principal_directions(rows, rng)
        Z = project(rows, self.directions).astype(np.float64)
        self.mean = Z.mean(axis=0)
        self.Z = Z - self.mean

    def pull_back(self, L: np.ndarray, *, unit: bool) -> Affine:
        """Return the map from rows to their centred coordinates, multiplied by L'."""
        return Affine(L, L @ self.mean, unit).after(self.directions)

    def discriminate(self, labels: np.ndarray) -> Affine:
        """Return the map of discriminant analysis: (posterior-discriminants)."""
        _, index, size = np.unique(labels, return_inverse=True, return_counts=True)
        means = (_one_hot(labels).T @ self.Z) / size[:, None]
        rest = self.Z - means[index]
        within = rest.T @ rest / len(rest)
        level = np.trace(within) / len(within) or 1.0
        values, vectors = linalg.eigh(
            (1 - SHRINKAGE) * within + SHRINKAGE * level * np.eye(len(within))
        )
        whiten = vectors / np.sqrt(values)
        _, s, Vt = linalg.svd(means @ whiten, False)
        rank = max(1, np.count_nonzero(s > 1e-6 * s[0]))
        return self.pull_back((whiten @ Vt[:rank].T).T, unit=True)


def fit_logistic(
    rows: Matrix, coordinates: Coordinates, labels: np.ndarray, C: float
) -> Linear:
    """Fit logistic regression on centred rows, scaled to a mean square of 1.

    Without this scaling, the penalty would make the probabilities of nearly parallel
    rows equal.
    """
    Z = coordinates.Z
    scale = 1 / max(np.sqrt(np.einsum("ij,ij->", Z, Z) / len(Z)), MIN_SPREAD)
    model = LogisticRegression(C=C, tol=1e-3, max_iter=300)
    with warnings.catch_warnings():
        # A ranking does not need the exact optimum.
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit((scale * Z).astype(rows.dtype), labels)
    W, b = scale * model.coef_.astype(np.float64), model.intercept_
    if len(W) == 1:  # two classes
        W, b = np.vstack([-W / 2, W / 2]), np.concatenate([-b / 2, b / 2])
    affine = coordinates.pull_back(W, unit=False)
    return Linear(affine.A.astype(rows.dtype), b - affine.b)


@storable
class Ridge(Posterior):
    """Ridge regression on the classes, with a Gaussian kernel: (posterior-ridge).

    For unit rows the kernel is exp(sharpness * (cosine - 1) / spread), where the spread
    is the mean of 1 - cosine over all pairs. The fit computes it in single precision.
    """

    def __init__(
        self,
        rows: Matrix,
        labels: np.ndarray,
        sharpness: float,
        n_landmarks: int,
        rng: np.random.Generator,
    ):
        mean = np.asarray(rows.mean(axis=0), dtype=np.float64).ravel()
        self.sharpness = sharpness / max(float(1 - mean @ mean), MIN_SPREAD)
        is_class = _one_hot(labels).astype(np.float32)
        # All n rows cost n^3 / 3 operations, m landmarks cost n m^2.
        if rows.shape[0] <= 2 * n_landmarks:
            self.landmarks = rows
            gram = self._kernel(rows)
            gram[np.diag_indices_from(gram)] += RIDGE
        else:
            self.landmarks = _find_landmarks(rows, labels, n_landmarks, rng)
            gram, is_class = self._sum_landmarks(rows, is_class)
        # LAPACK overwrites column-major arrays, such as the transpose.
        factor = linalg.cho_factor(gram.T, overwrite_a=True, check_finite=False)
        coefficients = linalg.cho_solve(factor, is_class, check_finite=False)
        self.coefficients = coefficients.astype(rows.dtype)
        self.width = len(gram)

    def probabilities(self, rows: Matrix) -> np.ndarray:
        """Return the probabilities of a few rows."""
        scores = self._kernel(rows, rows.dtype) @ self.coefficients
        return softmax(RIDGE_SHARPNESS * scores.astype(np.float64), axis=1)

    def _sum_landmarks(self, rows, is_class):
        """Return both sides of the normal equations: (posterior-features)."""
        gram = RIDGE * self._kernel(self.landmarks).astype(np.float64)
        gram[np.diag_indices_from(gram)] += LANDMARK_RIDGE * (1 + rows.shape[0] / 2**14)
        target = 0.0
        for batch in gen_batches(rows.shape[0], BLOCK):
            K = self._kernel(rows[batch])
            gram += K.T @ K
            target = target + (K.T @ is_class[batch]).astype(np.float64)
        return gram, target

    def _kernel(self, rows, dtype=np.float32):
        K = safe_sparse_dot(rows, self.landmarks.T, dense_output=True)
        K = np.asarray(K)
        K -= 1
        K *= self.sharpness
        return np.exp(K.astype(dtype, copy=False))


@storable
class Classified(Posterior):
    """Probabilities of the user's classifier."""

    def __init__(self, classifier):
        self.classifier = classifier
        self.width = len(classifier.classes_)

    def probabilities(self, rows: Matrix) -> np.ndarray:
        """Return the probabilities of a few rows."""
        return np.asarray(self.classifier.predict_proba(rows), dtype=np.float64)


def _find_landmarks(rows, labels, n, rng):
    """Return n rows, spread evenly over the classes, or centres of dense rows there.

    The centres are those of k-means within each class, scaled to unit length.
    """
    order = rng.permutation(len(labels))
    order = order[np.argsort(labels[order], kind="stable")]
    drawn = order[np.linspace(0, len(labels) - 1, n).astype(np.intp)]
    if sparse.issparse(rows):
        return rows[np.sort(drawn)]
    return np.concatenate(
        [
            _find_centres(rows[order[slice(*bounds)]], rows[own])
            for own, *bounds in _split_by_class(drawn, labels[drawn], labels[order])
        ]
    )


def _split_by_class(drawn, of_drawn, sorted_labels):
    """Yield the drawn rows of each class, and where the class starts and ends."""
    classes, first = np.unique(of_drawn, return_index=True)
    starts = np.searchsorted(sorted_labels, classes)
    ends = np.searchsorted(sorted_labels, classes, side="right")
    return zip(np.split(drawn, first[1:]), starts, ends, strict=True)


def _find_centres(rows, centres):
    """Return the centres after some steps of k-means by the cosine."""
    for _ in range(N_STEPS):
        nearest = np.argmax(rows @ centres.T, axis=1)
        members = sparse.csr_array(
            (np.ones(len(rows), rows.dtype), nearest, np.arange(len(rows) + 1)),
            shape=(len(rows), len(centres)),
        )
        sums = members.T @ rows
        is_empty = np.bincount(nearest, minlength=len(centres)) == 0
        centres = np.where(is_empty[:, None], centres, unit_rows(sums))
    return centres


def _one_hot(labels):
    classes, code = np.unique(labels, return_inverse=True)
    is_class = np.zeros((len(labels), len(classes)))
    is_class[np.arange(len(labels)), code] = 1
    return is_class
