"""The table of plans: which rows it has, when one is kept, and that its pages tell the same."""

import errno
import json
import os
from dataclasses import replace
from pathlib import Path
from unittest import mock

import pytest

from jaxlm.plan import pages, prices, table, target
from tests.plan.made_up import row

ROOT = Path(__file__).parents[2]
CASES = table.cases(ROOT / "configs")


def test_every_target_of_a_shipped_config_is_a_case():
    names = [case.name for case in CASES]
    assert len(names) == len(set(names)) == 32
    assert names[0] == "lm_1b:v5p:2x2x2" and names[-1] == "lm_70b:b200:32x8"
    stems = list(dict.fromkeys(case.path.stem for case in CASES))
    assert stems == ["lm_1b", "lm_7b", "lm_13b", "lm_70b"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case_is_one_that_can_be_planned(case):
    cfg, where = case.load()
    assert str(where) == case.target
    assert where.size == cfg.mesh.data * cfg.mesh.fsdp * cfg.mesh.tensor


def test_the_pages_and_headers_are_those_of_the_rows():
    """`make plans` writes them; none may be edited or left behind."""
    kept = table.read(ROOT / table.ROWS)
    own = {
        path: [kept[c.name] for c in CASES if c.path == path and c.name in kept]
        for path in dict.fromkeys(case.path for case in CASES)
    }
    assert (ROOT / table.PAGE).read_text(encoding="utf-8") == pages.page(own, [])
    for path, found in own.items():
        source = path.read_text(encoding="utf-8")
        assert pages.MARK in source
        assert pages.with_header(source, found) == source, f"{path.stem}: {pages.COMMAND}"


def test_no_row_runs_out_of_memory():
    kept = table.read(ROOT / table.ROWS)
    assert list(kept) == [case.name for case in CASES]
    assert [name for name, row in kept.items() if not row["plan"]["fit"]["fits"]] == []


def test_a_row_is_kept_while_program_config_chip_and_price_are_the_same(monkeypatch):
    case = CASES[0]
    cfg, where = case.load()
    lowered = mock.Mock(digest="d1")
    monkeypatch.setattr(table.program, "lower", lambda cfg, where: lowered)
    row = {"basis": table.basis(cfg, where), "plan": {"digest": "d1"}}
    assert table.is_current(case, row)
    assert not table.is_current(case, None)
    assert not table.is_current(case, row | {"plan": {"digest": "d0"}})
    longer = replace(cfg, train=replace(cfg.train, end="99 steps"), optim=replace(
        cfg.optim, warmup="1 steps"))  # fmt: skip
    assert table.basis(longer, where) != row["basis"]
    assert table.basis(cfg, target.parse("v5e:2x4")) != row["basis"]
    monkeypatch.setattr(prices, "of", lambda chip: prices.Price(9.0, 1.0, "here", "a friend"))
    assert not table.is_current(case, row)


def test_rows_are_written_in_order_and_those_of_no_case_go(tmp_path):
    path = tmp_path / "plans.json"
    made = {name: row("lm_1b", name.partition(":")[2]) for name in ("lm_1b:b", "lm_1b:a")}
    table.write(made | {"gone": {"name": "gone"}}, ["lm_1b:a", "lm_1b:b", "lm_1b:c"], path)
    assert [row["name"] for row in json.loads(path.read_text())["rows"]] == ["lm_1b:a", "lm_1b:b"]
    assert table.read(path) == {name: made[name] for name in ("lm_1b:a", "lm_1b:b")}
    assert table.read(tmp_path / "none.json") == {}


@pytest.fixture
def tree(tmp_path, monkeypatch) -> Path:
    """A repository with one config."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "configs").mkdir()
    source = (ROOT / "configs/lm_1b.py").read_text(encoding="utf-8")
    (tmp_path / "configs/lm_1b.py").write_text(source, encoding="utf-8")
    return tmp_path


def test_only_what_is_not_current_is_made_and_the_pages_follow(tree, monkeypatch):
    """From the command on, but for the compilers: a process's row comes from `made`."""
    asked = []

    def apart(case, again):
        asked.append((case.name, again))
        return None if case.target.startswith("v6e") else row("lm_1b", case.target)

    monkeypatch.setattr(table, "_apart", apart)
    assert table.main(["--only=lm_1b:h100:1x8"]) == 0
    assert asked == [("lm_1b:h100:1x8", False)]
    assert list(table.read(table.ROWS)) == ["lm_1b:h100:1x8"]
    assert table.main(["--only=lm_1b", "--again"]) == 1  # v6e failed; the others are written
    assert len(asked) == 9 and ("lm_1b:v5p:2x2x2", True) in asked
    assert len(table.read(table.ROWS)) == 7
    header = (tree / "configs/lm_1b.py").read_text(encoding="utf-8")
    assert "\n  h100:1x8    25B: 2.0 to 3.2 days, $2,364 to 3,782, spot $946 to 1,514\n" in header
    assert "## lm_1b" in table.PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only=nonsense"], "--only=nonsense: no such rows; known are lm_1b, lm_1b:v5p:2x2x2, "),
        (["--row=nonsense", "--out=x"], "--row=nonsense: no such row; known are lm_1b:v5p:2x2x2, "),
        (["--row=lm_1b:h100:1x8"], "--row and --out go together"),
        (["--out=x"], "--row and --out go together"),
        (["--processes=0"], "--processes=0: must be at least 1"),
    ],
)
def test_mistakes_are_told_and_nothing_is_written(tree, capsys, arguments, message):
    before = _sources(tree)
    with pytest.raises(SystemExit, match="2"):
        table.main(arguments)
    assert f"error: {message}" in capsys.readouterr().err
    assert _sources(tree) == before


def _sources(tree: Path) -> dict[Path, bytes]:
    """What is in it, but for what Python writes when it reads a config."""
    files = (path for path in tree.rglob("*") if path.is_file() and path.suffix != ".pyc")
    return {path: path.read_bytes() for path in files}


def test_another_directory_is_told(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        table.main([])
    assert "run it at the repository's root" in capsys.readouterr().err


def test_a_full_disk_leaves_the_rows_that_there_were(tmp_path, monkeypatch):
    path = tmp_path / "plans.json"
    table.write({"lm_1b:a": row("lm_1b", "a")}, ["lm_1b:a"], path)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        os.ftruncate(descriptor, os.fstat(descriptor).st_size // 2)
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        table.write({"lm_1b:b": row("lm_1b", "b")}, ["lm_1b:b"], path)
    assert path.read_bytes() == before


def test_a_header_is_written_in_place_of_the_last_one():
    source = f'"""A model.\n\n{pages.MARK}{pages.UNPLANNED}"""\n\nX = """more"""\n'
    first = pages.with_header(source, [row("x", "h100:1x8")])
    second = pages.with_header(first, [row("x", "v5p:2x2x2", days=3.0)])
    assert "h100" in first and "h100" not in second and ": 3.0 to " in second
    assert first.endswith('"""\n\nX = """more"""\n')
    assert pages.with_header(second, []) == source
    assert pages.with_header('"""No mark."""\n', [row("x", "h100:1x8")]) == '"""No mark."""\n'


def test_a_page_has_all_figures_of_a_row():
    text = pages.page({Path("configs/lm_1b.py"): [row("lm_1b", "h100:1x8")]})
    for line in (
        "| h100:1x8 | 8 | 1 x 8 x 1 | 2 | 2 | full | pallas | 0123456789ab |",
        "| h100:1x8 | 1.00 | 2.00 | 0.00 | 5.00 | 8.00 | 72.00 | 89% | 0 |",
        "| h100:1x8 | 1.24e+14 | 1.240 | 1.200 | compute | 0.12 to 0.20 | 80% (88%) | 524,288 |"
        " 2.0 to 3.2 | $2,364 to 3,782 | $946 to 1,514 | 2 s |",
        "| h100:1x8 | reduce-scatter | fsdp | 10 | 0.29 | 0.20 | 25% |",
        "- h100:1x8: all is made up",
    ):
        assert line in text
    assert "all-reduce" not in text  # scalars
    assert "Not made yet" not in text
    assert "on 2026-12-01, with jax 1.2.3" in text
