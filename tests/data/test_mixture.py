"""The mixture of a run over a corpus: whose proportions count, and what is refused."""

import re
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from bench.small_corpus import make_corpus
from jaxlm import config
from jaxlm.config import Config
from jaxlm.data import manifest as manifests
from jaxlm.data import mixture
from jaxlm.data.corpus import Corpus, open_corpus
from jaxlm.data.manifest import Manifest, ManifestError, Mixture, MixtureStage
from jaxlm.data.mixture_plan import count
from jaxlm.data.order import OrderError
from jaxlm.schema import ConfigError

SOURCES = {"web.q0": (100, 50), "web.q1": (200,), "code": (60,)}
TYPES = {"web.q0": "web", "web.q1": "web"}
STAGES = (
    MixtureStage(0.9, {"web": 80.0, "code": 20.0}),
    MixtureStage(1.0, {"web": 50.0, "code": 50.0}),
)
MIXTURE = Mixture(STAGES, 4.0, 0.01, {"web.q0": 0.5, "web.q1": 1.0, "code": 1.0})


@pytest.fixture(scope="module")
def path(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("mixture") / "corpus"
    return make_corpus(
        root, SOURCES, heldout={"code": (2,)}, types=TYPES, mixture=MIXTURE, tokenizer=True
    )


@pytest.fixture(scope="module")
def manifest(path) -> Manifest:
    return replace(manifests.load(path), recipe={"mixture": {"tokens": 0.0}})


def run(path: Path, *overrides: str) -> Config:
    """A run of 100 steps of 8 rows, unless they say otherwise."""
    base = (
        "model.vocab_size=320",
        f"data.manifest={path}",
        "data.seq_len=32",
        "data.block_rows=10",
    )
    return config.load(None, (*base, *overrides))


def shares(corpus: Corpus) -> dict[str, float]:
    """Type -> its share of the run's tokens, as planned."""
    assert corpus.plan is not None
    return {t.name: t.planned for t in corpus.plan.types}


# ---- what a run takes ----------------------------------------------------------------------------


def test_a_run_takes_the_proportions_that_its_corpus_was_made_for(path):
    corpus = open_corpus(run(path))
    assert shares(corpus) == pytest.approx({"web": 0.77, "code": 0.23}, abs=1e-3)
    assert corpus.plan is not None and [s.end for s in corpus.plan.stages] == [720, 800]
    # what it plans is what it reads
    [where] = [corpus.train.order.locate(np.arange(800))]
    counts = np.bincount(where.source, minlength=3)
    assert {s.supply.source: s.rows for s in corpus.plan.sources} == dict(
        zip(corpus.train.order.names, counts.tolist(), strict=True)
    )


def test_a_config_has_proportions_of_its_own(path):
    stages = "data.mixture=[{'weights': [('web', 1), ('code', 0)], 'until': '%s'}, "
    stages += "{'weights': [('web', 1), ('code', 1)]}]"
    for until in ("75 %", "75 steps", "600 rows", "19200 tokens"):
        corpus = open_corpus(run(path, stages % until))
        assert shares(corpus) == pytest.approx({"web": 0.875, "code": 0.125}, abs=1e-3)
        assert corpus.train.order.draws(600)[0] == 0
    longer = open_corpus(run(path, stages % "75 %", "train.end=120 steps"))
    assert longer.train.order.draws(720)[0] == 0 < longer.train.order.draws(800)[0]


def test_a_corpus_made_for_none_is_taken_by_size(tmp_path):
    path = make_corpus(tmp_path / "corpus", SOURCES, types=TYPES, tokenizer=True)
    corpus = open_corpus(run(path, "train.end=41 rows", "train.batch_size=41"))
    assert corpus.train.order.draws(410) == pytest.approx([60, 150, 200], abs=3)
    assert corpus.plan is not None and len(corpus.plan.stages) == 1


def test_weights_of_sources_are_the_corpuss(manifest):
    found = mixture.of_run(manifest, run(Path("x")).data).plan(400)
    web = {s.supply.source: s.epochs for s in found.sources if s.supply.type == "web"}
    assert web["web.q1"] == pytest.approx(2 * web["web.q0"], rel=0.05)


# ---- refusals ------------------------------------------------------------------------------------


def test_a_type_that_runs_short_is_refused_with_the_numbers_and_the_ways_out(path):
    cfg = run(path, "train.end=150 steps")
    with pytest.raises(ConfigError) as e:
        open_corpus(cfg)
    assert str(e.value) == (
        "the mixture of 1,200 rows (38,400 tokens) is code 20.0% instead of 23.0%, web 80.0% "
        "instead of 77.0%; it takes 8,819 tokens of code, and 1,915, repeated 4 times at most, "
        "give 7,660: 290 more are needed; train on 1,041 rows (33,312 tokens) at most, add text of "
        "code, raise max_epochs to about 4.7, ask for other proportions, or accept it: a tolerance "
        "of 0.047 (recipe: config.mixture.tokens, .max_epochs, .tolerance; run: config.train.end, "
        "config.data.max_epochs, .mixture_tolerance)"
    )
    # each way out is one
    open_corpus(run(path, "train.end=1041 rows", "train.batch_size=1"))
    open_corpus(run(path, "train.end=150 steps", "data.max_epochs=4.7"))
    accepted = open_corpus(run(path, "train.end=150 steps", "data.mixture_tolerance=0.047"))
    assert accepted.plan is not None
    [code] = [t for t in accepted.plan.types if t.name == "code"]
    assert code.epochs == pytest.approx(4, abs=0.05)
    even = "data.mixture=[{'weights': [('web', 82), ('code', 18)]}]"
    open_corpus(run(path, "train.end=150 steps", even))


def test_a_run_that_no_mixture_fills_is_refused(path):
    with pytest.raises(OrderError) as e:
        open_corpus(run(path, "train.end=1000 steps"))
    assert str(e.value).startswith(
        "the corpus is too small for 8,000 rows (256,000 tokens): stage 0 of the mixture takes "
        "code, web alone, which is 410 rows (13,120 tokens), each to be used max_epochs=4 times at "
        "most; train on 1,04"
    )


def test_a_run_names_types_and_no_sources(path):
    with pytest.raises(OrderError) as e:
        open_corpus(run(path, "data.mixture=[{'weights': [('web.q1', 1), ('code', 1)]}]"))
    assert str(e.value) == (
        "stage 0 of the mixture names 'web.q1' and gives no weight to 'web'; the types of the "
        "corpus are code, web: give each a weight, 0 to leave it out"
    )


def test_rounding_to_blocks_that_moves_the_proportions_is_refused(path):
    with pytest.raises(OrderError, match="stage 1 of the mixture has 80 of 800 rows and is lost"):
        open_corpus(run(path, "data.block_rows=450"))
    with pytest.raises(ConfigError) as e:
        open_corpus(run(path, "data.block_rows=380"))
    assert str(e.value) == (
        "the mixture of 800 rows (25,600 tokens) is code 21.5% instead of 23.0%, web 78.5% instead "
        "of 77.0%; it is the rounding to blocks of block_rows=380 rows: lower it, or accept it: a "
        "tolerance of 0.015 (recipe: config.mixture.tokens, .max_epochs, .tolerance; run: "
        "config.train.end, config.data.max_epochs, .mixture_tolerance)"
    )


def test_a_row_that_is_not_whole_chunks(manifest):
    with pytest.raises(ManifestError, match="seq_len=48 is not a multiple of the corpus's chunk_t"):
        mixture.of_run(manifest, run(Path("x"), "data.seq_len=48").data)


# ---- of a build ----------------------------------------------------------------------------------


def test_a_corpus_is_planned_for_its_budget_or_for_the_longest_run_it_gives(manifest):
    budgeted = replace(manifest, recipe={"mixture": {"tokens": 16_000.0}})
    assert mixture.plan_manifest(budgeted, None).end == 500
    assert mixture.plan_manifest(budgeted, 32_000.0).end == 1_000
    longest = mixture.plan_manifest(manifest, None)
    assert longest.end == 1_041 and longest.off <= 0.01
    assert mixture.refusal(longest) is None
    for tokens in (-5.0, float("nan"), float("inf"), -float("inf"), 1e300):
        with pytest.raises(OrderError, match=f"a run of {re.escape(f'{tokens:g}')} tokens: give"):
            mixture.plan_manifest(manifest, tokens)


def test_the_table(manifest):
    plan = mixture.plan_manifest(manifest, 41_600.0)
    assert "\n".join(mixture.lines(plan)) == (
        "mixture of 1,300 rows (41,600 tokens), no source more than 4 times:\n"
        "                             asked    real   tokens  epochs\n"
        "  code                       23.0%   18.2%    7,564    3.95  runs short\n"
        "  web                        77.0%   81.8%   33,977    3.04\n"
        "    web.q0                   21.0%   22.2%    9,229    1.93\n"
        "    web.q1                   56.0%   59.6%   24,749    3.87\n"
        "  rows 0 to 1,170: code 15.6% (asked 20.0%), web 84.4% (asked 80.0%)\n"
        "  rows 1,170 to 1,300: code 41.5% (asked 50.0%), web 58.5% (asked 50.0%)"
    )


def test_what_a_run_that_ends_within_a_block_really_draws_is_told(path):
    few = ("data.mixture=[{'weights': [('web', 50), ('code', 50)]}]", "train.batch_size=20")

    def told(*overrides: str) -> list[str]:
        plan = open_corpus(run(path, *few, *overrides)).plan
        assert plan is not None
        return [line for line in mixture.lines(plan) if "WARNING" in line]

    assert told("data.block_rows=300", "train.end=20 rows") == [
        "  WARNING: really code 35.0% instead of 50.0%, web 65.0% instead of 50.0%, as the run "
        "ends within a block: train on a multiple of block_rows=300 rows, or lower block_rows"
    ]
    assert not told("data.block_rows=300", "train.end=300 rows")
    assert not told("data.block_rows=10", "train.end=20 rows")
    assert not told("data.block_rows=300", "train.end=20 rows", "data.mixture_tolerance=0.2")


def test_no_tolerance_refuses_a_difference_and_no_rounding_of_numbers(path):
    def planned(web: float, end: str) -> Corpus:
        weights = f"[('web', {web}), ('code', 1)]"
        stages = (
            f"data.mixture=[{{'weights': {weights}, 'until': '50 %'}}, {{'weights': {weights}}}]"
        )
        return open_corpus(run(path, stages, f"train.end={end}", "data.mixture_tolerance=0"))

    offs = [plan.off for w in range(1, 21) if (plan := planned(w / 5, "10 steps").plan)]
    assert len(offs) == 20 and 0 < max(offs) < 1e-12
    with pytest.raises(
        ConfigError, match=r"is code 19\.98% instead of 20\.00%, web 80\.02% instead"
    ):
        planned(4, "150 steps")


def test_stages_of_a_manifest_end_where_they_say(manifest):
    stages = mixture.of_run(manifest, run(Path("x")).data).stages
    assert [s.until for s in stages] == [Fraction(9, 10), None]


def test_numbers_of_tokens_for_people():
    numbers = (7, 12_345, 999_400, 999_600, 3.456e6, 9.999e9, 20e9, 1.234e12)
    assert [count(n) for n in numbers] == [
        "7", "12,345", "999,400", "1M", "3.46M", "10B", "20B", "1.23T",
    ]  # fmt: skip
