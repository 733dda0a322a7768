"""The files of a source: links that lead in a circle and names that clash are refused."""

import os
from pathlib import Path

import pytest

from data_tools.document import DataError
from data_tools.read.files import names
from data_tools.source import SourceConfig


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two files, one in a directory."""
    (tmp_path / "raw/d").mkdir(parents=True)
    (tmp_path / "raw/a.txt").write_text("a")
    (tmp_path / "raw/d/b.txt").write_text("b")
    return tmp_path / "raw"


def found(root: Path, *patterns: str) -> list[str]:
    return names(SourceConfig("s", "web", "txt", "raw", patterns), root, root.parent)


def looping(root: Path, pattern: str = "**/*.txt") -> str:
    """The link that the error names."""
    with pytest.raises(DataError) as error:
        found(root, pattern)
    head, _, rest = str(error.value).partition(" is a link to a directory that it lies in, and ")
    assert rest == (
        f"{pattern!r} would go round in it; remove the link, or name the directories beside it "
        "in paths"
    )
    return head.removeprefix(f"source s: {root}/")


@pytest.mark.parametrize("target", [".", "..", "../..", "/"])
def test_a_link_to_a_directory_above_it(root, target):
    (root / "d/up").symlink_to(target)
    assert looping(root) == "d/up"
    assert looping(root, "d/**/*.txt") == "d/up"
    assert looping(root, "**/d/**/*.txt") == "d/up"


def test_links_that_lead_to_each_other(root):
    (root / "e").mkdir()
    (root / "d/x").symlink_to("../e")
    (root / "e/y").symlink_to("../d")
    assert looping(root) in ("d/x/y", "e/y/x")


def test_a_link_out_of_the_source_and_up_from_there(root):
    (root.parent / "other/deep/c").mkdir(parents=True)
    (root / "e").symlink_to("../other/deep")
    (root.parent / "other/deep/c/up").symlink_to("../..")
    assert looping(root) == "e/c/up"


def test_other_links_are_followed(root):
    (root.parent / "other").mkdir()
    (root.parent / "other/c.txt").write_text("c")
    (root / "e").symlink_to("d")
    (root / "d/o").symlink_to("../../other")
    (root / "nowhere").symlink_to("nothing")
    (root / "itself").symlink_to("itself")
    (root / "d/file").symlink_to("../a.txt")
    (root / ".hidden").mkdir()
    (root / ".hidden/up").symlink_to("..")  # `**` does not look into it
    assert found(root, "**/*.txt") == [
        "a.txt",
        "d/b.txt",
        "d/o/c.txt",
        "e/b.txt",
        "e/o/c.txt",
    ]
    assert looping(root, ".hidden/**/*.txt") == ".hidden/up"


def test_without_double_stars_a_link_above_is_followed_once(root):
    (root / "d/up").symlink_to("..")
    assert found(root, "*/*.txt", "*/*/*.txt") == ["d/b.txt", "d/up/a.txt"]


def test_a_directory_that_is_not_there(root):
    with pytest.raises(DataError, match=r"no file matches '\*\*/\*\.txt' below .*none;"):
        found(root / "none", "**/*.txt")


def test_names_that_print_the_same(root):
    (root / os.fsdecode(b"\xff.txt")).write_text("one")
    (root / "\\xff.txt").write_text("two")
    assert found(root, "*xff.txt") == ["\\xff.txt"]
    with pytest.raises(DataError) as error:
        found(root, "*.txt")
    message = str(error.value)
    assert repr(b"\xff.txt") in message and repr(b"\\xff.txt") in message
    assert message.endswith(
        "have the same name in print, and documents are known by it; rename one"
    )
