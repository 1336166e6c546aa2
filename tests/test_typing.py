"""Every public function has types for all of its parameters and for its result."""

import importlib
import inspect

import pytest

PACKAGE = "sklearn_simlearn"
MODULES = [
    "base",
    "compose",
    "contract",
    "datasets",
    "display",
    "feature_extraction",
    "index",
    "metrics",
    "model_selection",
    "report",
    "reranking",
    "serve",
    "similarities",
]
SPECIAL = {"__init__", "__call__", "__getitem__", "__iter__", "__len__"}


def is_ours(thing):
    return (getattr(thing, "__module__", None) or "").split(".")[0] == PACKAGE


def list_functions(thing):
    """Return a function, or the functions of a class that users call."""
    if not inspect.isclass(thing):
        return [inspect.unwrap(thing)] if inspect.isroutine(thing) else []
    functions = []
    for base in filter(is_ours, thing.__mro__):
        for name, member in vars(base).items():
            if name.startswith("_") and name not in SPECIAL:
                continue
            member = getattr(member, "fget", getattr(member, "__func__", member))
            if inspect.isroutine(member):
                functions.append(inspect.unwrap(member))
    return functions


def list_untyped(function):
    """Return the names of parameters without a type, and "return"."""
    signature = inspect.signature(function)
    names = [
        name
        for name, parameter in signature.parameters.items()
        if parameter.annotation is parameter.empty and name not in ("self", "cls")
    ]
    has_result = function.__name__ == "__init__" or (
        signature.return_annotation is not signature.empty
    )
    return names if has_result else [*names, "return"]


def test_untyped_parameters_are_found():
    class Sample:
        def __init__(self, a: int, b=1):
            pass

        @property
        def size(self):
            pass

        @classmethod
        def make(cls, *, options: dict, **rest) -> None:
            pass

        def _hidden(self, x):
            pass

    Sample.__module__ = PACKAGE
    missing = [list_untyped(function) for function in list_functions(Sample)]
    assert missing == [["b"], ["return"], ["rest"]]


@pytest.mark.parametrize("module", ["", *MODULES])
def test_public_names_have_types(module):
    module = importlib.import_module(f"{PACKAGE}.{module}".rstrip("."))
    things = [getattr(module, name) for name in module.__all__]
    functions = {f for thing in filter(is_ours, things) for f in list_functions(thing)}
    assert functions
    missing = {f.__qualname__: list_untyped(f) for f in functions if is_ours(f)}
    assert {name: found for name, found in missing.items() if found} == {}
