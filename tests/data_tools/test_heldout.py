"""The held-out choice depends on content, type, salt and fraction alone."""

import pytest

from data_tools.document import digest
from data_tools.heldout import HeldoutConfig, check
from jaxlm.schema import ConfigError, parse

HASHES = [digest(str(i)) for i in range(20_000)]


def held(config: HeldoutConfig, type: str = "web") -> set[bytes]:
    return {h for h in HASHES if config.holds(h, type)}


def test_the_share_is_met_and_grows_by_adding():
    assert len(held(HeldoutConfig(0.0))) == 0
    assert 550 < len(held(HeldoutConfig(0.03))) < 650
    assert held(HeldoutConfig(0.01)) < held(HeldoutConfig(0.03))


def test_another_salt_is_another_choice():
    both = held(HeldoutConfig(0.03)) & held(HeldoutConfig(0.03, salt="other"))
    assert len(both) < 60


def test_a_type_may_have_a_share_of_its_own():
    config = HeldoutConfig(0.01, types=(("dialogue", 0.1), ("code", 0.0)))
    assert held(config, "web") == held(HeldoutConfig(0.01))
    assert held(config, "dialogue") == held(HeldoutConfig(0.1)) > held(config, "web")
    assert held(config, "code") == set()
    assert not config.empty and not HeldoutConfig(0, types=(("a", 0.1),)).empty
    assert HeldoutConfig(0, types=(("a", 0.0),)).empty


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"fraction": 1.0}, r"fraction=1\.0 must be at least 0 and below 1"),
        ({"types": (("book", -0.1),)}, r"types: 'book', fraction=-0\.1 must be at least 0 and b"),
        ({"types": (("b", 0.1), ("b", 0.2))}, r"types: 'b' is named twice; name it once"),
        ({"types": (("b",),)}, r"types\[0\]"),
    ],
)
def test_values_are_checked(values, message):
    with pytest.raises(ConfigError, match=message):
        parse(HeldoutConfig, values)


def test_a_type_that_no_source_has():
    check(HeldoutConfig(types=(("book", 0.1),)), ["book", "web"])
    message = r"^config\.heldout\.types: no source has the type 'boook'; types here: book, web$"
    with pytest.raises(ConfigError, match=message):
        check(HeldoutConfig(types=(("boook", 0.1),)), ["book", "web"])
