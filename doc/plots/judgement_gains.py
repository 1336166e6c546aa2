"""Gain by number of training queries: the tables of `bench_judgements.py splits`."""

import csv

import matplotlib.pyplot as plt

COLLECTIONS = {
    "nfcorpus": "NFCorpus",
    "cranfield": "Cranfield",
    "categories": "collection of the package",
}


def read_gains(collection):
    """Return numbers of queries, gains and their errors, by learner."""
    # Sphinx runs this script in its folder.
    path = f"../figures/judgements/splits_{collection}.csv"
    gains = {}
    with open(path, newline="", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            mean, error = row["nDCG@10"].split(" ± ")
            point = int(row["queries"]), float(mean), float(error)
            gains.setdefault(row["learner"].replace("`", ""), []).append(point)
    return {learner: zip(*points, strict=True) for learner, points in gains.items()}


fig, axes = plt.subplots(1, 3, figsize=(10, 4), sharey=True, layout="constrained")
for ax, (collection, title) in zip(axes, COLLECTIONS.items(), strict=True):
    for i, (learner, (sizes, means, errors)) in enumerate(
        read_gains(collection).items()
    ):
        # Slightly apart, so that the error bars do not hide each other.
        x = [size * 1.03 ** (i - 2.5) for size in sizes]
        ax.errorbar(x, means, errors, label=learner, marker=".", capsize=2)
    ax.axhline(0, color="gray", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xticks([20, 50, 100, 200], ["20", "50", "100", "200"])
    ax.minorticks_off()
    ax.set(title=title, xlabel="number of training queries")
    ax.grid(alpha=0.3)
axes[0].set_ylabel("gain in nDCG@10 over the start")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3)
