"""Histograms: what counts as counts."""

import numpy as np
from scipy import sparse
from sklearn.utils import gen_batches
from sklearn.utils.validation import check_non_negative


def check_counts(X, whom):
    """Refuse negative numbers and fractions.

    Parameters
    ----------
    X : ndarray or CSR matrix
        Checked samples.

    whom : str
        Name of the estimator, for the message.
    """
    check_non_negative(X, whom)
    values = X.data if sparse.issparse(X) else X
    for block in gen_batches(len(values), 2**16):  # no copy of the whole
        if not np.array_equal(values[block], np.rint(values[block])):
            raise ValueError(
                f"{whom} compares counts, but X has fractions. Pass the raw counts, "
                "not weighted or normalised ones."
            )
