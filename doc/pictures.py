"""Draw pictures of the documentation when it is built.

    python doc/pictures.py FOLDER

The landing page has queries with their results before and after learning. The quick
start has the picture that its own lines draw: they are run, one after another.
"""

import doctest
import sys
import tempfile
from contextlib import chdir
from pathlib import Path

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np

from sklearn_simlearn import HistogramRankSVM
from sklearn_simlearn.datasets import load_places
from sklearn_simlearn.display import NeighborsDisplay
from sklearn_simlearn.index import SimilarityIndex
from sklearn_simlearn.metrics import retrieval_report
from sklearn_simlearn.similarities import CosineSimilarity

N_QUERIES, N_RESULTS = 4, 4


def draw_before_and_after(folder):
    """Draw queries with their first results, by the cosine and by a learner.

    The queries are sorted by their gain in average precision. Four of them are taken at
    equal distances.
    """
    places = load_places()
    known = places.target < 35  # as on the landing page
    X, y, images = places.data[~known], places.target[~known], places.images[~known]
    models = {
        "before": CosineSimilarity().fit(places.data[known]),
        "after": HistogramRankSVM(random_state=0).fit(
            places.data[known], places.target[known]
        ),
    }
    before, after = (
        retrieval_report(model, X, y).average_precision for model in models.values()
    )
    spaced = (2 * np.arange(N_QUERIES) + 1) * len(y) // (2 * N_QUERIES)
    queries = np.argsort(before - after, kind="stable")[spaced]
    for name, model in models.items():
        index = SimilarityIndex(model).fit(X)
        _, neighbors = index.search(X[queries], k=N_RESULTS, exclude=queries)
        display = NeighborsDisplay.from_predictions(
            neighbors, y, y[queries], images=images, query_images=images[queries]
        )
        display.figure_.savefig(folder / f"{name}.svg", bbox_inches="tight")
        plt.close(display.figure_)


def draw_figures_of(page, folder):
    """Run the lines of a page, and save the figures that they leave open."""
    examples = doctest.DocTestParser().get_examples(page.read_text(encoding="utf-8"))
    names = {"__name__": "__main__"}
    plt.close("all")
    folder = folder.resolve()
    with tempfile.TemporaryDirectory() as scratch, chdir(scratch):
        for example in examples:
            place = f"{page.name}, line {example.lineno + 1}"
            exec(compile(example.source, place, "exec"), names)
        for number in plt.get_fignums():
            plt.figure(number).savefig(folder / f"{page.stem}_{number}.svg")
    plt.close("all")


def draw_all(folder):
    """Draw every picture into a folder."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context({"backend": "Agg", "svg.hashsalt": "doc"}):
        draw_before_and_after(folder)
        draw_figures_of(Path(__file__).parent / "quick_start.rst", folder)


if __name__ == "__main__":
    draw_all(*sys.argv[1:])
