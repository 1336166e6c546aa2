"""Embedded real data, synthetic generators, and readers of files."""

from sklearn_simlearn.datasets._beir import load_beir
from sklearn_simlearn.datasets._categories import load_categories
from sklearn_simlearn.datasets._definitions import load_definitions
from sklearn_simlearn.datasets._digit_words import load_digit_words
from sklearn_simlearn.datasets._image_folder import load_image_folder
from sklearn_simlearn.datasets._npz import load_npz
from sklearn_simlearn.datasets._places import load_places
from sklearn_simlearn.datasets._texts import load_texts
from sklearn_simlearn.datasets._visual_words import make_visual_words

__all__ = [
    "load_beir",
    "load_categories",
    "load_definitions",
    "load_digit_words",
    "load_image_folder",
    "load_npz",
    "load_places",
    "load_texts",
    "make_visual_words",
]
