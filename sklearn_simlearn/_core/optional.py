"""Import of optional packages."""

import importlib
import importlib.util
from types import ModuleType


def install_command(extra: str) -> str:
    """Return the command that installs the packages of an extra."""
    return f'pip install ".[{extra}]" in a clone of the repository'


def import_optional(module: str, extra: str, purpose: str) -> ModuleType:
    """Import a package; raise an error that names the extra if it is missing."""
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(
            f"{purpose} requires the package {module}: {install_command(extra)}."
        ) from error


def has_faiss() -> bool:
    """Return whether FAISS is installed."""
    return importlib.util.find_spec("faiss") is not None
