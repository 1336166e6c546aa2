"""Sphinx configuration."""

import warnings

from sphinx_gallery.sorting import ExplicitOrder

import sklearn_simlearn

project = "sklearn_simlearn"
author = "The sklearn_simlearn developers"
copyright = "2026, the sklearn_simlearn developers"
version = release = sklearn_simlearn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "matplotlib.sphinxext.plot_directive",
    "numpydoc",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates"]
templates_path = ["_templates"]
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2}

plot_formats = ["svg"]
plot_html_show_formats = False
plot_html_show_source_link = False

autosummary_generate = True
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# References to other projects are shown as text: building needs no network.
suppress_warnings = ["config.cache"]

sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    # From the first search to serving; the learners' own scripts are in between.
    "within_subsection_order": ExplicitOrder(
        [
            "plot_first_search.py",
            "plot_text.py",
            "plot_grid_search.py",
            "plot_new_objects.py",
            "plot_posterior.py",
            "plot_compare.py",
            "plot_graded.py",
            "plot_three_photos.py",
            "plot_which_words.py",
            "*",
            "plot_search.py",
            "plot_surrogate.py",
            "plot_faiss.py",
            "plot_dask.py",
        ]
    ),
    "abort_on_example_error": True,
    "show_memory": False,
    "show_signature": False,
}
warnings.filterwarnings(
    "ignore", message="FigureCanvasAgg is non-interactive", category=UserWarning
)


def skip_what_scikit_learn_documents(app, what, name, obj, skip, options):
    """Leave out inherited methods such as `get_params`: their texts refer to pages of
    scikit-learn's own guide."""
    module = getattr(obj, "__module__", None) or ""
    return True if module.startswith("sklearn.") else None


def setup(app):
    app.connect("autodoc-skip-member", skip_what_scikit_learn_documents)
