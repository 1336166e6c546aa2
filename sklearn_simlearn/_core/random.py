"""Random numbers."""

import numpy as np
from sklearn.utils import check_random_state


def make_generator(random_state):
    """A Generator from what scikit-learn takes as `random_state`.

    RandomState is its convention, Generator the faster one, and the one that can spawn.
    """
    seed = check_random_state(random_state).randint(2**32, size=4, dtype=np.uint32)
    return np.random.default_rng(seed)
