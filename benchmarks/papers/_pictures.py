"""The photographs of UKbench that are stored as pictures."""

from functools import cache
from itertools import pairwise

import numpy as np
from _common import load


@cache
def load_pictures():
    """Return 80 grey pictures and their objects, four pictures each."""
    import cv2

    arrays = load("ukbench_sample80.npz")
    pictures = [
        cv2.imdecode(arrays["jpeg_bytes"][start:end], cv2.IMREAD_GRAYSCALE)
        for start, end in pairwise(arrays["jpeg_offsets"])
    ]
    return pictures, arrays["group"].astype(np.int64)
