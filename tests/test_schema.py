"""The config machinery on classes of its own: types, errors, files, overrides, round trips."""

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

from jaxlm import schema
from jaxlm.schema import ConfigError, fixed, free, recorded, section


@dataclass(frozen=True)
class Part:
    """A part."""

    size: int = fixed(4)
    """Cubits."""
    share: float = recorded(0.5)
    """Of the whole."""
    name: str | None = free(None)
    """What it is called."""

    def __post_init__(self) -> None:
        if self.size < 1:
            raise ValueError(f"size={self.size}: must be at least 1")


@dataclass(frozen=True)
class Whole:
    """A whole."""

    kind: Literal["ark", "barn"] = fixed("ark")
    """What is built."""
    dry: bool = free(True)
    """Whether it floats."""
    pairs: tuple[tuple[str, float], ...] = recorded(())
    """(animal, weight)."""
    parts: tuple[Part, ...] = fixed(())
    """Those beside the main one."""
    main: Part = section(Part)
    """The main one."""


HEADER = "from jaxlm import schema\nfrom tests.test_schema import Part, Whole\n"


def write(tmp_path, body: str):
    """A config file whose `get_config` edits the defaults, `c`, by `body`."""
    path = tmp_path / "x.py"
    path.write_text(
        f"{HEADER}\ndef get_config():\n    c = schema.schema(Whole)\n    {body}\n    return c\n"
    )
    return path


def test_a_file_edits_the_defaults_and_the_command_line_edits_the_file(tmp_path):
    path = write(tmp_path, "c.main.size = 7; c.pairs = (('ox', 1),); c.main.name = 'hull'")
    found = schema.load(Whole, path, ["main.share=1", "dry=false", "main.name=bow=1"])
    assert found == Whole(dry=False, pairs=(("ox", 1.0),), main=Part(7, 1.0, "bow=1"))
    assert isinstance(found.main.share, float)


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("kind=barn", Whole(kind="barn")),
        ("main.name=None", Whole()),
        ("main.name=12", Whole(main=Part(name="12"))),
        ("main.share=1e-3", Whole(main=Part(share=1e-3))),
        ("dry=False", Whole(dry=False)),
        ("pairs=(('ox', 2), ('ass', 0))", Whole(pairs=(("ox", 2.0), ("ass", 0.0)))),
        ("parts=[{'size': 2}]", Whole(parts=(Part(2),))),
    ],
)
def test_an_override_is_read_by_the_type_of_its_field(tmp_path, override, value):
    assert schema.load(Whole, write(tmp_path, "pass"), [override]) == value


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("main.sise=1", "config.main.sise: unknown field; did you mean size? fields here: size, "),
        ("mian.size=1", "config.mian: unknown field; did you mean main? fields here: kind, dry, "),
        ("zebra=1", "config.zebra: unknown field; fields here: kind, dry, pairs, parts, main"),
        ("main.size=4.0", "config.main.size=4.0: must be int"),
        ("main.size=True", "config.main.size=True: must be int"),
        ("main.size=None", "config.main.size=None: must be int"),
        ("main.share=half", "config.main.share='half': must be float"),
        ("dry=1", "config.dry=1: must be bool"),
        ("kind=shed", "config.kind='shed': must be one of 'ark', 'barn'"),
        ("pairs=(('ox', 'many'),)", "config.pairs[0][1]='many': must be float"),
        ("pairs=(('ox',),)", "config.pairs[0]=('ox',): must be tuple[str, float]"),
        ("parts=[{'sise': 2}]", "config.parts[0].sise: unknown field; did you mean size?"),
        ("main.size=0", "config.main: size=0: must be at least 1"),
        ("main=3", "config.main=3: is a section; set one of its fields"),
        ("dry.wet=3", "config.dry: is a value, it has no field 'wet'"),
        ("main.size", "--config.main.size: write --config.main.size=VALUE"),
    ],
)
def test_a_wrong_override_says_where_and_what_is_allowed(tmp_path, override, message):
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, write(tmp_path, "pass"), [override])
    assert str(error.value).startswith(message)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("c.main.sise = 1", "Did you mean"),
        ("c.main.size = 'big'", "size"),
        ("c.nothing.size = 1", "nothing"),
        ("1 / 0", "division by zero"),
        ("x = = 1", "invalid syntax"),
    ],
)
def test_a_mistake_in_a_file_is_told_with_its_line(tmp_path, body, message):
    path = write(tmp_path, body)
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, path)
    assert str(error.value).startswith(f"{path}:6: ")
    assert message in str(error.value)


def test_values_of_a_file_are_checked_when_it_is_parsed(tmp_path):
    """ConfigDict lets None and a section's replacement pass; `parse` does not."""
    with pytest.raises(ConfigError, match=r"config.main.size=None: must be int"):
        schema.load(Whole, write(tmp_path, "c.main.size = None"))
    with pytest.raises(ConfigError, match=r"config.kind='shed': must be one of 'ark', 'barn'"):
        schema.load(Whole, write(tmp_path, "c.kind = 'shed'"))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.py", "a = 1", "the file defines no get_config()"),
        ("x.py", "def get_config(): pass", "get_config() gives None; return the edited schema()"),
        ("x.txt", "", "not a Python file"),
        ("x.json", "{\n broken", "JSON breaks at line 2"),
        ("x.json", "[1]", "config=[1]: is a section; write its fields as {...}"),
        ("x.json", '{"main": 3}', "config.main=3: is a section; write its fields as {...}"),
        ("x.json", '{"mian": {}}', "config.mian: unknown field; did you mean main?"),
        ("x.json", '{"main": {"size": "4"}}', "config.main.size='4': must be int"),
    ],
)
def test_a_file_that_is_no_config_is_refused(tmp_path, name, text, message):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, path)
    assert message in str(error.value)


def test_a_file_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff{}")
    with pytest.raises(ConfigError, match=r"x.json: is not UTF-8: invalid start byte at byte 0"):
        schema.load(Whole, tmp_path / "x.json")


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--config=.*nowhere.py: no such file"):
        schema.load(Whole, tmp_path / "nowhere.py")


def test_the_schema_is_locked():
    with pytest.raises(AttributeError, match="cannot be added"):
        schema.schema(Whole).zebra = 1


def test_a_field_needs_a_default():
    @dataclass(frozen=True)
    class Bare:
        size: int

    with pytest.raises(TypeError, match=r"Bare.size has no default; a config field needs one"):
        schema.schema(Bare)


def test_json_gives_the_same_config_back(tmp_path):
    config = Whole("barn", False, (("ox", 0.1),), (Part(2), Part(3, 0.25, "x")), Part(9))
    path = tmp_path / "x.json"
    path.write_text(json.dumps(schema.to_dict(config)))
    assert schema.load(Whole, path) == config
    assert schema.load(Whole, path, ["main.size=8"]).main.size == 8


def test_changes_are_found_with_their_rule():
    old = schema.to_dict(Whole(pairs=(("ox", 1.0),)))
    assert list(schema.changes(Whole, old, Whole(pairs=(("ox", 1.0),)))) == []
    new = Whole(dry=False, pairs=(("ox", 2.0),), main=Part(5))
    assert list(schema.changes(Whole, json.loads(json.dumps(old)), new)) == [
        ("dry", True, False, "free"),
        ("pairs", [["ox", 1.0]], [["ox", 2.0]], "recorded"),
        ("main.size", 4, 5, "fixed"),
    ]


def test_docs_are_the_docstrings_under_the_fields():
    assert schema.docs(Part) == {"size": "Cubits.", "share": "Of the whole.",
                                 "name": "What it is called."}  # fmt: skip
    assert list(schema.docs(Whole)) == [f.name for f in dataclasses.fields(Whole)]


TARGETED = f"""{HEADER}
TARGETS = {{"sea": 3, "land:2x2": 5}}

def get_config(target="sea"):
    c = schema.schema(Whole)
    c.main.size = TARGETS[target]
    return c
"""


def test_a_file_has_a_config_for_each_of_its_targets(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(TARGETED)
    assert schema.targets(path) == schema.targets(f"{path}:sea") == ("sea", "land:2x2")
    assert schema.load(Whole, path).main.size == 3  # its own default
    assert schema.load(Whole, f"{path}:sea").main.size == 3
    found = schema.load(Whole, Path(f"{path}:land:2x2"), ["main.share=0"])
    assert found == Whole(main=Part(5, 0.0))
    assert schema.targets(write(tmp_path, "pass")) == ()


def test_a_run_says_for_which_target_it_is(tmp_path):
    """The layout of another target may run as well, and badly."""
    path = tmp_path / "x.py"
    path.write_text(TARGETED)
    with pytest.raises(
        ConfigError, match=r"a layout for each of sea, land:2x2; say which, as .*:sea"
    ):
        schema.one_target(path)
    schema.one_target(f"{path}:land:2x2")
    schema.one_target(write(tmp_path, "pass"))


def test_targets_that_are_none_are_a_mistake_in_the_file(tmp_path):
    path = tmp_path / "x.py"
    path.write_text("TARGETS = 7")
    with pytest.raises(ConfigError, match=r"x.py:\?: 'int' object is not iterable"):
        schema.targets(path)


@pytest.mark.parametrize("target", ["air", "land", "land:2x2:1", ""])
def test_an_unknown_target_lists_the_known(tmp_path, target):
    path = tmp_path / "x.py"
    path.write_text(TARGETED)
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, f"{path}:{target}")
    assert str(error.value) == (
        f"--config={path}:{target}: unknown target; use one of sea, land:2x2"
    )


def test_a_file_without_targets_takes_none(tmp_path):
    path = write(tmp_path, "pass")
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, f"{path}:sea")
    assert str(error.value) == (
        f"--config={path}:sea: the file has no targets; give --config={path}"
    )
    with pytest.raises(ConfigError, match=r"--config=.*nowhere.py: no such file"):
        schema.load(Whole, tmp_path / "nowhere.py:sea")
    with pytest.raises(ConfigError, match=r"--config=.*nowhere.py: no such file"):
        schema.targets(tmp_path / "nowhere.py:sea")


def test_a_mistake_for_one_target_is_told_with_its_line(tmp_path):
    path = tmp_path / "x.py"
    path.write_text(TARGETED.replace("TARGETS[target]", "TARGETS[target].large"))
    with pytest.raises(ConfigError) as error:
        schema.load(Whole, f"{path}:sea")
    assert str(error.value).startswith(f"{path}:8: 'int' object has no attribute 'large'")
