"""Growth of the time of a fit: the figures of `bench_fits.py --growth`."""

import csv

import matplotlib.pyplot as plt

# Sphinx runs it in this folder.
with open("fit_growth.csv", newline="") as file:
    figures = list(csv.DictReader(file))

colors = {
    "OASIS": "tab:blue",
    "angular": "tab:orange",
    "two covariances": "tab:green",
    "posterior": "tab:red",
}
fig, axes = plt.subplots(1, 2, figsize=(10, 3.6), sharey=True, layout="constrained")
for ax, along in zip(axes, ("samples", "classes"), strict=True):
    for learner, color in colors.items():
        for name, style in ((learner, "-"), (f"{learner}, samples", "--")):
            rows = [
                row for row in figures if (row["along"], row["row"]) == (along, name)
            ]
            if rows:
                ax.loglog(
                    [int(row["size"]) for row in rows],
                    [float(row["seconds"]) for row in rows],
                    style,
                    color=color,
                    marker=".",
                    label=name,
                )
    ax.set(xlabel=f"number of {along}")
    ax.grid(alpha=0.3)
axes[0].set_ylabel("CPU seconds of a fit, one thread")
fig.legend(*axes[0].get_legend_handles_labels(), loc="outside right center")
