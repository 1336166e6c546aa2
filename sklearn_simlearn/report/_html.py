"""Construction of HTML in which all other text is escaped."""

from html import escape


class Html(str):
    """String that is HTML already. `join` and `tag` escape all other strings."""

    __slots__ = ()


def join(*parts) -> Html:
    """Return the parts as one piece of HTML. Escape other text, skip None."""
    return Html(
        "".join(
            part if isinstance(part, Html) else escape(str(part))
            for part in parts
            if part is not None
        )
    )


def tag(name: str, *children, **attributes) -> Html:
    """Return an element.

    Attributes that are None are skipped. In the names of attributes, a trailing ``_``,
    as in ``class_``, is removed, and ``_`` is replaced by ``-``.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")
