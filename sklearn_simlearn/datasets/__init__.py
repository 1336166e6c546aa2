"""Embedded real data, synthetic generators, and the reader of the user's own files."""

from sklearn_simlearn.datasets._definitions import load_definitions
from sklearn_simlearn.datasets._digit_words import load_digit_words
from sklearn_simlearn.datasets._npz import load_npz
from sklearn_simlearn.datasets._places import load_places
from sklearn_simlearn.datasets._visual_words import make_visual_words

__all__ = [
    "load_definitions",
    "load_digit_words",
    "load_npz",
    "load_places",
    "make_visual_words",
]
