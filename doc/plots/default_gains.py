"""Gain over the better cosine by learner: the tables of `bench_defaults.py`."""

import csv

import matplotlib.pyplot as plt

LEARNERS = {
    "posterior": "ClassPosteriorSimilarity",
    "OASIS": "OASIS",
    "two covariances": "TwoCovarianceSimilarity",
    "angular": "AngularBilinearRanker",
    "Mahalanobis": "SparseMahalanobisLearner",
    "histogram": "HistogramRankSVM",
}


def read(table):
    """Return the figures of a table by set and row; the script runs in its folder."""
    with open(f"../figures/defaults/{table}.csv", newline="", encoding="utf-8") as file:
        return {
            row.pop("set"): {name: float(cell) for name, cell in row.items() if cell}
            for row in csv.DictReader(file)
        }


def list_gains(starts, learned, name):
    """Return the gains of a learner over the better cosine, one per set."""
    return [
        row[column] - max(starts[of].get(start, 0) for start in ("cosine", "tf-idf"))
        for of, row in learned.items()
        for column in (name, f"{name}, samples")
        if column in row
    ]


PANELS = {
    'known classes, holdout="samples"': ("known_default_map", "known_samples_map"),
    "new classes, default parameters": ("new_map", "new_map"),
}
fig, axes = plt.subplots(1, 2, figsize=(10, 3.4), sharey=True, layout="constrained")
for ax, (title, tables) in zip(axes, PANELS.items(), strict=True):
    for y, name in enumerate(LEARNERS):
        gains = list_gains(*map(read, tables), name)
        ax.scatter(gains, [y] * len(gains), alpha=0.5, s=25)
        if gains:
            ax.scatter(sum(gains) / len(gains), y, marker="|", color="black", s=250)
    ax.axvline(0, color="gray", linewidth=0.8)
    ax.set(title=title, xlabel="gain in mean average precision")
    ax.grid(alpha=0.3)
axes[0].set_yticks(range(len(LEARNERS)), LEARNERS.values())
axes[0].invert_yaxis()
