"""Docstring entries that several classes share."""

import inspect
import re

OF_HOLDOUT = """\
holdout_gain_, holdout_error_ : float
    Gain of the chosen candidate over the start on held-out samples, in mean average
    precision (in nDCG@10 with judgements), and its standard error. Set only with a
    hold-out.

holdout_results_ : dict
    Candidates of the hold-out and their measures: `candidates`,
    `mean_average_precision` (`ndcg_at_10` with judgements), `precision_at_1`, `gain`,
    `error`, `gain_at_1` and `best_index`. Set only with a hold-out, if there was enough
    data to hold out.
"""
OF_FEATURES = """\
n_features_in_ : int
    Width of the training data.

feature_names_in_ : ndarray of shape (`n_features_in_`,)
    Column names of the training data, if it had any.
"""
OF_IMAGES = """\
n_jobs : int, default=None
    Number of threads. Each thread processes one image at a time.

verbose : bool, default=False
    Show the progress on a terminal.
"""


def add_shared_attributes(cls: type) -> None:
    """Append shared entries to the section Attributes of a class, if it has one.

    Entries about the hold-out are for classes with a parameter `holdout`. Names that
    the section describes already are not added.
    """
    has_holdout = "holdout" in inspect.signature(cls).parameters
    shared = [OF_HOLDOUT, OF_FEATURES] if has_holdout else [OF_FEATURES]
    append_entries(cls, "Attributes", "\n".join(shared))


def append_entries(cls: type, section: str, entries: str) -> None:
    """Append entries to a section of the docstring of a class, if it has the section.

    Entries that the section has already are not added.
    """
    text = cls.__doc__ or ""
    found = re.search(
        rf"^(?P<indent> *){section}\n *-{{{len(section)}}}\n"
        r"(.*?)(?=\n\n *\w[\w ]*\n *-{3,}\n|\s*\Z)",
        text,
        re.M | re.S,
    )
    if found is None:
        return
    missing = [
        entry.rstrip()
        for entry in entries.split("\n\n")
        if not re.search(rf"^ *{entry.split(' :')[0]} :", found.group(), re.M)
    ]
    added = "".join(
        "\n\n" + "\n".join(found["indent"] + line for line in entry.split("\n"))
        for entry in missing
    )
    end = found.end()
    cls.__doc__ = text[:end] + added + text[end:]
