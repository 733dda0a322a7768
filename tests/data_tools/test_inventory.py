"""Which sources are there: what an inventory takes out of a recipe."""

import json
from dataclasses import replace

import pytest

from data_tools.document import DataError
from data_tools.inventory import available, check_names, check_read
from data_tools.privacy.config import PrivacyConfig
from data_tools.recipe import Recipe, RuleConfig
from jaxlm.schema import ConfigError, parse, to_dict
from tests.data_tools import small


def test_a_source_that_the_inventory_declares_missing_leaves_with_its_rules(tmp_path):
    (tmp_path / "there.json").write_text(json.dumps({"missing": {"py": "no disk"}}))
    base = small.recipe(rules=(RuleConfig("min_length", {}, ("code",)), RuleConfig("mojibake")))
    asked = replace(base, inventory="there.json")
    recipe, missing = available(asked, tmp_path)
    assert missing == {"py": "no disk"}
    assert [s.name for s in recipe.sources] == ["zh", "en"]
    assert [r.name for r in recipe.rules] == ["mojibake"]


def test_an_inventory_that_is_not_there_says_how_to_make_it(tmp_path):
    with pytest.raises(DataError, match="no such file; gather the sample first: python -m data_to"):
        available(replace(small.recipe(), inventory="none.json"), tmp_path)


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        (b'{"missing": {', "is no JSON (Expecting"),
        (b"\xff", "is no JSON ('utf-8' codec"),
        (b"{}", "has no object 'missing'"),
        (b"[]", "has no object 'missing'"),
        (b'{"missing": ["py"]}', "has missing=['py'], which is no object of source -> reason"),
        (b'{"missing": {"py": 1}}', "has missing={'py': 1}, which is no object of source -> "),
    ],
)
def test_an_inventory_that_is_broken_says_how_to_mend_it(tmp_path, data, fault):
    (tmp_path / "there.json").write_bytes(data)
    with pytest.raises(DataError) as error:
        available(replace(small.recipe(), inventory="there.json"), tmp_path)
    message = str(error.value)
    assert message.startswith(f"{tmp_path / 'there.json'}: {fault}")
    assert "gather the sample again (python -m data_tools sample), or set config.inv" in message


@pytest.mark.parametrize(
    ("field", "value", "known"),
    [
        ("near.survivor.sources", ["zh", "en2"], "zh, en, py"),
        ("near.shingles.types", ["wbe"], "book, code, web"),
        ("near.shingles.code_types", ["code", "prog"], "book, code, web"),
        ("boilerplate.types", ["web", "forum"], "book, code, web"),
        ("privacy.types", {"novel": {"person": "keep"}}, "book, code, web"),
    ],
)
def test_a_name_that_no_source_has_is_an_error(field, value, known):
    fields = to_dict(small.recipe())
    *sections, last = field.split(".")
    inner = fields
    for section in sections:
        inner = inner[section]
    inner[last] = value
    wrong = list(value)[-1]
    with pytest.raises(ConfigError) as error:
        check_names(parse(Recipe, fields))
    assert str(error.value) == f"config.{field}: {wrong!r} is of no source; use one of {known}"


def test_defaults_may_name_types_that_are_not_there():
    recipe = small.recipe()
    check_names(replace(recipe, sources=recipe.sources[:1], rules=()))


def test_a_build_does_not_start_with_a_wrong_name(tmp_path):
    base = small.recipe()
    near = replace(base.near, survivor=replace(base.near.survivor, sources=("zz",)))
    with pytest.raises(ConfigError, match="'zz' is of no source; use one of zh, en, py"):
        small.run(replace(base, near=near), tmp_path)


def test_a_bad_record_is_quoted_without_private_data():
    where = {"path": "a.jsonl", "place": "line 1", "reason": "no field 'text'"}
    bad = {"no field 'text'": 1}
    sample = where | {"detail": "fields: 电话13812345678, ann@example.com"}
    report = {"documents": 0, "bad": bad, "bad_samples": [sample]}
    (source, *_) = small.recipe().sources
    with pytest.raises(DataError) as error:
        check_read(source, [report], PrivacyConfig())
    assert "a.jsonl line 1: no field 'text' fields: 电话" in str(error.value)
    assert "13812345678" not in str(error.value) and "ann@" not in str(error.value)
    with pytest.raises(DataError, match=r"fields: 电话13812345678, (?!ann@)"):
        check_read(source, [report], PrivacyConfig(mobile="keep"))
