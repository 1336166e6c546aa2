"""Labelled sets for the evaluation of learners, and splits of them.

The sets of the package (digits, digit words) are always available. The others are read
from the folder that `SIMLEARN_DATA` names, and are skipped if they are missing.
"""

import os
from functools import partial
from pathlib import Path

import numpy as np
from _common import as_counts, load, load_mnist
from sklearn.datasets import load_digits
from sklearn.model_selection import StratifiedShuffleSplit

from sklearn_simlearn.datasets import load_digit_words
from sklearn_simlearn.model_selection import ObjectShuffleSplit

# Largest number of samples of one class, so that the large sets take minutes.
MAX_PER_CLASS = 400


def _digits():
    return load_digits(return_X_y=True)


def _digit_words():
    return load_digit_words(return_X_y=True)


def _mnist():
    X, y = load_mnist()
    return X[-10_000:], y[-10_000:]


def _faces():
    arrays = load("orl_faces.npz")
    return arrays["X"].reshape(len(arrays["X"]), -1).astype(np.float32), arrays["y"]


def _banking():
    arrays = load("banking77_minilm.npz")
    return arrays["X"].astype(np.float32), arrays["y"]


def _office():
    arrays = load("office_caltech10_surf800.npz")
    domains = ("amazon", "Caltech10", "dslr", "webcam")
    X = np.concatenate([arrays[f"{name}_X"] for name in domains]).astype(np.float64)
    y = np.concatenate([arrays[f"{name}_y"] for name in domains])
    return X, y


def _caltech():
    arrays = load("caltech101_oasis_b32_1k.npz")
    y = arrays["y"].astype(np.int64)
    return as_counts(arrays), np.where(arrays["is_background"], -1, y)


def _reuters():
    """Return documents of one topic, of topics with at least ten documents."""
    arrays = load("reuters_modapte_bow.npz")
    start, topics = arrays["label_indptr"], arrays["label_indices"].astype(np.int64)
    X, single = as_counts(arrays), np.flatnonzero(np.diff(start) == 1)
    y = topics[start[single]]
    return X[single], np.where(np.bincount(y)[y] < 10, -1, y)


def _paris_words():
    arrays = load("paris_subset_bovw20k.npz")
    return as_counts(arrays), arrays["y"]


def _paris_cnn():
    arrays = load("paris_subset_cnn.npz")
    return arrays["feat"].astype(np.float32), arrays["y"]


def _ukbench_words():
    arrays = load("ukbench1000_bovw20k.npz")
    return as_counts(arrays), arrays["group"]


def _ukbench_vlad():
    arrays = load("ukbench1000_vlad64.npz")
    return arrays["pca128"], arrays["group"]


def _ukbench_cnn():
    arrays = load("ukbench1000_cnn.npz")
    return arrays["feat"].astype(np.float32), arrays["group"]


SETS = {
    "digits": (_digits, None),
    "digit words": (_digit_words, None),
    "MNIST": (_mnist, "mnist.npz"),
    "Faces": (_faces, "orl_faces.npz"),
    "Banking": (_banking, "banking77_minilm.npz"),
    "Office": (_office, "office_caltech10_surf800.npz"),
    "Caltech": (_caltech, "caltech101_oasis_b32_1k.npz"),
    "Reuters": (_reuters, "reuters_modapte_bow.npz"),
    "Paris words": (_paris_words, "paris_subset_bovw20k.npz"),
    "Paris CNN": (_paris_cnn, "paris_subset_cnn.npz"),
    "UKbench words": (_ukbench_words, "ukbench1000_bovw20k.npz"),
    "UKbench VLAD": (_ukbench_vlad, "ukbench1000_vlad64.npz"),
    "UKbench CNN": (_ukbench_cnn, "ukbench1000_cnn.npz"),
}


def available_sets():
    """Return the names of the sets whose files exist."""
    folder = Path(os.environ.get("SIMLEARN_DATA", "."))
    return [
        name for name, (_, file) in SETS.items() if not file or (folder / file).exists()
    ]


def load_set(name):
    """Return the samples and labels of a set in a fixed random order."""
    X, y = SETS[name][0]()
    y = y.astype(np.int64)
    order = np.random.default_rng(0).permutation(_at_most(y, MAX_PER_CLASS))
    return X[order], y[order]


# Protocols: samples of each class are held out, or classes.
SPLITTERS = {
    "samples": partial(StratifiedShuffleSplit, test_size=0.5),
    "30 % of samples": partial(StratifiedShuffleSplit, test_size=0.3),
    "objects": partial(ObjectShuffleSplit, test_size=0.5),
}


def split_set(X, y, protocol, seed):
    """Return training and test rows."""
    splitter = SPLITTERS[protocol](n_splits=1, random_state=seed)
    return next(splitter.split(np.zeros((len(y), 1)), y))


def _at_most(y, n):
    """Return rows of at most n samples of each class; -1 means no class."""
    order = np.random.default_rng(0).permutation(len(y))
    order = order[np.argsort(y[order], kind="stable")]
    sorted_y = y[order]
    place = np.arange(len(y)) - np.searchsorted(sorted_y, sorted_y)
    return np.sort(order[(place < n) & (sorted_y >= 0)])
