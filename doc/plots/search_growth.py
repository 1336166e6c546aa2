"""Plot the times of searches (`bench_search.py`)."""

import csv

import matplotlib.pyplot as plt

COLORS = {"SciPy": "tab:gray", "FAISS": "tab:gray", "BMP": "tab:orange"}

# Part of the benchmark, kind of data, title, label of the axis.
PANELS = [
    ("items", "topics", "Texts: topics", "items"),
    ("items", "independent words", "Texts: independent words", "items"),
    ("vectors", "vectors", "Vectors of 128 numbers", "items"),
    ("words", "topics", "60,000 texts: topics", "words per query"),
    ("words", "independent words", "60,000 texts: independent", "words per query"),
    ("dimensions", "vectors", "30,000 vectors", "dimensions"),
]

# Sphinx runs it in this folder.
with open("search_growth.csv", newline="") as file:
    figures = list(csv.DictReader(file))

fig, axes = plt.subplots(2, 3, figsize=(10, 6.4), layout="constrained")
for ax, (by, kind, title, label) in zip(axes.flat, PANELS, strict=True):
    rows = [row for row in figures if (row["by"], row["kind"]) == (by, kind)]
    curves = dict.fromkeys((row["search"], row["k"]) for row in rows)
    for search, k in curves:
        points = [row for row in rows if (row["search"], row["k"]) == (search, k)]
        is_second = k == "100" or "queries" in search
        ax.loglog(
            [int(row["x"]) for row in points],
            [float(row["ms"]) for row in points],
            "--" if is_second else "-",
            color=COLORS.get(search.split(",")[0], "tab:blue"),
            marker=".",
            label=f"{search}, k = {k}",
        )
    ax.set(title=title, xlabel=label)
    ax.grid(alpha=0.3)
    ax.legend(fontsize="x-small")
for ax in axes[:, 0]:
    ax.set_ylabel("ms per query, one thread")
