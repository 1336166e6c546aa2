"""How the time of a search grows: the figures of `bench_search.py growth`."""

import csv

import matplotlib.pyplot as plt

# Sphinx runs it in this folder.
with open("search_growth.csv", newline="") as file:
    figures = list(csv.DictReader(file))

fig, axes = plt.subplots(1, 2, figsize=(9, 3.6), sharey=True, layout="constrained")
for ax, kind in zip(axes, ("topics", "independent words"), strict=True):
    for search, color in (("SciPy", "tab:gray"), ("inverted", "tab:blue")):
        for k, style in (("10", "-"), ("100", "--")):
            rows = [
                row
                for row in figures
                if (row["kind"], row["search"], row["k"]) == (kind, search, k)
            ]
            ax.loglog(
                [int(row["items"]) for row in rows],
                [float(row["ms"]) for row in rows],
                style,
                color=color,
                marker=".",
                label=f"{search}, k = {k}",
            )
    ax.set(title=f"Texts: {kind}", xlabel="items")
    ax.grid(alpha=0.3)
axes[0].set_ylabel("ms per query, one thread")
axes[0].legend()
