"""SelectiveMatchKernel against its formula and against the package of its authors."""

import pickle

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from peak_memory import bounded_memory
from scipy import sparse
from sklearn.utils.estimator_checks import parametrize_with_checks

from sklearn_simlearn.metrics import map_scorer
from sklearn_simlearn.similarities import SelectiveMatchKernel

each_container = pytest.mark.parametrize(
    "container", [np.asarray, sparse.csr_array, sparse.csr_matrix]
)


def naive(X, Y, n_dims, alpha, tau, binarize, idf):
    """Return the double sum over images, one word at a time."""

    def words(x):
        found = {}
        for c, r in enumerate(x.reshape(-1, n_dims)):
            if r.any():
                r = np.where(r > 0, 1.0, -1.0) if binarize else r
                found[c] = r / np.linalg.norm(r)
        return found

    S = np.zeros((len(X), len(Y)))
    for i, q in enumerate(map(words, X)):
        for j, d in enumerate(map(words, Y)):
            for c in q.keys() & d.keys():
                u = q[c] @ d[c]
                # Round, so that u = tau is exact, as in the kernel, which counts bits.
                if np.round(u, 12) >= tau:
                    S[i, j] += idf[c] * np.sign(u) * abs(u) ** alpha
            norm2 = sum(idf[c] for c in q) * sum(idf[c] for c in d)
            S[i, j] /= np.sqrt(norm2) if norm2 > 0 else 1
    return S


@pytest.fixture
def residuals(rng):
    """Return images of 5 words of 70 dimensions, more bits than a machine word."""
    X = rng.standard_normal((2, 8, 5, 70)) + rng.standard_normal((5, 70))
    X[rng.random((2, 8, 5)) < 0.2] *= -1  # opposite residuals
    X[rng.random((2, 8, 5)) < 0.4] = 0
    X[0, 3] = 0  # an image of no word
    X[..., 3] = 0  # zeros within a word
    return X.reshape(2, 8, 350)


@each_container
@pytest.mark.parametrize("binarize", [True, False])
@pytest.mark.parametrize("use_idf", [True, False])
@pytest.mark.parametrize(("alpha", "tau"), [(3.0, 0.0), (1.0, 0.2), (2.5, -1.0)])
def test_formula(alpha, tau, use_idf, binarize, container, residuals, dtype):
    X, Y = residuals.astype(dtype)
    n_images = np.maximum((X.reshape(8, 5, 70) != 0).any(axis=2).sum(axis=0), 1)
    idf = np.log(8 / n_images) ** 2 if use_idf else np.ones(5)
    kernel = SelectiveMatchKernel(
        70, selectivity=alpha, tau=tau, binarize=binarize, use_idf=use_idf
    ).fit(container(X))
    S = kernel.similarity(container(X), container(Y))
    assert_allclose(kernel.idf_, idf)
    assert S.dtype == dtype
    expected = naive(X.astype(float), Y.astype(float), 70, alpha, tau, binarize, idf)
    rtol = 1e-4 if dtype == "float32" else 1e-9
    assert_allclose(S, expected, rtol=rtol, atol=rtol)


# Made with asmk 0.1.1 (MIT licence, by T. Jenicek and G. Tolias): ASMKKernel.aggregate,
# IVF.add and IVF.search of the descriptors below, all images querying all.
ASMK = {
    (True, False, 3.0, 0.0): [
        [1.0, 0.0, 0.14135742, 0.034186808],
        [0.0, 1.0, 0.0, 0.20532019],
        [0.14135742, 0.0, 1.0, 9.9669993e-05],
        [0.034186808, 0.20532018, 9.9669993e-05, 1.0],
    ],
    (True, True, 1.0, 0.25): [
        [1.0, 0.0, 0.0826561, 0.0],
        [0.0, 1.0, 0.0, 0.6349821],
        [0.0826561, 0.0, 1.0, 0.0],
        [0.0, 0.634982, 0.0, 1.0],
    ],
    (False, False, 2.0, 0.0): [
        [1.0, 0.0, 0.3112725, 0.0180934],
        [0.0, 1.0, 0.0019635, 0.3415296],
        [0.3112725, 0.0019635, 1.0000001, 0.0025194],
        [0.0180934, 0.3415296, 0.0025194, 1.0],
    ],
    (False, True, 3.0, 0.1): [
        [1.0, 0.0, 0.1048197, 0.0],
        [0.0, 1.0, 0.0, 0.3033413],
        [0.1048197, 0.0, 1.0, 0.0],
        [0.0, 0.3033413, 0.0, 1.0],
    ],
}


@pytest.mark.parametrize(("binarize", "use_idf", "alpha", "tau"), ASMK)
def test_figures_of_the_asmk_package(binarize, use_idf, alpha, tau):
    # Four images with five descriptors each, in four words.
    i = np.arange(20)
    image, word = i // 5, i * 7 % 11 % 4
    words = np.arange(4 * 32).reshape(4, 32) * 37 % 19 - 9
    descriptors = np.arange(20 * 32).reshape(20, 32) * 53 % 31 - 15
    X = np.zeros((4, 4, 32))
    np.add.at(X, (image, word), descriptors - words[word])
    X = X.reshape(4, 128)
    S = (
        SelectiveMatchKernel(
            32, selectivity=alpha, tau=tau, binarize=binarize, use_idf=use_idf
        )
        .fit(X)
        .similarity(X)
    )
    assert_allclose(S, ASMK[binarize, use_idf, alpha, tau], rtol=0, atol=1e-6)


def test_one_word_by_hand():
    # Three of four signs agree: u = 1 - 2 / 4.
    q, d = [[1.0, 2.0, 3.0, -4.0]], [[0.5, 1.0, 0.1, 0.3]]
    for alpha, tau, expected in [
        (1, 0, 0.5),
        (3, 0, 0.125),
        (3, 0.5, 0.125),
        (3, 0.6, 0),
    ]:
        kernel = SelectiveMatchKernel(4, selectivity=alpha, tau=tau).fit(q)
        assert_array_equal(kernel.similarity(q, d), [[expected]])


def test_an_image_is_most_similar_to_itself(residuals):
    X = residuals[0]
    for binarize in (True, False):
        S = SelectiveMatchKernel(70, binarize=binarize).fit(X).similarity(X)
        some = X.any(axis=1)
        assert_allclose(np.diag(S)[some], 1)
        assert_array_equal(S[3], 0)  # no word, no similarity, no NaN
        assert (S <= 1 + 1e-12).all()


def test_tiny_residuals_are_normalised():
    # The first word of the first image: its squares underflow, those of the row do not.
    X = np.array([[1e-200, 1e-200, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
    S = SelectiveMatchKernel(2, binarize=False).fit(X).similarity(X)
    assert_allclose(S, 1)


@each_container
def test_blocks_do_not_change_the_result(container, residuals, monkeypatch):
    X, Y = residuals
    kernel = SelectiveMatchKernel(70).fit(container(X))
    whole = kernel.similarity(container(X), container(Y))
    monkeypatch.setattr("sklearn_simlearn.similarities._match_kernel.BLOCK", 200)
    monkeypatch.setattr(
        "sklearn_simlearn.similarities._match_kernel.get_chunk_n_rows",
        lambda *_, **__: 3,
    )
    assert_allclose(kernel.similarity(container(X), container(Y)), whole)


def test_memory_does_not_grow_with_the_pairs_of_residuals(rng):
    X = rng.standard_normal((80, 30 * 128))
    kernel = SelectiveMatchKernel(128, binarize=False).fit(X)
    with bounded_memory(5 * X.nbytes):  # all pairs: 80 times as much
        kernel.similarity(X)


def test_selectivity_sharpens(residuals):
    X = residuals[0]
    off_diagonal = [
        SelectiveMatchKernel(70, selectivity=a).fit(X).similarity(X).sum()
        for a in (1, 2, 4)
    ]
    assert_array_equal(np.argsort(off_diagonal), [2, 1, 0])


def test_input_is_not_changed_and_may_be_read_only(residuals):
    X = residuals[0].copy()
    X.flags.writeable = False
    for Z in (X, sparse.csr_array(X)):
        kernel = SelectiveMatchKernel(70).fit(Z)
        state = pickle.dumps(kernel)
        assert_array_equal(kernel.similarity(Z), kernel.similarity(Z, Z))
        assert pickle.dumps(kernel) == state
    assert_array_equal(X, residuals[0])


def test_stored_zeros_and_duplicates_are_not_residuals():
    canonical = sparse.csr_array([[1.0, -3.0, 0.0, 0.0], [2.0, 1.0, 1.0, 1.0]])
    spelled_out = sparse.csr_array(
        (
            [1.0, -1.0, -2.0, 0.0, 2.0, 1.0, 1.0, 1.0],
            [0, 1, 1, 3, 0, 1, 2, 3],
            [0, 4, 8],
        ),
        shape=(2, 4),
    )
    kernel = SelectiveMatchKernel(2).fit(canonical)
    assert_array_equal(kernel.similarity(spelled_out), kernel.similarity(canonical))


def test_score_ranks_by_the_kernel(rng):
    y = np.repeat(np.arange(6), 5)
    X = rng.standard_normal((30, 64)) + rng.standard_normal((6, 64))[y]
    kernel = SelectiveMatchKernel(16).fit(X)
    assert kernel.score(X, y) == map_scorer(kernel, X, y) > 0.5


def test_width_must_be_a_multiple_of_the_dimensions():
    message = "X has 10 columns, which is not a multiple of"
    with pytest.raises(ValueError, match=message):
        SelectiveMatchKernel(4).fit(np.ones((3, 10)))


@pytest.mark.parametrize(
    "params", [{"n_dims": 0}, {"selectivity": 0.0}, {"tau": 1.5}, {"binarize": 2}]
)
def test_bad_parameters_are_named(params):
    with pytest.raises(ValueError, match=f"'{next(iter(params))}' parameter"):
        SelectiveMatchKernel(**params).fit(np.ones((3, 128)))


@parametrize_with_checks(
    [SelectiveMatchKernel(1), SelectiveMatchKernel(1, binarize=False, use_idf=True)]
)
def test_sklearn_contract(estimator, check):
    check(estimator)
