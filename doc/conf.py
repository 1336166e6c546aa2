"""Sphinx configuration. Neither building nor reading the pages needs a network."""

import os
import shutil
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

from docutils import nodes
from sphinx_gallery.sorting import ExplicitOrder

import sklearn_simlearn

os.environ.setdefault("MPLBACKEND", "Agg")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

project = "sklearn_simlearn"
author = "The sklearn_simlearn developers"
copyright = "2026, the sklearn_simlearn developers"
version = release = sklearn_simlearn.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "sphinx.ext.viewcode",
    "matplotlib.sphinxext.plot_directive",
    "myst_nb",
    "numpydoc",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["_build", "_templates", "auto_examples/**.ipynb"]
nb_execution_mode = "off"  # the tests execute the notebooks
templates_path = ["_templates"]

html_theme = "pydata_sphinx_theme"
html_title = project
html_static_path = ["_static"]
html_css_files = ["custom.css"]
html_copy_source = False
html_show_sourcelink = False
html_theme_options = {
    "show_toc_level": 2,
    "header_links_before_dropdown": 6,
    "show_prev_next": True,
    "footer_start": ["copyright"],
    "footer_end": [],
}
html_context = {"default_mode": "auto"}
html_sidebars = {
    page: []
    for page in (
        "index",
        "quick_start",
        "choose",
        "installation",
        "contributing",
        "whats_new/*",
        "reproductions/*",
    )
}

# A package contains MathJax's files, which are copied next to the pages.
mathjax_path = "mathjax/tex-chtml.js"

# Copied without prompts and outputs.
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True

plot_formats = ["svg"]
plot_html_show_formats = False
plot_html_show_source_link = False

# In the contents of a page: methods without the name of the class.
toc_object_entries_show_parents = "hide"
autosummary_generate = True
# The docstrings name the types.
autodoc_typehints = "none"
autodoc_default_options = {"members": True, "inherited-members": True}
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# References to other projects are shown as text: building needs no network.
suppress_warnings = ["config.cache"]

# Sections of the gallery and their examples, in the order of a newcomer.
GALLERY = {
    "first_steps": ["plot_first_search", "plot_text", "plot_search"],
    "text": [
        "plot_hybrid_search",
        "plot_clicks",
        "plot_near_duplicates",
        "plot_which_words",
    ],
    "learners": [
        "plot_oasis",
        "plot_angular",
        "plot_histogram",
        "plot_mahalanobis",
        "plot_posterior",
        "plot_two_covariance",
        "plot_query_map",
        "plot_memory",
        "plot_graded",
    ],
    "photographs": ["plot_images", "plot_three_photos", "plot_reranking"],
    "evaluation": ["plot_compare", "plot_grid_search", "plot_new_objects"],
    "scale": [
        "plot_surrogate",
        "plot_faiss",
        "plot_dask",
        "search_in_postgresql",
        "plot_neighbors_graph",
    ],
}
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "auto_examples",
    "filename_pattern": r"plot_",
    "subsection_order": ExplicitOrder([f"../examples/{name}" for name in GALLERY]),
    "within_subsection_order": ExplicitOrder(
        [f"{name}.py" for names in GALLERY.values() for name in names]
    ),
    "abort_on_example_error": True,
    "backreferences_dir": "generated/backreferences",
    "doc_module": ("sklearn_simlearn",),
    # The last line of a plot returns an object that readers need not see.
    "ignore_repr_types": r"matplotlib\.|sklearn_simlearn\.display",
    "show_memory": False,
    "show_signature": False,
    # Pages of times would load scripts from outside.
    "write_computation_times": False,
}
warnings.filterwarnings(
    "ignore", message="FigureCanvasAgg is non-interactive", category=UserWarning
)


def skip_what_scikit_learn_documents(app, what, name, obj, skip, options):
    """Skip inherited methods such as `get_params`, whose texts refer to pages of
    scikit-learn's guide."""
    module = getattr(obj, "__module__", None) or ""
    return True if module.startswith("sklearn.") else None


def unlink_measures(app, doctree):
    """Show names such as nDCG@10 as text; docutils takes them for addresses of mail."""
    for link in list(doctree.findall(nodes.reference)):
        if link.get("refuri", "").startswith("mailto:"):
            link.replace_self(link.children)


def draw_pictures(app):
    """Draw the pictures of the landing page and of the quick start."""
    from pictures import draw_all

    draw_all(Path(app.srcdir) / "_pictures")


def copy_notebooks(app):
    """Copy the notebooks next to the pages."""
    source = Path(app.srcdir).parent / "examples" / "notebooks"
    shutil.copytree(source, Path(app.srcdir) / "notebooks", dirs_exist_ok=True)


def write_reproductions(app):
    """Write the pages of the papers from the records of the experiments."""
    from benchmarks.papers._frame import load_papers
    from benchmarks.papers._page import write_pages

    write_pages(Path(app.srcdir) / "reproductions", load_papers())


def copy_mathjax(app, exception):
    """Copy the part of MathJax that the pages load, with its fonts."""
    if exception is not None or app.builder.format != "html":
        return
    package = Path(find_spec("sphinx-mathjax-offline").origin).parent
    source, target = package / "static" / "mathjax", app.outdir / "_static" / "mathjax"
    fonts = Path("output", "chtml", "fonts", "woff-v2")
    shutil.copytree(source / fonts, target / fonts, dirs_exist_ok=True)
    shutil.copy(source / "tex-chtml.js", target)


def setup(app):
    app.connect("autodoc-skip-member", skip_what_scikit_learn_documents)
    app.connect("doctree-read", unlink_measures)
    app.connect("builder-inited", draw_pictures)
    app.connect("builder-inited", copy_notebooks)
    app.connect("builder-inited", write_reproductions)
    app.connect("build-finished", copy_mathjax)
