"""Proportions in a recipe: what is refused, and what is left of them when a type is not there."""

import pytest

from data_tools import mixture
from data_tools.mixture import GENERAL_CHINESE, MixtureConfig, MixtureStageConfig
from jaxlm.data import manifest
from jaxlm.schema import ConfigError, parse

TYPES = ("web", "book", "encyclopedia", "code", "dialogue")
EVEN = (("web", 1.0), ("book", 1.0))


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"stages": [{"weights": [("web", -1.0)]}]},
         "m.stages[0]: weights: 'web'=-1.0 must be 0, or from 0.0"),
        ({"stages": [{"weights": [("web", 1.0), ("book", 1e308)]}]},
         "m.stages[0]: weights: 'book'=1e+308 must be 0, or from 0.0"),
        ({"stages": [{"weights": [("web", 0.0)]}]},
         "m.stages[0]: weights=(('web', 0.0),): one must be above 0"),
        ({"stages": [{"weights": EVEN, "until": 0.9}]},
         "m: stages end until=[0.9]: shares of the run, increasing up to 1"),
        ({"stages": [{"weights": EVEN}, {"weights": EVEN}]}, "m: stages end until=[1.0, 1.0]: sha"),
        ({"stages": [{"weights": EVEN, "until": 0.0}, {"weights": EVEN}]}, "m: stages end until=["),
        ({"stages": [{"weights": EVEN, "until": 2.0}, {"weights": EVEN}]}, "m: stages end until=["),
        ({"stages": [{"weights": EVEN, "until": 1e-9}, {"weights": EVEN}]},
         "m: stages end until=[1e-09, 1.0]: each takes at least 0.0001 of the run"),
        ({"stages": [{"weights": EVEN, "until": 0.99995}, {"weights": EVEN}]},
         "m: stages end until=[0.99995, 1.0]: each takes at least 0.0001 of the run"),
        ({"tokens": -1.0}, "m: tokens=-1.0 must be at least 0"),
        ({"max_epochs": 0.5}, "m: max_epochs=0.5 must be at least 1"),
        ({"tolerance": 1.5}, "m: tolerance=1.5 must be between 0 and 1"),
    ],
)  # fmt: skip
def test_proportions_that_are_none(fields, message):
    with pytest.raises(ConfigError) as e:
        parse(MixtureConfig, fields, "m")
    assert str(e.value).startswith(message)


def test_a_stage_may_be_short():
    ends = [0.9999, 1.0]
    MixtureConfig(tuple(MixtureStageConfig(EVEN, end) for end in ends))


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ((("web", 1.0),), "'book': 0 weights; give it one, 0 to leave it out"),
        ((*EVEN, ("web", 2.0)), "'web': 2 weights; give it one, 0 to leave it out"),
        ((*EVEN, ("wbe", 1.0)), "'wbe': no source has that type"),
    ],
)
def test_each_type_has_one_weight_in_each_stage(weights, message):
    stages = (MixtureStageConfig(EVEN, 0.5), MixtureStageConfig(weights))
    with pytest.raises(ConfigError) as e:
        mixture.check(MixtureConfig(stages), ("web", "book"))
    assert str(e.value) == (
        f"config.mixture.stages[1].weights: {message}; types of the sources: book, web"
    )


def test_the_usual_proportions_are_whole():
    config = MixtureConfig((MixtureStageConfig(GENERAL_CHINESE),))
    mixture.check(config, TYPES)
    assert sum(weight for _, weight in GENERAL_CHINESE) == 100


def test_a_type_that_is_not_to_be_had_leaves_the_others_their_proportions():
    late = (("web", 1.0), ("book", 0.0), ("code", 2.0))
    config = MixtureConfig(
        (MixtureStageConfig((*EVEN, ("code", 3.0)), 0.5), MixtureStageConfig(late))
    )
    left = mixture.without(config, {"web"})
    assert [s.weights for s in left.stages] == [
        (("book", 1.0), ("code", 3.0)), (("book", 0.0), ("code", 2.0)),
    ]  # fmt: skip
    assert mixture.without(config, set()) == config
    with pytest.raises(ConfigError) as e:
        mixture.without(config, {"web", "code"})
    assert str(e.value) == (
        "config.mixture.stages[1] takes only types that are not to be had: code, web; get some "
        "text of them, or weigh others too"
    )


def test_the_manifest_says_the_same():
    config = MixtureConfig((MixtureStageConfig(EVEN),), max_epochs=2.0, tolerance=0.1)
    assert mixture.in_manifest(config, {"a": 0.5}) == manifest.Mixture(
        (manifest.MixtureStage(1.0, {"web": 1.0, "book": 1.0}),), 2.0, 0.1, {"a": 0.5}
    )


def test_proportions_are_those_of_the_whole_run():
    stages = (
        MixtureStageConfig((("web", 40.0), ("code", 40.0)), 0.5),
        MixtureStageConfig((("web", 1.0), ("code", 3.0)), 1.0),
    )
    assert mixture.proportions(stages) == {"web": 0.375, "code": 0.625}
    assert mixture.proportions(()) == {}
