"""Private names of scikit-learn that the package uses.

scikit-learn may change them without notice. Only this module imports them, so that a
change concerns one file. A CI job with scikit-learn's nightly build shows it early.
"""

import html
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sklearn.base import _fit_context

# Rows of arrays, sparse arrays, lists and frames, as cross-validation takes them.
from sklearn.utils import _safe_indexing as safe_indexing

# Number of rows that fit into `working_memory`; warns if it is less than one.
from sklearn.utils._chunking import get_chunk_n_rows

# Error message of scikit-learn's displays if matplotlib is missing.
from sklearn.utils._optional_dependencies import check_matplotlib_support

# Elements of `_parameter_constraints`, by which scikit-learn checks parameters.
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils._param_validation import validate_params as _validate_params

# Prints estimators; dispatches by the `__repr__` of a class.
from sklearn.utils._pprint import _EstimatorPrettyPrinter as EstimatorPrettyPrinter

# Output type of `transform`, by `set_output` or by the global configuration.
from sklearn.utils._set_output import _get_output_config as get_output_config

# Sparse output as array or matrix, by the configuration `sparse_interface`.
from sklearn.utils._sparse import _align_api_if_sparse as as_configured

# Parameters of the estimators in a list of (name, estimator), as in Pipeline.
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition

# The controller of the process. A new one would inspect all loaded libraries, which
# takes longer than a short `fit`.
from sklearn.utils.parallel import (
    _get_threadpool_controller as get_threadpool_controller,
)

# Sample weights as scikit-learn's estimators accept them: None, a number, or one per
# sample.
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

# Number of samples in any container that scikit-learn accepts, frames included.
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "KEPT_ATTRIBUTES",
    "BaseComposition",
    "DocLinkMixin",
    "HasMethods",
    "Interval",
    "ItemsHtmlMixin",
    "NoteMixin",
    "Options",
    "StrOptions",
    "as_configured",
    "check_matplotlib_support",
    "check_sample_weight",
    "fit_context",
    "get_chunk_n_rows",
    "get_output_config",
    "get_threadpool_controller",
    "num_samples",
    "public_module",
    "safe_indexing",
    "validate_parameter_constraints",
    "validate_params",
]

# Attributes that scikit-learn sets on estimators and that `fit` must not change: those
# of callbacks, `set_output` and metadata requests.
KEPT_ATTRIBUTES = {
    "_callback_fit_ctx",
    "_metadata_request",
    "_parent_callback_ctx",
    "_skl_callbacks",
    "_skl_callbacks_to_teardown",
    "_sklearn_output_config",
}


def public_module(cls: type) -> str:
    """Return the name of the outermost package that exports a class."""
    parts = cls.__module__.split(".")
    for i in range(len(parts)):
        name = ".".join(parts[: i + 1])
        if getattr(sys.modules.get(name), cls.__name__, None) is cls:
            return name
    return cls.__module__


class DocLinkMixin:
    """Mixin that links the "?" of scikit-learn's HTML view to the API reference.

    The address of the reference is the environment variable SIMLEARN_DOC_URL, or the
    folder of the pages that were built in a clone of the repository. Without either,
    the view has no "?". Place the mixin before `BaseEstimator`.
    """

    _doc_link_module = "sklearn_simlearn"

    @property
    def _doc_link_template(self):
        pages = Path(__file__).parents[2] / "doc" / "_build"
        url = os.environ.get("SIMLEARN_DOC_URL")
        if not url and (pages / "index.html").is_file():
            url = pages.as_uri()
        if not url:
            return ""
        # Braces in the address are not placeholders.
        url = url.rstrip("/").replace("{", "{{").replace("}", "}}")
        return url + "/generated/{public_module}.{estimator_name}.html"

    def _doc_link_url_param_generator(self):
        cls = type(self)
        return {"public_module": public_module(cls), "estimator_name": cls.__name__}


class ItemsHtmlMixin:
    """Mixin for estimators whose outputs are items of a database, not features.

    scikit-learn's HTML view lists the outputs as "features". The mixin replaces this
    word. Place the mixin before `BaseEstimator`.
    """

    def _html_repr(self):
        head, start, outputs = super()._html_repr().rpartition("total_features")
        if not start:
            return outputs
        return head + start + _FEATURE.sub("item", outputs)


_FEATURE = re.compile(r"(?<=\d )feature(?=s?</div>)|(?<=Copy output )feature(?=s)")


class NoteMixin:
    """Mixin for estimators with a note on their state.

    `_note` returns the note. `repr` ends with the note as a comment, so that the text
    is valid Python. The HTML view shows it above the fitted attributes. The `repr`
    inside that of another estimator has no note. Place the mixin before
    `BaseEstimator`.
    """

    def _note(self) -> str:
        raise NotImplementedError

    def __repr__(self, N_CHAR_MAX=700):
        text, note = super().__repr__(N_CHAR_MAX), self._note()
        return f"{text}  # {note}" if note else text

    def _get_fitted_attr_html(self, doc_link=""):
        attributes = super()._get_fitted_attr_html(doc_link)
        table, note = attributes._html_repr, self._note()
        if note:
            attributes._html_repr = lambda: f"<p>{html.escape(note)}</p>{table()}"
        return attributes


# The printer finds how to break the lines of an estimator by its `__repr__`.
EstimatorPrettyPrinter._dispatch[NoteMixin.__repr__] = (
    EstimatorPrettyPrinter._pprint_estimator
)


# The two decorators have no types in scikit-learn and would hide the types of the
# decorated functions.
Function = TypeVar("Function", bound=Callable[..., Any])


def fit_context(
    *, prefer_skip_nested_validation: bool
) -> Callable[[Function], Function]:
    """Decorate a `fit`: check the parameters first, and tear callbacks down last."""
    return _fit_context(prefer_skip_nested_validation=prefer_skip_nested_validation)


def validate_params(
    constraints: dict[str, Any], *, prefer_skip_nested_validation: bool
) -> Callable[[Function], Function]:
    """Decorate a function: check its parameters first."""
    return _validate_params(
        constraints, prefer_skip_nested_validation=prefer_skip_nested_validation
    )
