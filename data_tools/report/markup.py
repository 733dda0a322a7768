"""HTML by construction: what is not markup already is escaped, wherever it comes from."""

import html
from collections.abc import Mapping

CONTROLS = {i: 0x2400 + i for i in range(32) if chr(i) not in "\t\n"} | {127: 0x2421}
"""A control character is shown as its picture: a page must not hold most of them."""


class Markup(str):
    """Text that is HTML. Only this module and `plots` make it from strings."""

    __slots__ = ()


def escape(value: object) -> Markup:
    """Any value as text of a page; markup as it is."""
    if isinstance(value, Markup):
        return value
    text = str(value).encode(errors="replace").decode()
    return Markup(html.escape(text.translate(CONTROLS)))


def element(name: str, *children: object, attributes: Mapping[str, object] | None = None) -> Markup:
    """An element with its children; all but markup is escaped."""
    written = "".join(f' {key}="{escape(value)}"' for key, value in (attributes or {}).items())
    return Markup(f"<{name}{written}>{join(*children)}</{name}>")


def join(*children: object) -> Markup:
    """Markup of several parts, in order."""
    return Markup("".join(escape(child) for child in children))


def classed(name: str, kind: str, *children: object) -> Markup:
    """An element of a class of the style sheet."""
    return element(name, *children, attributes={"class": kind})
