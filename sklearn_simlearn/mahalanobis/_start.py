"""Initial matrix of SparseMahalanobisLearner."""

import numpy as np
from scipy import sparse
from sklearn.utils import check_array
from sklearn.utils.validation import check_non_negative

from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.start import POWER, Start, informative_idf
from sklearn_simlearn._core.typing import Matrix, MatrixLike


def check_init(init: str | MatrixLike, n_words: int) -> "str | sparse.csr_array":
    """Return `init`: a name, or CSR of float64."""
    if isinstance(init, str):
        return init
    start = canonical_csr(
        check_array(init, accept_sparse="csr", dtype=np.float64, input_name="init")
    )
    if start.shape != (n_words, n_words):
        raise ValueError(
            f"init must have shape ({n_words}, {n_words}), since X has {n_words} "
            f"features; got {start.shape}."
        )
    check_non_negative(start, "init")
    if start.nnz == 0 or abs(start - start.T).max() > 1e-9 * start.max():
        raise ValueError("init must be symmetric and have at least one positive entry.")
    return start


def find_start(
    X: Matrix, init: "str | sparse.csr_array"
) -> tuple[sparse.csr_array, float]:
    """Return the initial matrix, and the power for the entries of X."""
    if not isinstance(init, str):
        return init, 1.0
    power, idf = 1.0, None
    if init == "auto":
        power, idf = POWER, Start.fit(X).idf
    elif init == "tfidf":
        idf = informative_idf(X)
    if idf is None:
        return sparse.eye_array(X.shape[1], format="csr"), 1.0
    return sparse.diags_array(idf ** (2 * power), format="csr"), power
