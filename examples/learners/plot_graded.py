"""
=======================================
How do you learn from graded relevance?
=======================================

If the query is the definition of a lake, another lake is relevant, a river is less
relevant, and a bread is not relevant. A relevance matrix represents this. Its columns
are groups and themes. A text may have several of them, and weights define how much each
column counts (:ref:`targets`). This example compares learning from graded relevance
with learning from one kind of label.
"""

# %%
# Relevance with grades
# ---------------------
# Each definition belongs to one of 36 groups, such as lake, and to one of nine themes,
# such as geography. The relevance of two texts is the sum, over the columns they share,
# of the product of their weights: 5 for the same group (4 for the group and 1 for the
# theme), 1 for the same theme, 0 otherwise.

import numpy as np
from sklearn.feature_extraction.text import CountVectorizer

from sklearn_simlearn.datasets import load_definitions

definitions = load_definitions()
group, theme = definitions.target, definitions.theme
grades = np.hstack([2.0 * np.eye(36)[group], np.eye(9)[theme]])

X = CountVectorizer(min_df=3, dtype=np.float64).fit_transform(definitions.data)
test = np.arange(len(group)) % 3 == 0
train = ~test

# %%
# Three targets
# -------------
# The same learner is fitted to groups only, to themes only, and to the grades. The
# normalized discounted cumulative gain (nDCG) measures the whole order: it is 1 if all
# lakes come first and the rest of geography next.

from sklearn_simlearn import OASIS
from sklearn_simlearn.metrics import RetrievalScorer, map_scorer
from sklearn_simlearn.similarities import CosineSimilarity

targets = {"groups": group, "themes": theme, "grades": grades}
models = {"tf-idf": CosineSimilarity().fit(X[train])}
for name, y in targets.items():
    learner = OASIS(holdout="samples", random_state=0)
    models[f"from {name}"] = learner.fit(X[train], y[train])

score_ndcg = RetrievalScorer("ndcg")
scores = {
    name: {
        "same group\n(mAP)": map_scorer(model, X[test], group[test]),
        "same theme\n(mAP)": map_scorer(model, X[test], theme[test]),
        "order by grades\n(nDCG)": score_ndcg(model, X[test], grades[test]),
    }
    for name, model in models.items()
}

# %%
# The learner of groups does not rank the rest of the theme first, and the learner of
# themes mixes the groups. The learner of grades keeps most of both gains and has the
# best order.

import matplotlib.pyplot as plt

figure, ax = plt.subplots(figsize=(8, 3.8), layout="constrained")
place = np.arange(3)
looks = [("#9a9a9a", ""), ("#0072B2", "//"), ("#E69F00", ".."), ("#009E73", "")]
for i, (name, of_model) in enumerate(scores.items()):
    bars = ax.bar(
        place + 0.2 * (i - 1.5),
        of_model.values(),
        0.19,
        color=looks[i][0],
        hatch=looks[i][1],
        edgecolor="white",
        label=name,
    )
    ax.bar_label(bars, fmt="%.2f", fontsize=8)
ax.set_xticks(place, scores["tf-idf"])
ax.set(title="Scores by training target", ylim=(0, 1.05), ylabel="score on test texts")
_ = ax.legend(loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)

# %%
# One query
# ---------
# The plot shows the relevance of the first hundred results for the definition of a
# lake.

query = np.flatnonzero(test & (definitions.target_names[group] == "lake"))[3]
print(definitions.words[query], "-", definitions.data[query])

others = np.flatnonzero(test & (np.arange(len(group)) != query))
colors = np.array(["#e6e6e6", "#E69F00", "#0072B2"])
figure, axes = plt.subplots(4, 1, figsize=(8, 3.4), layout="constrained", sharex=True)
for ax, (name, model) in zip(axes, models.items(), strict=True):
    order = others[np.argsort(-model.similarity(X[[query]], X[others])[0])][:100]
    level = np.add(
        group[order] == group[query], theme[order] == theme[query], dtype=int
    )
    ax.bar(np.arange(1, 101), (level + 1) / 3, width=0.9, color=colors[level])
    ax.set(yticks=[], xlim=(0, 101))
    ax.set_ylabel(name, rotation=0, ha="right", va="center")
    ax.spines[["top", "right", "left"]].set_visible(False)
axes[0].set_title("High: another lake. Middle: geography. Low: something else.")
_ = axes[-1].set_xlabel("rank")
