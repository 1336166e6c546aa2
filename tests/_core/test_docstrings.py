"""Docstring entries that several classes share."""

import re
from itertools import product

import pytest

import sklearn_simlearn
from sklearn_simlearn import MemoryVectorQuery, similarities
from sklearn_simlearn.base import SimilarityLearner

LEARNERS = [
    value
    for value in (getattr(sklearn_simlearn, name) for name in sklearn_simlearn.__all__)
    if isinstance(value, type) and issubclass(value, SimilarityLearner)
]
SIMILARITIES = [getattr(similarities, name) for name in similarities.__all__]
OF_HOLDOUT = ["holdout_gain_, holdout_error_", "holdout_results_"]
OF_FEATURES = ["n_features_in_", "feature_names_in_"]


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        *product(LEARNERS, OF_HOLDOUT + OF_FEATURES),
        *product([*SIMILARITIES, MemoryVectorQuery], OF_FEATURES),
    ],
)
def test_shared_attributes_are_described_once(cls, name):
    lines = cls.__doc__.splitlines()
    [line] = [i for i, text in enumerate(lines) if text.strip().startswith(f"{name} :")]
    sections = [
        lines[i - 1].strip() for i, text in enumerate(lines[:line]) if "---" in text
    ]
    assert sections[-1] == "Attributes"
    assert lines[line - 1] == "", "an empty line is in front of an entry"


def test_entries_end_the_section():
    class Plain(SimilarityLearner):
        """A learner.

        Attributes
        ----------
        n_features_in_ : int
            Described here.
        """

    class WithHoldout(SimilarityLearner):
        """A learner.

        Attributes
        ----------
        W_ : ndarray
            The weights.

        Notes
        -----
        None.
        """

        def __init__(self, holdout="auto"):
            self.holdout = holdout

    class Silent(SimilarityLearner):
        """A learner without a section."""

    names = re.compile(r"^ *([\w, ]+) : ", re.M)
    assert names.findall(Plain.__doc__) == ["n_features_in_", "feature_names_in_"]
    assert names.findall(WithHoldout.__doc__) == ["W_", *OF_HOLDOUT, *OF_FEATURES]
    assert WithHoldout.__doc__.rstrip().endswith("None.")
    assert Silent.__doc__ == "A learner without a section."
