"""The comparison that the command line runs."""

__all__: list[str] = []
