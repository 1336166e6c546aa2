"""
=======================================
Which similarity is best for your data?
=======================================

One command fits all similarities of this package and several baselines on half of the
data, and evaluates them with queries of the other half. A report then shows the gain of
the best one, query by query.
"""

# %%
# Write a file
# ------------
# The command reads a ``.npz`` file with the samples, dense or sparse, and ``y``
# (:func:`~sklearn_simlearn.datasets.load_npz`). This example writes photographs of
# places as counts of visual words.

import tempfile
from pathlib import Path

import numpy as np

from sklearn_simlearn.datasets import load_places

places = load_places()
X, y = places.data, places.target
folder = Path(tempfile.mkdtemp())
file = folder / "places.npz"
np.savez(file, data=X.data, indices=X.indices, indptr=X.indptr, shape=X.shape, y=y)

# %%
# Run the comparison
# ------------------
# Future queries show spots that are not labelled, so whole spots are held out:
# ``--split objects``. In a terminal, the command is ``python -m sklearn_simlearn --data
# places.npz --split objects``.

import subprocess
import sys

run = subprocess.run(
    [sys.executable, "-m", "sklearn_simlearn", "--data", file.name]
    + ["--split", "objects"],
    cwd=folder,
    capture_output=True,
    text=True,
    check=True,
)
print(run.stdout)

# %%
# Relevant component analysis (RCA), which whitens tf-idf vectors within classes, is the
# best baseline. No similarity of this package is better, so the comparison recommends
# the baseline. There are only 35 held-out spots, so a difference must be large to be
# significant.
#
# Gains of single queries
# -----------------------
# The same split in Python, for three of the similarities:

from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn.model_selection import ObjectShuffleSplit
from sklearn_simlearn.similarities import CosineSimilarity

split = ObjectShuffleSplit(n_splits=1, test_size=0.5, random_state=0)
train, test = next(split.split(X, y))
models = {
    "cosine": CosineSimilarity(use_idf=False),
    "LDA": make_pipeline(
        TfidfTransformer(sublinear_tf=True),
        FunctionTransformer(lambda X: X.toarray(), accept_sparse=True),
        LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.5),
    ),
    "histogram": HistogramRankSVM(random_state=0),
}
for model in models.values():
    model.fit(X[train], y[train])

# %%
# The report is an HTML page, for a browser or a notebook, with a table, curves, and the
# queries that gain and lose most.

from sklearn_simlearn.report import RetrievalReport

report = RetrievalReport(
    models,
    X[test],
    y[test],
    images=places.images[test],
    baselines=["cosine", "LDA"],
    n_shown=3,
    title="Places",
)
report.save(folder / "report.html")
report

# %%
# The plot shows the gain of each query, in descending order.

import matplotlib.pyplot as plt

gain = np.sort(report.gains_["histogram"])[::-1]
figure, ax = plt.subplots(figsize=(7, 3), layout="constrained")
ax.bar(
    np.arange(len(gain)),
    gain,
    width=1,
    color=np.where(gain >= 0, "#0072B2", "#D55E00"),
)
ax.axhline(0, color="black", lw=0.8)
ax.set(
    title=f"Histogram weights against {report.baseline_}",
    xlabel="queries, from the one that gains most",
    ylabel="gain in average precision",
)
print(f"{np.mean(gain > 0):.0%} of the queries gain, {np.mean(gain < 0):.0%} lose")
