"""Wikitext to plain text, in time that grows with its length whatever it holds.

Headings, paragraphs, list items and the words of links stay; templates, tables, references, files,
categories and formulas go. Nothing is expanded: what a template would have said is not in a dump.
"""

import html
import re

OPEN, CLOSE = ("{{", "[[", "{|", "<"), ("}}", "]]", "|}", ">")
DROPPED_TAGS = "ref|gallery|timeline|score|imagemap|math|chem|graph|mapframe|templatestyles"

COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
VARIANT = re.compile(r"-\{([^{}]*)\}-")
"""Chinese: -{literal}-, -{zh-hans:..; zh-hant:..}-, with flags and a bar before either."""
LEAF_TAG = re.compile(rf"<(?:{DROPPED_TAGS})\b[^<>]*/>", re.IGNORECASE)
TOKEN = re.compile(
    r"(?P<open>\{\{|\[\[|^[ \t:*#]*\{\|)|(?P<close>\}\}|\]\]|^[ \t]*\|\}(?!\}))|"
    rf"(?P<tag><(?:{DROPPED_TAGS})\b[^<>]*>)|(?P<end></(?:{DROPPED_TAGS})\s*>)",
    re.IGNORECASE | re.MULTILINE,
)
EXTERNAL = re.compile(r"\[(?:[a-z]{2,8}:)?//[^\s\]<>\[]*+[ \t]*+([^\[\]\n]*+)\]", re.IGNORECASE)
QUOTES = re.compile(r"'{2,}")
BREAK = re.compile(r"<br\b[^<>]*>|</(?:p|div|li|blockquote)\s*>", re.IGNORECASE)
TAG = re.compile(r"</?[a-z][^<>]*>", re.IGNORECASE)
SWITCH = re.compile(r"__[A-Z]{3,30}__")
EMPTY_BRACKETS = re.compile(r"[（(][\s，、；：,;:]{0,20}[)）]")
MARKERS = re.compile(r"^[*#:;]+[ \t]*")

NO_TEXT = frozenset({"file", "image", "media", "category", "template", "portal"}) | frozenset(
    {
        "文件",
        "档案",
        "檔案",
        "图像",
        "圖像",
        "图片",
        "圖片",
        "媒体",
        "媒體",
        "分类",
        "分類",
        "模板",
        "主题",
        "主題",
    }
)
"""Namespaces whose links show no words of the sentence."""
INTERLANGUAGE = re.compile(r"[a-z]{2,3}(-[a-z-]+)?")
DEPTH = 32
"""What opens at a greater depth is no markup, so that no word is moved often."""


def plain_text(wikitext: str) -> str:
    """The words of an article."""
    text = COMMENT.sub("", wikitext)
    text = VARIANT.sub(_variant, text)
    text = _unnested(LEAF_TAG.sub("", text))
    text = EXTERNAL.sub(r"\1", text)
    text = SWITCH.sub("", QUOTES.sub("", text))
    text = TAG.sub("", BREAK.sub("\n", text))
    text = EMPTY_BRACKETS.sub("", html.unescape(text).replace("\u00a0", " "))
    return "\n".join(_lines(text))


def _unnested(text: str) -> str:
    """The text without what is dropped with all that it encloses, and with the words of links."""
    stack: list[tuple[str, list[str]]] = [("", [])]
    depth = dict.fromkeys(OPEN, 0)
    position = 0
    for token in TOKEN.finditer(text):
        stack[-1][1].append(text[position : token.start()])
        position = token.end()
        word = token[0].strip(" \t:*#")
        if token["open"] or token["tag"]:
            kind = "<" if token["tag"] else word
            if len(stack) <= DEPTH:
                depth[kind] += 1
                stack.append((kind, []))
            continue
        kind = "<" if token["end"] else OPEN[CLOSE.index(word)]
        if not depth[kind]:
            continue
        while True:  # what was opened inside and never closed is no markup
            opened, inner = stack.pop()
            depth[opened] -= 1
            if opened == kind:
                break
            stack[-1][1].extend(inner)
        if kind == "[[":
            stack[-1][1].append(_link("".join(inner)))
    stack[-1][1].append(text[position:])
    return "".join(piece for _, pieces in stack for piece in pieces)


def _link(inner: str) -> str:
    target, bar, label = inner.partition("|")
    space, colon, name = target.strip().partition(":")
    if colon and (space.strip().lower() in NO_TEXT or INTERLANGUAGE.fullmatch(space)):
        return ""
    if bar and label.strip():
        return label
    return name if colon and not space else target


def _variant(match: re.Match[str]) -> str:
    flags, bar, body = match[1].rpartition("|")
    if bar and any(flag in flags for flag in "THRD-"):  # titles, rules and descriptions of them
        return ""
    forms = dict(re.findall(r"\s*(zh(?:-[a-z]+)?)\s*:([^;]*)", body))
    for variant in ("zh-hans", "zh-cn", "zh", *forms):
        if variant in forms:
            return forms[variant].strip()
    return body


def _lines(text: str) -> list[str]:
    """Lines without their list markers; no heading without text below it, no two blank lines."""
    kept: list[str] = []
    headings: list[tuple[int, str]] = []
    for line in text.splitlines():
        stripped = line.strip()
        title = stripped.strip("=").strip()
        if title and stripped.startswith("=") and stripped.endswith("="):
            level = len(stripped) - len(stripped.lstrip("="))
            headings = [h for h in headings if h[0] < level] + [(level, title)]
            continue
        words = MARKERS.sub("", stripped).strip()
        if not words:
            if kept and kept[-1]:
                kept.append("")
            continue
        for _, title in headings:
            kept += ["", title] if kept and kept[-1] else [title]
        headings = []
        kept.append(words)
    while kept and not kept[-1]:
        kept.pop()
    return kept
