"""Registry of the private classes that a stored estimator may hold."""

from typing import TypeVar

C = TypeVar("C", bound=type)

STORABLE: set[type] = set()


def storable(cls: C) -> C:
    """Decorate a class to let `load` create its instances from a stored estimator.

    The file sets all attributes of an instance. Decorate only classes that do nothing
    when their attributes are set, and that open no files and call no functions which
    the attributes name. Public estimators and named tuples need no decoration.
    """
    STORABLE.add(cls)
    return cls
