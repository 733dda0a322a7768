"""Source code: a file is a document, its language known by its suffix."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

from data_tools.read.record import Bad, Record
from data_tools.read.txt import read_txt
from data_tools.source import SourceConfig

LANGUAGES = {
    ".c": "c",
    ".cc": "c++",
    ".cpp": "c++",
    ".cs": "c#",
    ".cu": "cuda",
    ".go": "go",
    ".h": "c",
    ".hpp": "c++",
    ".hs": "haskell",
    ".html": "html",
    ".java": "java",
    ".jl": "julia",
    ".js": "javascript",
    ".kt": "kotlin",
    ".lua": "lua",
    ".md": "markdown",
    ".ml": "ocaml",
    ".php": "php",
    ".pl": "perl",
    ".py": "python",
    ".pyi": "python",
    ".r": "r",
    ".rb": "ruby",
    ".rs": "rust",
    ".rst": "restructuredtext",
    ".scala": "scala",
    ".sh": "shell",
    ".sql": "sql",
    ".swift": "swift",
    ".tex": "tex",
    ".toml": "toml",
    ".ts": "typescript",
    ".tsx": "typescript",
    ".yaml": "yaml",
    ".yml": "yaml",
}


def read_source_tree(path: Path, source: SourceConfig) -> Iterator[Record | Bad]:
    """One record with its language in `meta`; a file of another suffix is bad, not skipped."""
    language = LANGUAGES.get(path.suffix.lower())
    if language is None:
        yield Bad(0, f"suffix {path.suffix!r} is no language of read/source_tree.py")
        return
    for found in read_txt(path, source):
        if isinstance(found, Record):
            yield dataclasses.replace(found, meta={"language": language})
        else:
            yield found
