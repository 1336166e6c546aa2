"""
==========================================
Which words does a learned similarity use?
==========================================

Tf-idf weights a word by its rarity. But a rare word is not always informative: in this
dictionary, "tree" and "states" are about equally rare, and only "tree" describes the
defined object. :class:`~sklearn_simlearn.SparseMahalanobisLearner` learns the weights
from labelled texts, and the weights can be inspected. The maths is in the :ref:`User
Guide <mahalanobis>`.
"""

# %%
# Texts
# -----
# The data are definitions of words in 36 groups, two thirds of them for training.

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.datasets import load_definitions

definitions = load_definitions()
y = definitions.target
counter = CountVectorizer(min_df=5, dtype=np.float64)
X = counter.fit_transform(definitions.data)
words = counter.get_feature_names_out()
test = np.arange(len(y)) % 3 == 0
train = ~test
X.shape

# %%
# Learned weights
# ---------------
# With ``n_neighbors=0`` a word matches only itself, and a diagonal matrix is learned:
# one weight per word. The learner starts from the weights of tf-idf.

from sklearn_simlearn import SparseMahalanobisLearner
from sklearn_simlearn.similarities import CosineSimilarity

tfidf = CosineSimilarity().fit(X[train])
learner = SparseMahalanobisLearner(n_neighbors=0, holdout="samples", random_state=0)
learner.fit(X[train], y[train])
print(f"tf-idf {tfidf.score(X[test], y[test]):.3f}")
print(f"learned weights {learner.score(X[test], y[test]):.3f}")

# %%
# Each dot is a word. Rare words are on the right, and words with a large learned weight
# are at the top. If the weights were those of idf, all dots would be on the line. The
# bars show the words in at least ten texts whose weights changed most. Names of groups
# and related words have larger weights than by idf. Function words have smaller
# weights, and so do words about the United States, which occur with painters, rivers
# and battles.

import matplotlib.pyplot as plt

frequency = np.asarray((X[train] > 0).sum(axis=0)).ravel()
idf = np.log(train.sum() / np.maximum(frequency, 1))
weight = np.sqrt(np.maximum(learner.M_.diagonal(), 0))
weight *= np.median(idf) / np.median(weight)
seen = frequency >= 10
move = np.where(seen, np.log(np.maximum(weight, 1e-3) / idf), 0)
risen, fallen = np.argsort(-move)[:12], np.argsort(move)[:12]

figure, axes = plt.subplots(
    1, 2, figsize=(9, 4.2), layout="constrained", width_ratios=[1.3, 1]
)
axes[0].plot(idf[seen], weight[seen], "o", ms=3, color="#9a9a9a")
axes[0].plot(idf[risen], weight[risen], "^", color="#0072B2", label="larger weight")
axes[0].plot(idf[fallen], weight[fallen], "v", color="#D55E00", label="smaller weight")
limits = [0, idf[seen].max()]
axes[0].plot(limits, limits, "k:", label="weight by idf")
axes[0].set(title="Weights of words", xlabel="idf", ylabel="learned weight")
axes[0].legend(frameon=False)
named = np.concatenate([risen, fallen[::-1]])
colors = np.where(move[named] > 0, "#0072B2", "#D55E00")
axes[1].barh(np.arange(len(named)), np.exp(move[named]), color=colors)
axes[1].set_yticks(np.arange(len(named)), words[named])
axes[1].invert_yaxis()
axes[1].axvline(1, color="black", ls=":")
_ = axes[1].set(title="Largest changes of weights", xlabel="learned weight / idf")

# %%
# Limits
# ------
# Learned weights help if texts share words whose weights are wrong. They cannot help if
# two texts of a group share no word. In this case, use entries off the diagonal, as in
# :ref:`sphx_glr_auto_examples_learners_plot_mahalanobis.py`, or a full matrix, as in
# :ref:`sphx_glr_auto_examples_first_steps_plot_text.py`.

little = np.isin(words, ["of", "the", "and", "in", "or", "with", "to", "for", "by"])
shown = (X[test][:, ~little] > 0).astype(np.float64)
same_group = (y[test][:, None] == y[test]) & ~np.eye(test.sum(), dtype=bool)
share_none = np.mean((shown @ shown.T).toarray()[same_group] == 0)
print(f"{share_none:.0%} of the pairs of a group share only function words, or none")
