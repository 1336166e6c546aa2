"""Parts of a union: columns, fitted similarities, and their weighted sum."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from sklearn_simlearn._core.encoders import Encoder, Sides
from sklearn_simlearn._core.rows import canonical_csr
from sklearn_simlearn._core.sklearn import num_samples, safe_indexing
from sklearn_simlearn._core.targets import show_ids
from sklearn_simlearn._core.typing import Matrix
from sklearn_simlearn._core.unwrap import Model


def take_columns(X: Any, columns: Any) -> Any:
    """Return some columns of samples.

    Parameters
    ----------
    X : array-like, sparse matrix, frame or list
        Samples.

    columns : str, int, slice, list of str or int, or mask
        The columns. A single name selects one column as a one-dimensional object, such
        as a column of texts; other values select a two-dimensional object.
        ``slice(None)`` selects `X` itself.
    """
    if isinstance(columns, slice) and columns == slice(None):
        return X
    if sparse.issparse(X):
        X = canonical_csr(X)
    elif not hasattr(X, "shape"):
        X = np.asarray(X)
    try:
        return safe_indexing(X, columns, axis=1)
    except (IndexError, KeyError, ValueError, TypeError) as error:
        known = getattr(X, "columns", None)
        remedy = str(error)
        if known is not None:
            remedy = f"It has the columns {show_ids([*map(str, known)])}."
        if isinstance(X, np.ndarray) and X.ndim < 2:
            remedy = (
                "Pass queries and documents as frames or arrays with columns, or "
                "slice(None) as the columns of a part that takes all of X."
            )
        raise ValueError(
            f"The columns {columns!r} cannot be taken from a {type(X).__name__} of "
            f"shape {X.shape}. {remedy}"
        ) from error


class Part(NamedTuple):
    """Fitted similarity of some columns, with the factor of its queries."""

    columns: Any
    model: Model
    factor: float
    name: str = ""

    def encode_queries(self, X: Any) -> Matrix:
        """Return encoded queries, times the factor."""
        Q = self.model.prepare_queries(take_columns(X, self.columns))
        return self.factor * _as_floats(self.model.encode_queries(Q))

    def encode_items(self, X: Any) -> Matrix:
        """Return encoded items."""
        D = self.model.prepare_items(take_columns(X, self.columns))
        return _as_floats(self.model.encode_items(D))

    def compare_with(self, X: Any, n_threads: int = 1) -> Callable[[Any], np.ndarray]:
        """Return a function from queries to their similarities with some items."""
        D = self.model.prepare_items(take_columns(X, self.columns))
        compare = self.model.compare_with(D, n_threads=n_threads)

        def similarities(X_queries):
            Q = self.model.prepare_queries(take_columns(X_queries, self.columns))
            return self.factor * compare(Q, np.arange(num_samples(Q)), None)

        return similarities


@dataclass(frozen=True, eq=False)
class WeightedSum(Encoder):
    r"""Sum of the similarities of several parts.

    .. math:: s(q, d) = \sum_p f_p\, s_p(q, d)

    The encodings of the parts are concatenated. Queries are multiplied by the factors
    :math:`f_p`, so that stored items stay valid if the factors change.

    Parameters
    ----------
    parts : tuple of Part
        The parts, each with a factor other than 0.
    """

    parts: tuple[Part, ...]

    def queries(self, X: Any) -> Matrix:
        """Return one encoded row per query."""
        return _join([part.encode_queries(X) for part in self.parts])

    def items(self, X: Any) -> Matrix:
        """Return one encoded row per item."""
        return _join([part.encode_items(X) for part in self.parts])

    def compare(self, sides: Sides) -> np.ndarray:
        """Return the sum of the similarities of the parts."""
        return self.products_with(sides.items.X, sides.n_threads)(sides.queries.X)

    def products_with(self, X: Any, n_threads: int = 1) -> Callable[[Any], np.ndarray]:
        """Return a function from queries to their similarities with some items.

        Each part is compared separately: dense encodings by BLAS, sparse encodings by
        postings.
        """
        functions = [part.compare_with(X, n_threads) for part in self.parts]

        def similarities(X_queries):
            total = functions[0](X_queries)
            for function in functions[1:]:
                total = total + function(X_queries)
            return total

        return similarities


def _as_floats(encoded):
    """Return encodings in single or double precision."""
    if encoded.dtype in (np.float32, np.float64):
        return encoded
    return encoded.astype(np.float64)


def _join(parts: Sequence[Matrix]) -> Matrix:
    """Return matrices side by side; CSR if one of them is sparse."""
    if len(parts) == 1:
        return parts[0]
    dtype = np.result_type(*parts)
    if any(sparse.issparse(part) for part in parts):
        rows = [
            part if sparse.issparse(part) else sparse.csr_array(part) for part in parts
        ]
        return canonical_csr(sparse.hstack(rows, format="csr", dtype=dtype))
    return np.hstack(parts).astype(dtype, copy=False)
