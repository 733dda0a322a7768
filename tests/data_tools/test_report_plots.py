"""What the page is made of: escaping by construction, figures in words, plots to scale."""

import math
import re

import pytest

from data_tools.report.markup import classed, element, escape, join
from data_tools.report.plots import Bar, bars, columns, short
from data_tools.report.tables import Figure, share, size, table

HOSTILE = "<img src=x onerror=alert(1)>\"'&"


def numbers(svg: str, attribute: str) -> list[float]:
    """This attribute of all rectangles."""
    return [float(v) for v in re.findall(rf'<rect [^>]*\b{attribute}="([\d.]+)"', svg)]


def test_what_is_not_markup_is_escaped():
    written = element("p", HOSTILE, element("b", HOSTILE), attributes={"title": HOSTILE})
    assert "<img" not in written and written.count("&lt;img") == 3
    assert written.startswith('<p title="&lt;img src=x onerror=alert(1)&gt;&quot;&#x27;&amp;">')
    assert "<img" not in classed("div", HOSTILE) + join(HOSTILE)


def test_escaping_twice_is_escaping_once():
    assert escape(escape("a < b")) == "a &lt; b"


def test_control_characters_and_half_characters_are_shown():
    assert escape("a\x00\x1b\x7f\ud800\n\t") == "a\u2400\u241b\u2421?\n\t"


def test_bars_are_to_scale():
    rows = [
        Bar("one", [("kept", 30), ("lost", 10)], "30"),
        Bar("two", [("kept", 20), ("lost", 0)], "20"),
    ]
    widths = numbers(bars("title", rows), "width")
    assert widths[0] == pytest.approx(3 * widths[1], rel=0.01)
    assert widths[2] == pytest.approx(2 * widths[1], rel=0.01) and widths[3] == 0


def test_columns_are_to_scale():
    svg = columns("title", ["1", "2"], {"kept": [50, 100], "dropped": [0, 25]}, "axis")
    heights = numbers(svg, "height")
    assert heights == pytest.approx([heights[2] / 2, 0, heights[2], heights[2] / 4], abs=0.1)


def test_logarithmic_columns_show_a_single_one():
    heights = numbers(columns("t", ["1", "2"], {"n": [1, 999]}, "a", logarithmic=True), "height")
    assert heights[0] / heights[1] == pytest.approx(math.log(2) / math.log(1000), rel=0.02)


@pytest.mark.parametrize("values", [[], [0], [0, 0, 0], [1e-9], [1e15]])
def test_plots_of_nothing_and_of_much(values):
    bins = [str(i) for i in range(len(values))]
    for logarithmic in (False, True):
        svg = columns("t", bins, {"n": values}, "axis", logarithmic=logarithmic)
        assert svg.count("<rect") == len(values) and "nan" not in svg and "inf" not in svg
    assert bars("t", [Bar(b, [("n", v)], b) for b, v in zip(bins, values, strict=True)])


def test_labels_are_escaped_and_cut_but_whole_under_the_pointer():
    label = HOSTILE + "x" * 40
    svg = bars("t", [Bar(label, [("kept", 1)], HOSTILE)])
    assert "<img" not in svg and "…<" in svg
    assert f"<title>{escape(label)}</title>" in svg


@pytest.mark.parametrize(
    ("value", "text"), [(0, "0"), (950, "950"), (1234, "1.23k"), (34e6, "34M"), (2e12, "2T")]
)
def test_short(value, text):
    assert short(value) == text


def test_figures():
    assert size(999) == "999 bytes" and size(1500) == "1.5 kB" and size(2.5e9) == "2.5 GB"
    assert size(-1500) == "-1.5 kB"
    assert share(1, 3) == "33.3%" and share(0, 0) == "0.0%" and share(1, 10_000) == "<0.1%"


def test_table():
    written = table([{"what": HOSTILE, "n": 12345}, {"what": "b", "n": Figure("1 MB")}])
    assert "<img" not in written
    assert '<th class="text">what</th><th class="figure">n</th>' in written
    assert '<td class="figure">12,345</td>' in written
    assert table([]) == "<p>None.</p>"
