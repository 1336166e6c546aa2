"""Packages that only some of the transformers need."""

import importlib
import importlib.util
from types import ModuleType


def import_optional(module: str, extra: str, whom: str) -> ModuleType:
    """Import a package, or say which extra brings it."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{whom} needs the package {module}: "
            f'pip install "sklearn-simlearn[{extra}]" brings it.'
        ) from error


def has_faiss() -> bool:
    """Whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None
