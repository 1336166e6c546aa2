"""Headers of .npy files."""

import threading

from numpy.lib import format as npy

# Bytes of the longest header that NumPy parses, and of the numbers before it.
MAX_HEADER = 10_000 + npy.MAGIC_LEN + 4

# NumPy reads the headers of .npy files with Python's parser. In Python 3.11, the parser
# fails with "AST constructor recursion depth mismatch" if another thread parses at the
# same time.
_ONE_PARSER = threading.Lock()


def read_header(file):
    """Return the shape, whether the order is Fortran's, and the dtype of an array.

    Bytes that are not a header raise errors of many types.
    """
    read = {
        (1, 0): npy.read_array_header_1_0,
        (2, 0): npy.read_array_header_2_0,
    }[npy.read_magic(file)]
    with _ONE_PARSER:
        return read(file)
