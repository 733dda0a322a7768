"""The privacy section of a recipe: policies by type, and errors that name them."""

import pytest

from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.span import ENTITIES
from jaxlm.schema import ConfigError, docs, parse, schema


def test_every_entity_has_a_policy_with_a_docstring():
    assert list(PrivacyConfig().policies()) == list(ENTITIES)
    assert set(ENTITIES) <= set(docs(PrivacyConfig))


def test_a_type_has_its_own_policies_and_else_the_common_ones():
    config = PrivacyConfig(mobile="drop", types={"book": {"mobile": "keep"}})
    assert config.of("web").mobile == "drop"
    assert config.of("book").mobile == "keep" and config.of("book").email == "mask"
    assert config.of("book").types == config.of("web").types == {}
    assert config.of("code").policies() == config.of("web").policies()  # its defaults were replaced


def test_code_has_its_own_defaults():
    config = PrivacyConfig().of("code")
    assert (config.bank_card, config.mobile, config.email) == ("keep", "keep", "mask")
    assert config.of("code") == config


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mobile": "hash"}, "mobile='hash' needs a key; name its file in key_file"),
        ({"types": {"web": {"qq": "hash"}}}, r"config\.privacy\.types\['web'\]: qq='hash' needs"),
        ({"mobile": "delete"}, "mobile='delete': must be one of 'keep', 'tag', 'mask', 'hash'"),
        ({"icd10": "mask"}, "icd10='mask': must be one of 'keep', 'tag', 'generalise'"),
        ({"types": {"code": {"phone": "keep"}}}, r"types\['code'\].phone: is no type of private"),
        ({"types": {"code": {"mobile": "no"}}}, r"types\['code'\].mobile='no': must be one of"),
        ({"types": {"code": {"ner": "jiagu"}}}, r"types\['code'\].ner: is no type of private"),
        ({"types": {"web": 1}}, r"config\.privacy\.types\['web'\]=1: must be a mapping of private"),
        ({"ner": "spacy"}, "ner='spacy' must be one of none, jiagu, bert_crf"),
        ({"ner": "bert_crf"}, "ner_path='' with ner='bert_crf': give the directory"),
        ({"ner_path": "/x"}, "ner_path='/x' with ner='none'"),
        ({"key_file": "key"}, "key_file='key' must be an absolute path"),
    ],
)
def test_what_cannot_be_is_an_error(values, message):
    with pytest.raises(ConfigError, match=message):
        parse(PrivacyConfig, values, "config.privacy")


def test_a_recipe_can_edit_it():
    config = schema(PrivacyConfig)
    config.mobile = "drop"
    config.types = {"dialogue": {"person": "keep"}}
    parsed = parse(PrivacyConfig, config)
    assert parsed.of("dialogue").person == "keep" and parsed.of("web").mobile == "drop"
