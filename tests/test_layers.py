"""The source keeps its rules, and the referee sees it when it does not."""

import dataclasses
import importlib
import typing
from pathlib import Path

import pytest

from jaxlm import schema
from jaxlm.config import Config
from tests import referee
from tests.referee import RULES, Module

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_the_source_keeps(rule):
    broken = list(rule(referee.read(ROOT)))
    assert not broken, "\n".join(broken)


def test_test_files_are_short_too():
    assert list(referee.files_are_short(referee.read(ROOT, ["tests"]))) == []


# ---- config fields -------------------------------------------------------------------------------


def sections(cls: type) -> list[type]:
    """`cls` and every config class that its fields hold, in tuples and unions too."""
    found, waiting = [], [cls]
    while waiting:
        hint = waiting.pop()
        waiting.extend(typing.get_args(hint))
        if dataclasses.is_dataclass(hint) and hint not in found:
            found.append(hint)
            waiting.extend(typing.get_type_hints(hint).values())
    return found


def undocumented(cls: type) -> list[str]:
    """Fields of `cls` and its sections that have no docstring under them."""
    return [
        f"{section.__name__}.{f.name}"
        for section in sections(cls)
        for f in dataclasses.fields(section)
        if f.name not in schema.docs(section)
    ]


def without_resume_rule(cls: type) -> list[str]:
    """Fields of `cls` and its nested sections that are not declared fixed, recorded or free."""
    missing = []
    for f in dataclasses.fields(cls):
        if dataclasses.is_dataclass(f.default_factory):
            missing += without_resume_rule(typing.cast(type, f.default_factory))
        elif "resume" not in f.metadata:
            missing.append(f"{cls.__name__}.{f.name}")
    return missing


@pytest.mark.parametrize("place", ["jaxlm.config:Config", "data_tools.recipe:Recipe"])
def test_every_config_field_is_documented(place):
    module, _, name = place.partition(":")
    missing = undocumented(getattr(importlib.import_module(module), name))
    assert not missing, "no docstring under " + ", ".join(missing)


def test_every_field_of_a_run_says_what_a_resume_may_change():
    assert without_resume_rule(Config) == []


@dataclasses.dataclass(frozen=True)
class Part:
    """A section."""

    known: int = schema.fixed(1)
    """Documented."""
    bare: int = schema.free(1)
    plain: int = 3
    """Documented, but with no resume rule."""


@dataclasses.dataclass(frozen=True)
class Whole:
    """A config with a section, and a tuple of them."""

    part: Part = schema.section(Part)
    """Documented."""
    parts: tuple[Part, ...] = schema.fixed(())
    """Documented."""


def test_a_field_without_a_docstring_or_a_rule_is_seen():
    assert undocumented(Whole) == ["Part.bare"]
    assert without_resume_rule(Whole) == ["Part.plain"]


# ---- the referee bites ---------------------------------------------------------------------------


def broken(rule: referee.Rule, **sources: str) -> list[str]:
    """What `rule` says of modules given as name=source, with __ for a dot."""
    return list(rule([Module(name.replace("__", "."), text) for name, text in sources.items()]))


@pytest.mark.parametrize(
    "statement",
    [
        "import jaxlm.train",
        "from jaxlm import train",
        "from jaxlm.train import main",
        "def f():\n    import jaxlm.train",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jaxlm import train",
        "import importlib\nimportlib.import_module('jaxlm.train')",
    ],
)
def test_an_upward_import_is_seen_wherever_it_stands(statement):
    line = statement.count("\n") + 1
    assert broken(referee.imports_point_down, jaxlm__mesh=statement, jaxlm__train="") == [
        f"jaxlm.mesh:{line} imports jaxlm.train, which is not below it"
    ]


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("jaxlm.step", "jaxlm.state", True),
        ("jaxlm.state", "jaxlm.step", False),
        ("jaxlm.evaluate", "jaxlm.step", True),
        ("jaxlm.ops.dense", "jaxlm.mesh", True),
        ("jaxlm.mesh", "jaxlm.ops.dense", False),
        ("jaxlm.models.block", "jaxlm.models.mlp", True),
        ("jaxlm.models.block", "jaxlm.optim.adamw", False),
        ("jaxlm.data.loader", "jaxlm.data.source", True),
        ("jaxlm.data.source", "jaxlm.data.order", True),
        ("jaxlm.data.order", "jaxlm.data.source", False),
        ("jaxlm.train", "data_tools.stage", False),
        ("data_tools.pack", "jaxlm.data.manifest", True),
        ("data_tools.pack", "data_tools.stage", True),
        ("data_tools.pack", "jaxlm.mesh", False),
        ("configs.tiny", "jaxlm.config", True),
        ("configs.tiny", "jaxlm.train", False),
        ("configs.data.demo", "data_tools.recipe", True),
        ("configs.data.demo", "jaxlm.config", False),
        ("launch.local", "launch.exits", True),
        ("launch.local", "jaxlm.errors", False),
    ],
)
def test_who_may_import_whom(importer, target, allowed):
    modules = [Module(importer, f"import {target}"), Module(target, "")]
    assert (list(referee.imports_point_down(modules)) == []) == allowed


def test_a_module_without_a_place_is_seen():
    assert broken(referee.imports_point_down, jaxlm__misc="", extras="") == [
        "jaxlm.misc has no place: add it to LAYERS (or OUTSIDE) in tests/referee.py",
        "extras has no place: add it to LAYERS (or OUTSIDE) in tests/referee.py",
    ]


def test_a_relative_import_is_seen():
    assert broken(referee.imports_point_down, jaxlm__step="from . import state") == [
        "jaxlm.step:1 imports .: write the absolute name"
    ]


def test_a_lazy_cycle_is_seen():
    found = broken(
        referee.no_cycles,
        data_tools__a="from data_tools import b",
        data_tools__b="from data_tools.c import x",
        data_tools__c="def f():\n    import data_tools.a",
    )
    assert found == [
        "a cycle of imports: data_tools.a -> data_tools.b -> data_tools.c -> data_tools.a"
    ]


@pytest.mark.parametrize(
    ("importer", "statement", "message"),
    [
        ("jaxlm.config", "import jax", "no JAX here"),
        ("data_tools.pack", "def f():\n    from orbax import checkpoint", "no JAX here"),
        ("data_tools.pack", "import grain", "no JAX here"),
        ("jaxlm.data.loader", "import grain.python", "only jaxlm.data.source may import Grain"),
        ("launch.local", "import numpy", "the standard library only"),
        ("jaxlm.data.manifest", "import numpy", "the standard library only"),
        ("jaxlm.data.source", "import grain", None),
        ("data_tools.pack", "import numpy", None),
        ("launch.local", "import signal", None),
    ],
)
def test_third_parties(importer, statement, message):
    found = list(referee.third_parties_stay_in_their_rooms([Module(importer, statement)]))
    assert len(found) == (message is not None)
    assert message is None or message in found[0]


def test_a_heavy_import_before_parsing_is_seen_through_others():
    assert broken(
        referee.command_line_is_light,
        jaxlm__cli="import argparse\nfrom jaxlm import config\ndef run():\n    import jax",
        jaxlm__config="import jaxlm.data.tokenizer",
        jaxlm__data__tokenizer="import sentencepiece",
        jaxlm__train="import jax",
    ) == ["jaxlm.data.tokenizer:1 imports sentencepiece before jaxlm.cli has parsed: do it later"]


def test_length_is_seen():
    assert broken(referee.files_are_short, jaxlm__x="\n" * 501) == [
        "jaxlm.x: 501 lines, at most 500: find the second noun in it"
    ]
    body = "    pass\n"
    assert broken(referee.functions_are_short, jaxlm__x="def f():\n" + body * 59) == []
    assert broken(referee.functions_are_short, jaxlm__x="def f():\n" + body * 60) == [
        "jaxlm.x:1 f: 61 lines, at most 60"
    ]


def test_catch_alls_and_guesses_are_seen():
    assert broken(referee.no_keyword_catch_alls, jaxlm__x="def f(a, **options): ...") == [
        "jaxlm.x:1 f takes **options: name them all"
    ]
    source = "config.get('a')\nself.cfg.get('b', 1)\ncounts.get('c')"
    assert broken(referee.configs_are_not_guessed, jaxlm__x=source) == [
        "jaxlm.x:1 config.get(...): every field has a default",
        "jaxlm.x:2 cfg.get(...): every field has a default",
    ]
