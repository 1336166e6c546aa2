"""Random numbers."""

import numpy as np
from sklearn.utils import check_random_state

from sklearn_simlearn._core.typing import RandomState


def make_generator(random_state: RandomState) -> np.random.Generator:
    """Return a Generator for a value of `random_state` in scikit-learn.

    RandomState is scikit-learn's convention. A Generator is faster and can spawn.
    """
    seed = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint32)
    return np.random.default_rng(seed)
