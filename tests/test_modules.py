"""docs/modules.md has every module: a line each, the first sentence of its docstring."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGES = ("jaxlm", "configs", "data_tools", "launch", "bench")


def first_sentence(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return " ".join(text.split("\n\n")[0].split())


def tree() -> Iterator[str]:
    for package in PACKAGES:
        yield f"    {package}/"
        paths = sorted((ROOT / package).rglob("*.py"), key=lambda p: (len(p.parts), p))
        for path in paths:
            if sentence := first_sentence(path):
                name = path.relative_to(ROOT / package).as_posix()
                yield f"      {name:<24} {sentence}"


def test_every_module_is_listed():
    text = (ROOT / "docs/modules.md").read_text(encoding="utf-8")
    expected = "\n".join(tree())
    assert expected in text, f"put this into docs/modules.md:\n{expected}"
