"""
=========================================
How do you find near duplicates of texts?
=========================================

Collections of texts often contain copies with small changes: other capitals, a typing
error, an added or a missing word. This example finds such near duplicates by the cosine
of tf-idf of parts of words. The index compares all texts with each other.
"""

# %%
# Texts with copies
# -----------------
# The texts are 1,440 definitions of words. Every sixth of them is copied, and the copy
# is changed in one of four ways.

import numpy as np

from sklearn_simlearn.datasets import load_categories

rng = np.random.default_rng(0)


def drop_word(words):
    del words[rng.integers(len(words))]


def swap_letters(words):
    place = max(range(len(words)), key=lambda i: len(words[i]))
    word = words[place]
    i = rng.integers(len(word) - 1)
    words[place] = word[:i] + word[i + 1] + word[i] + word[i + 2 :]


def add_word(words):
    words.insert(rng.integers(len(words)), "usually")


def use_capitals(words):
    words[:] = [word.capitalize() for word in words]


def change(text):
    """Return a copy of a text with one change."""
    words = text.split()
    rng.choice([drop_word, swap_letters, add_word, use_capitals])(words)
    return " ".join(words)


definitions = [text for text in load_categories().documents if len(text.split()) > 5]
source = np.arange(0, len(definitions), 6)
texts = definitions + [change(definitions[i]) for i in source]
print(len(definitions), "definitions and", len(source), "copies, such as")
print(f"  {definitions[0]}\n  {texts[len(definitions)]}")

# %%
# The most similar other text
# ---------------------------
# Parts of words tolerate typing errors, and lower case removes the capitals. If a
# pipeline ends in a transformer, the index compares texts by the cosine of the output.
# Each text is its own best result, so we request two results.

from sklearn.feature_extraction.text import TfidfVectorizer

from sklearn_simlearn.compose import make_retrieval_pipeline
from sklearn_simlearn.index import SimilarityIndex

letters = TfidfVectorizer(analyzer="char_wb", ngram_range=(3, 5), sublinear_tf=True)
index = SimilarityIndex(make_retrieval_pipeline(letters).fit(texts)).fit(texts)
scores, found = index.search(texts, k=2)
is_other = found != np.arange(len(texts))[:, None]
best = np.argmax(is_other, axis=1)
rows = np.arange(len(texts))
other, similarity = found[rows, best], scores[rows, best]

# %%
# Choice of a threshold
# ---------------------
# The copies are known here, so precision and recall can be computed for each threshold.
# For your own texts, read some pairs around a threshold to choose it.

import matplotlib.pyplot as plt
from sklearn.metrics import PrecisionRecallDisplay, precision_recall_curve

first, second = np.minimum(rows, other), np.maximum(rows, other)
copy_of = np.full(len(texts), -1)
copy_of[len(definitions) :] = source
is_copy = copy_of[second] == first
PrecisionRecallDisplay.from_predictions(is_copy, similarity, name="parts of words")
plt.show()

precision, recall, threshold = precision_recall_curve(is_copy, similarity)
best = np.argmax(precision[:-1] + recall[:-1])
print(
    f"similarity of at least {threshold[best]:.2f}: precision {precision[best]:.2f}, "
    f"recall {recall[best]:.2f}"
)

# %%
# Pairs that are not copies
# -------------------------
# Above the threshold there are also definitions with nearly the same words but another
# meaning. Letters do not show the difference, so you have to read such pairs.

shown = np.flatnonzero((similarity >= threshold[best]) & ~is_copy & (rows < other))
for row in shown[np.argsort(-similarity[shown])][:3]:
    print(f"{similarity[row]:.2f}\n  {texts[row]}\n  {texts[other[row]]}")
