"""Web service and search page for indexes."""

from sklearn_simlearn._core.optional import install_command

try:
    import msgspec  # noqa: F401
    import prometheus_client  # noqa: F401
    import starlette  # noqa: F401
except ImportError as error:
    raise ImportError(
        f"{error}. Serving an index requires the extra serve: "
        f"{install_command('serve')}."
    ) from None

from sklearn_simlearn.serve._app import Limits, create_app

__all__ = ["Limits", "create_app"]
