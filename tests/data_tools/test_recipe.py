"""A wrong recipe names the dotted path, the value and what is allowed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.recipe import Recipe, RuleConfig, TokenizerConfig
from data_tools.source import SourceConfig
from jaxlm.schema import ConfigError, load, parse, schema, to_dict
from tests.data_tools import small

SOURCE = {"name": "a", "type": "web", "format": "jsonl", "paths": ["*.jsonl"]}
DEMO = Path(__file__).parents[2] / "configs/data/demo.py"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"sources": []}, "config.sources=(): a recipe needs at least one source"),
        ({"sources": [SOURCE | {"name": "a-b"}]}, "config.sources[0].name='a-b': use letters"),
        ({"sources": [SOURCE, SOURCE]}, "config.sources[0].name='a': another source has this"),
        ({"sources": [SOURCE | {"type": ""}]}, "config.sources[0].type=''"),
        (
            {"sources": [SOURCE | {"format": "csv"}]},
            "config.sources[0].format='csv': must be one of txt, jsonl, ",
        ),
        ({"sources": [SOURCE | {"paths": []}]}, "config.sources[0].paths=(): give at least one"),
        ({"sources": [SOURCE | {"paths": ["/x/*"]}]}, "'/x/*' is absolute; put the directory in"),
        (
            {"sources": [SOURCE | {"encoding": "utf-16"}]},
            "config.sources[0].encoding='utf-16': must be one of 'utf-8', ",
        ),
        (
            {"rules": [{"name": "min_lenght"}]},
            "config.rules[0].name='min_lenght': must be one of unicode_repair, ",
        ),
        (
            {"rules": [{"name": "min_length", "params": {"charcters": 9}}]},
            "config.rules[0].params.charcters: unknown field; did you mean characters?",
        ),
        (
            {"rules": [{"name": "min_length", "params": {"characters": "9"}}]},
            "config.rules[0].params.characters='9': must be int",
        ),
        (
            {"rules": [{"name": "symbol_ratio", "params": {"most": 2}}]},
            "config.rules[0].params: most=2.0 must be between 0 and 1",
        ),
        (
            {"rules": [{"name": "min_length", "types": ["code"]}]},
            "config.rules[0].types: no source has the type 'code'; types here: web",
        ),
        ({"heldout": {"fraction": 1.0}}, "config.heldout: fraction=1.0 must be at least 0"),
        ({"pack": {"chunk_tokens": 0}}, "config.pack: chunk_tokens=0 must be at least 2"),
        (
            {"rules": [{"name": "unicode_repair", "weight": 1.0}]},
            "config.rules[0].weight=1.0: unicode_repair changes the text, and only a rule that",
        ),
        ({"rules": [{"name": "min_length", "weight": -1.0}]}, "weight=-1.0 must be 0, or from 0.0"),
        (
            {"sources": [SOURCE | {"weight": 1e308}]},
            "config.sources[0]: weight=1e+308 must be 0, or from 0.0",
        ),
        (
            {"pack": {"buckets": [{"weights": [1.0, 1e7]}]}},
            "config.pack.buckets[0]: weights[1]=10000000.0 must be 0, or from 0.0",
        ),
        ({"restored": ["12"]}, "config.restored: '12' is no id; write its 32 hex digits"),
        ({"exact": {"buckets": 0}}, "config.exact: buckets=0 must be at least 1"),
        ({"near": {"same": {"threshold": 0}}}, "config.near.same: threshold=0.0 must be above 0"),
        ({"boilerplate": {"documents": 1}}, "config.boilerplate: documents=1 must be at least 2"),
        ({"privacy": {"mobile": "hash"}}, "config.privacy: mobile='hash' needs a key"),
        ({"tokenizer": {"vocab_size": -1}}, "config.tokenizer: vocab_size=-1 must be at least 1"),
        ({"tokenizer": {"character_coverage": 0.97}}, "character_coverage=0.97 must be from 0.98"),
        ({"tokenizer": {"character_coverage": 1.1}}, "character_coverage=1.1 must be from 0.98"),
        (
            {"tokenizer": {"bos": "<s>"}},
            "bos='<s>', pad='' choose among the pieces of an existing tok",
        ),
        ({"tokenizer": {"control_symbols": [""]}}, "control_symbols: '' is empty; each needs a"),
        ({"tokenizer": {"control_symbols": ["<a>", "<a>"]}}, "'<a>' is named twice; each needs"),
        ({"tokenizer": {"control_symbols": ["<pad>"]}}, "'<pad>' is reserved; each needs a name"),
        ({"tokenizer": {"control_symbols": ["<reserved_99>"]}}, "'<reserved_99>' is reserved"),
        ({"tokenizer": {"control_symbols": ["<0x0A>"]}}, "'<0x0A>' is reserved"),
        ({"tokenizer": {"control_symbols": ["the"]}}, "'the' might be learned from text, too;"),
        ({"tokenizer": {"control_symbols": ["中"]}}, "with letters, written <name> or [name]"),
        ({"tokenizer": {"control_symbols": ["<->"]}}, "'<->' might be learned from text, too"),
        (
            {"rules": [{"name": "quality"}, {"name": "min_length", "weight": 1.0}]},
            "config.rules[0].name='quality': no rule before it is scored for the type 'web'",
        ),
        ({"worker_memory_bytes": -1}, "config.worker_memory_bytes=-1: must be at least 0"),
        (
            {"worker_memory_bytes": (512 << 20) - 1},
            "config.worker_memory_bytes=536870911: must be at least 536870912, or 0 for no limit",
        ),
        ({"privacy": {"types": {"web": 1}}}, "config.privacy.types['web']=1: must be a mapping of"),
        ({"partition_bytes": 0}, "config.partition_bytes=0: must be at least 1"),
        ({"worker": 2}, "config.worker: unknown field; did you mean workers?"),
    ],
)
def test_refused(fields, message):
    with pytest.raises(ConfigError) as e:
        parse(Recipe, {"sources": [SOURCE]} | fields)
    assert message in str(e.value)


def test_quality_needs_a_scored_rule_of_each_of_its_types():
    scored = RuleConfig("min_length", {}, ("web",), 1.0)
    small.recipe(rules=(scored, RuleConfig("quality", {}, ("web",))))
    small.recipe(rules=(RuleConfig("min_length", weight=1.0), RuleConfig("quality")))
    for types in ((), ("web", "book")):
        with pytest.raises(ConfigError, match=r"rules\[1\]\.name='quality': .* the type 'book'"):
            small.recipe(rules=(scored, RuleConfig("quality", {}, types)))


def test_names_like_the_reserved_ones_are_free():
    symbols = ("<spare>", "<unknown>", "[pad]", "<0x0>", "<系统>")
    assert TokenizerConfig(control_symbols=symbols).control_symbols == symbols


def test_a_recipe_survives_json(tmp_path):
    recipe = small.recipe(rules=[RuleConfig("min_length", {"characters": 7}, ("web",))])
    path = tmp_path / "recipe.json"
    path.write_text(json.dumps(to_dict(recipe)))
    assert to_dict(load(Recipe, path)) == to_dict(recipe)


def test_rules_for_a_type_keep_their_order():
    recipe = small.recipe(
        rules=[
            RuleConfig("min_length", {"characters": 7}, ("web",)),
            RuleConfig("unicode_repair"),
            RuleConfig("min_length", {}, ("book", "web")),
        ]
    )
    assert [r.name for r in recipe.rules_for("code")] == ["unicode_repair"]
    web = recipe.rules_for("web")
    assert [r.name for r in web] == ["min_length", "unicode_repair", "min_length"]
    assert [to_dict(web[i].rule) for i in (0, 2)] == [{"characters": 7}, {"characters": 100}]


def test_the_demo_and_its_overrides():
    recipe = load(Recipe, DEMO, ["pack.chunk_tokens=64", "workers=1", "heldout.salt=x"])
    assert (recipe.pack.chunk_tokens, recipe.workers, recipe.heldout.salt) == (64, 1, "x")
    assert [s.name for s in recipe.sources] == ["code", "encyclopedia", "web", "book", "dialogue"]
    with pytest.raises(ConfigError, match=r"config\.pack\.chunk_token: unknown field; did you"):
        load(Recipe, DEMO, ["pack.chunk_token=64"])


def test_workers_default_to_the_cores():
    assert replace(small.recipe(), workers=0).worker_count() >= 1


def test_defaults_are_a_schema():
    config = schema(Recipe)
    config.sources = (SourceConfig("a", "web", "txt", ".", ("*.txt",)),)
    assert parse(Recipe, config).pack.chunk_tokens == 2048
