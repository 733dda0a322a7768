"""Plots as inline SVG: horizontal bars, and columns over bins. Colours are the style sheet's."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data_tools.report.markup import Markup, classed, element, join

WIDTH = 760
ROW_HEIGHT = 24
LABEL_WIDTH = 170
TEXT_WIDTH = 190
LABEL_CHARACTERS = 24
"""A longer label is cut; the whole of it appears under the pointer."""
PLOT_HEIGHT = 170
MARGIN = 48
"""Left of columns for the numbers of the axis."""


@dataclass(frozen=True)
class Bar:
    """A row of `bars`."""

    label: str
    parts: Sequence[tuple[str, float]]
    """(Series, its length), laid end to end; a series is one word, and a class of its colour."""
    text: str
    """Written behind the bar."""


def bars(title: str, rows: Sequence[Bar]) -> Markup:
    """Horizontal bars to one scale, the longest filling the width."""
    longest = max((sum(value for _, value in row.parts) for row in rows), default=0) or 1
    scale = (WIDTH - LABEL_WIDTH - TEXT_WIDTH) / longest
    shapes = []
    for i, row in enumerate(rows):
        top = i * ROW_HEIGHT
        shapes.append(_text(LABEL_WIDTH - 8, top + 16, _cut(row.label), "label end", row.label))
        x = float(LABEL_WIDTH)
        for series, value in row.parts:
            tip = f"{row.label}: {series} {value:,.0f}"
            shapes.append(_rect(x, top + 4, value * scale, ROW_HEIGHT - 8, series, tip))
            x += value * scale
        shapes.append(_text(x + 8, top + 16, row.text, "label"))
    names = [name for row in rows for name, _ in row.parts]
    return _figure(title, names, len(rows) * ROW_HEIGHT, shapes)


def columns(
    title: str,
    bins: Sequence[str],
    series: Mapping[str, Sequence[float]],
    axis: str,
    *,
    logarithmic: bool = False,
) -> Markup:
    """Columns over bins, the series side by side; `axis` says what the bins are.

    On a logarithmic scale a column stands for log(1 + value), so that one of 1 is seen.
    """
    transform = math.log1p if logarithmic else float
    highest = max((v for values in series.values() for v in values), default=0) or 1
    scale = (PLOT_HEIGHT - 14) / transform(highest)
    slot = (WIDTH - MARGIN) / max(len(bins), 1)
    width = min(slot * 0.84 / max(len(series), 1), 48)
    shapes = []
    for tick in _ticks(highest, logarithmic):
        y = PLOT_HEIGHT - transform(tick) * scale
        shapes.append(_line(MARGIN, y, WIDTH, y))
        shapes.append(_text(MARGIN - 6, y + 4, short(tick), "label end"))
    for i, name in enumerate(bins):
        middle = MARGIN + (i + 0.5) * slot
        for k, (label, values) in enumerate(series.items()):
            x = middle + (k - len(series) / 2) * width
            height = transform(values[i]) * scale
            tip = f"{name}: {label} {values[i]:,.0f}"
            shapes.append(_rect(x, PLOT_HEIGHT - height, width - 1, height, label, tip))
        if i % math.ceil(len(bins) / 16) == 0:
            shapes.append(_text(middle, PLOT_HEIGHT + 16, name, "label middle"))
    shapes.append(_text(WIDTH, PLOT_HEIGHT + 34, axis, "label end"))
    return _figure(title, list(series), PLOT_HEIGHT + 40, shapes)


def short(value: float) -> str:
    """A number in a few characters: 950, 1.2k, 34M."""
    for limit, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= limit:
            return f"{value / limit:.3g}{unit}"
    return f"{value:.3g}"


def _ticks(highest: float, logarithmic: bool) -> list[float]:
    """Round numbers up to `highest`, 0 the first."""
    if logarithmic:
        powers = [10.0**k for k in range(int(math.log10(max(highest, 1))) + 1)]
        return [0.0, *powers[:: math.ceil(len(powers) / 4)]]
    rough = highest / 3
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.99)
    return [k * step for k in range(int(highest / step) + 1)]


def _figure(title: str, names: Sequence[str], height: float, shapes: Sequence[Markup]) -> Markup:
    keys = [join(classed("i", f"key {name}"), name) for name in dict.fromkeys(names)]
    legend = classed("span", "legend", *keys) if len(keys) > 1 else ""
    view = {"viewBox": f"0 0 {WIDTH} {height:.0f}", "role": "img", "aria-label": title}
    svg = element("svg", *shapes, attributes=view)
    return element("figure", element("figcaption", title, legend), svg)


def _rect(x: float, y: float, width: float, height: float, kind: str, tip: str) -> Markup:
    place = {"x": f"{x:.1f}", "y": f"{y:.1f}", "width": f"{max(width, 0):.1f}"}
    attributes = place | {"height": f"{max(height, 0):.1f}", "class": kind}
    return element("rect", element("title", tip), attributes=attributes)


def _line(x1: float, y1: float, x2: float, y2: float) -> Markup:
    ends = {"x1": x1, "y1": f"{y1:.1f}", "x2": x2, "y2": f"{y2:.1f}"}
    return element("line", attributes=ends)


def _text(x: float, y: float, text: str, kind: str, tip: str = "") -> Markup:
    attributes = {"x": f"{x:.1f}", "y": f"{y:.1f}", "class": kind}
    return element("text", text, element("title", tip) if tip else "", attributes=attributes)


def _cut(label: str) -> str:
    return label if len(label) <= LABEL_CHARACTERS else f"{label[: LABEL_CHARACTERS - 1]}…"
