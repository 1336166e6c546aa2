"""HTML that escapes all other text."""

from html import escape


class Html(str):
    """Text that is HTML. `join` and `tag` escape any other text."""

    __slots__ = ()


def join(*parts) -> Html:
    """Return one piece of HTML; other text is escaped, None is skipped."""
    return Html(
        "".join(
            part if isinstance(part, Html) else escape(str(part))
            for part in parts
            if part is not None
        )
    )


def tag(name: str, *children, **attributes) -> Html:
    """Return an element.

    Attributes that are None are skipped. Their names may end in ``_``, as in
    ``class_``, and have ``_`` instead of ``-``.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")
