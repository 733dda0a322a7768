"""Tables and figures in words: how the page writes numbers."""

from collections.abc import Mapping, Sequence

from data_tools.report.markup import Markup, classed, element, escape


class Figure(str):
    """A number with its unit; it stands at the right of its cell."""

    __slots__ = ()


def count(value: int) -> Figure:
    """1,234,567."""
    return Figure(f"{value:,}")


def share(part: float, whole: float) -> Figure:
    """Part of a whole in percent; nothing of nothing is none of it."""
    percent = f"{part / whole:.1%}" if whole else "0.0%"
    return Figure("<0.1%" if part > 0 and percent == "0.0%" else percent)


def size(bytes: float) -> Figure:
    """Bytes in decimal units, 12.3 MB."""
    value = float(bytes)
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if abs(value) < 1000 or unit == "TB":
            break
        value /= 1000
    return Figure(f"{value:,.0f} {unit}" if unit == "bytes" else f"{value:,.1f} {unit}")


def table(rows: Sequence[Mapping[str, object]]) -> Markup:
    """Columns named by the keys of the first row; strings are texts, numbers stand right."""
    if not rows:
        return element("p", "None.")
    kinds = {name: "figure" if _is_figure(value) else "text" for name, value in rows[0].items()}
    head = element("tr", *(classed("th", kind, name) for name, kind in kinds.items()))
    body = [
        element("tr", *(_cell(row[name], kind) for name, kind in kinds.items())) for row in rows
    ]
    return classed("div", "wide", element("table", head, *body))


def _is_figure(value: object) -> bool:
    return isinstance(value, int | Figure)


def _cell(value: object, kind: str) -> Markup:
    return classed("td", kind, count(value) if isinstance(value, int) else escape(value))
