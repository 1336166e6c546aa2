"""All that the package uses of scikit-learn's private names, under names of ours.

scikit-learn may change them without notice. No other module imports them, so that a
change is mended here; a CI job against scikit-learn's nightly build shows it early.
"""

import os
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from sklearn.base import _fit_context

# Rows of arrays, sparse arrays, lists and frames alike, as cross-validation takes them.
from sklearn.utils import _safe_indexing as safe_indexing

# How many rows fit into `working_memory`; it warns if not even one does.
from sklearn.utils._chunking import get_chunk_n_rows

# The message of scikit-learn's displays where matplotlib is missing.
from sklearn.utils._optional_dependencies import check_matplotlib_support

# What `_parameter_constraints` are made of: scikit-learn's own checks of an estimator's
# parameters understand nothing else.
from sklearn.utils._param_validation import (
    HasMethods,
    Interval,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils._param_validation import validate_params as _validate_params

# Whether `transform` is to return a frame, by `set_output` or by the global setting.
from sklearn.utils._set_output import _get_output_config as get_output_config

# Parameters of estimators in lists of (name, estimator), as Pipeline has them.
from sklearn.utils.metaestimators import _BaseComposition as BaseComposition

# The one controller of the process. A new one would have to look through all loaded
# libraries, which takes longer than a short `fit`.
from sklearn.utils.parallel import (
    _get_threadpool_controller as get_threadpool_controller,
)

# Sample weights as scikit-learn's estimators accept them: None, a number, or one per
# sample.
from sklearn.utils.validation import _check_sample_weight as check_sample_weight

# The number of samples in whatever scikit-learn accepts as samples, frames included.
from sklearn.utils.validation import _num_samples as num_samples

__all__ = [
    "KEPT_ATTRIBUTES",
    "BaseComposition",
    "DocLinkMixin",
    "HasMethods",
    "Interval",
    "ItemsHtmlMixin",
    "Options",
    "StrOptions",
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

# Attributes that scikit-learn sets on estimators and that no `fit` may touch: those of
# callbacks, `set_output` and metadata requests.
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

    The address of the reference is that in the environment variable SIMLEARN_DOC_URL,
    or that of the pages built in a clone of the repository. Without either there is no
    "?", rather than one that leads nowhere. Place it before `BaseEstimator`.
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
        # The address is no template, whatever braces it may have.
        url = url.rstrip("/").replace("{", "{{").replace("}", "}}")
        return url + "/generated/{public_module}.{estimator_name}.html"

    def _doc_link_url_param_generator(self):
        cls = type(self)
        return {"public_module": public_module(cls), "estimator_name": cls.__name__}


class ItemsHtmlMixin:
    """Mixin for estimators whose outputs are items of a database, not features.

    scikit-learn's HTML view ends with the names of the outputs, under the number of
    "features". Place the mixin before `BaseEstimator`.
    """

    def _html_repr(self):
        head, start, outputs = super()._html_repr().rpartition("total_features")
        if not start:
            return outputs
        return head + start + _FEATURE.sub("item", outputs)


_FEATURE = re.compile(r"(?<=\d )feature(?=s?</div>)|(?<=Copy output )feature(?=s)")


# The two decorators have no types in scikit-learn and would erase those of what they
# decorate.
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
