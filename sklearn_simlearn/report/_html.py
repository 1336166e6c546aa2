"""HTML in which whatever is not HTML already is escaped."""

from html import escape


class Html(str):
    """Text that is HTML; any other text is escaped where it meets it."""

    __slots__ = ()


def join(*parts) -> Html:
    """One piece of HTML; what is no HTML is escaped, None is left out."""
    return Html(
        "".join(
            part if isinstance(part, Html) else escape(str(part))
            for part in parts
            if part is not None
        )
    )


def tag(name: str, *children, **attributes) -> Html:
    """An element.

    Attributes that are None are left out. Their names may end in ``_``, as in
    ``class_``, and have ``_`` instead of ``-``.
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")
