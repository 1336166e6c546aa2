"""Docstring entries that all learners share. They are written once, here."""

import inspect
import re

OF_HOLDOUT = """\
holdout_gain_, holdout_error_ : float
    Gain of the choice over the start on held-out samples, in mean average precision
    (in nDCG@10 with judgements), and its standard error. Only with a hold-out.

holdout_results_ : dict
    Candidates of the hold-out and their measures: `candidates`,
    `mean_average_precision` (`ndcg_at_10` with judgements), `precision_at_1`, `gain`,
    `error`, `gain_at_1` and `best_index`. Only with a hold-out, if there was enough to
    hold out.
"""
OF_FEATURES = """\
n_features_in_ : int
    Width of the training data.

feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Column names of the training data, if it had any.
"""


def add_shared_attributes(cls: type) -> None:
    """Append shared entries to the section Attributes of a class, if it has one.

    Entries about the hold-out are for classes with a parameter `holdout`. Names that
    the section describes itself are left alone.
    """
    section = re.search(
        r"^(?P<indent> *)Attributes\n *-{10}\n(.*?)(?=\n\n *\w[\w ]*\n *-{3,}\n|\s*\Z)",
        cls.__doc__ or "",
        re.M | re.S,
    )
    if section is None:
        return
    has_holdout = "holdout" in inspect.signature(cls).parameters
    shared = [OF_HOLDOUT, OF_FEATURES] if has_holdout else [OF_FEATURES]
    entries = [
        entry.rstrip()
        for entry in "\n".join(shared).split("\n\n")
        if not re.search(rf"^ *{entry.split(' :')[0]} :", section.group(), re.M)
    ]
    added = "".join(
        "\n\n" + "\n".join(section["indent"] + line for line in entry.split("\n"))
        for entry in entries
    )
    end = section.end()
    cls.__doc__ = cls.__doc__[:end] + added + cls.__doc__[end:]
