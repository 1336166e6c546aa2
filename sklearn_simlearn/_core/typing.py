"""Types of the public interface.

SciPy has no types, so a type checker takes both of these for anything; they are there
for the reader, and for editors.
"""

from typing import Any, TypeAlias

# array-like or sparse matrix, as scikit-learn takes them
MatrixLike: TypeAlias = Any

# ndarray or csr_array
Matrix: TypeAlias = Any
