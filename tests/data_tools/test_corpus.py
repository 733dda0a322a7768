"""What a build leaves beside its shards: it replaces what it wrote itself, and nothing else."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.document import DataError
from data_tools.mixture import MixtureConfig, MixtureStageConfig
from data_tools.pack.config import ExcludeConfig
from data_tools.recipe import Recipe, RuleConfig, TokenizerConfig
from data_tools.stage import Commit
from jaxlm.data import manifest
from jaxlm.schema import ConfigError
from tests.data import tokenizers
from tests.data_tools import small

EXISTING = TokenizerConfig(path="own", bos="<|endoftext|>", pad="<|im_start|>")


@pytest.fixture(scope="module")
def built(tmp_path_factory) -> Path:
    """Only to be read."""
    workdir = tmp_path_factory.mktemp("built")
    small.write_raw(workdir, files=1, texts=20)
    tokenizers.byte_level(workdir / "own")
    small.run(recipe(), workdir)
    return workdir


@pytest.fixture
def workdir(built, tmp_path) -> Path:
    return shutil.copytree(built, tmp_path, dirs_exist_ok=True)


def recipe(
    tokenizer: TokenizerConfig | None = None, mixture: MixtureConfig | None = None
) -> Recipe:
    base = small.recipe()
    return replace(
        base,
        tokenizer=tokenizer or base.tokenizer,
        mixture=mixture or base.mixture,
        partition_bytes=1 << 20,
    )


def files(workdir: Path) -> list[str]:
    """Of tokenizers."""
    found = [*workdir.glob("tokenizer*"), *workdir.glob("tokenizer/*")]
    return sorted(p.relative_to(workdir).as_posix() for p in found)


# ---- tokenizer.model and tokenizer/ --------------------------------------------------------------


def test_a_tokenizer_of_the_other_kind_takes_the_place_of_the_first(workdir):
    own = (workdir / "own/tokenizer.json").read_bytes()
    assert files(workdir) == ["tokenizer.model"]
    small.run(recipe(EXISTING), workdir)
    there = ["tokenizer", "tokenizer/tokenizer.json", "tokenizer/tokenizer_config.json"]
    assert files(workdir) == there
    small.run(recipe(), workdir)
    assert files(workdir) == ["tokenizer.model"]
    assert (workdir / "own/tokenizer.json").read_bytes() == own


@pytest.mark.parametrize("name", ["tokenizer.model", "tokenizer/tokenizer.json"])
@pytest.mark.parametrize("link", [False, True])
def test_a_tokenizer_that_no_build_wrote_is_not_touched(tmp_path, name, link):
    target = tmp_path / "elsewhere" / name if link else tmp_path / name
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text("mine")
    top = name.partition("/")[0]
    if link:
        (tmp_path / top).symlink_to(tmp_path / "elsewhere" / top)
    with pytest.raises(DataError) as e:
        small.run(recipe(), tmp_path)
    assert str(e.value).startswith(f"{tmp_path / top}: a build writes its tokenizer there, and no ")
    assert (tmp_path / name).read_text() == "mine" and not (tmp_path / "stages").exists()


def test_one_that_comes_beside_that_of_a_build_is_not_touched(workdir):
    (workdir / "tokenizer").mkdir()
    (workdir / "tokenizer/mine.txt").write_text("mine")
    with pytest.raises(DataError, match=r"tokenizer: a build writes .*; move it elsewhere"):
        small.run(recipe(EXISTING), workdir)
    assert files(workdir) == ["tokenizer", "tokenizer.model", "tokenizer/mine.txt"]


@pytest.mark.parametrize(
    "path", ["tokenizer", "tokenizer.model", "tokenizer/tokenizer.json", "own/../tokenizer", "link"]
)
def test_the_place_of_a_build_is_no_existing_tokenizer(workdir, path):
    (workdir / "link").symlink_to("tokenizer.model")
    with pytest.raises(ConfigError, match=r"config\.tokenizer\.path='.*': .* is where a build"):
        small.run(recipe(replace(EXISTING, path=path)), workdir)
    assert files(workdir) == ["tokenizer.model"]


def _no_manifest(workdir: Path) -> None:
    (workdir / "manifest.json").unlink()


def _old_manifest(workdir: Path) -> None:
    (workdir / "manifest.json").write_text('{"version": 1, "tokenizer": "tokenizer.model"}')


@pytest.mark.parametrize("harm", [_no_manifest, _old_manifest])
def test_what_a_build_left_is_its_own_without_its_manifest(workdir, harm: Callable[[Path], None]):
    harm(workdir)
    other = replace(recipe().tokenizer, vocab_size=380)
    small.run(recipe(other), workdir)
    made = manifest.load(workdir / "manifest.json")
    assert made.vocab_size == 380 and files(workdir) == ["tokenizer.model"]


def test_a_build_that_is_killed_while_it_packs_goes_on(workdir, monkeypatch):
    def stop(*_: object) -> Commit:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("data_tools.build.write_corpus", stop)
        with pytest.raises(KeyboardInterrupt):
            small.run(recipe(EXISTING), workdir)
    assert not (workdir / "manifest.json").exists() and files(workdir) == []
    small.run(recipe(EXISTING), workdir)
    assert "tokenizer/tokenizer.json" in files(workdir)


# ---- the plan ------------------------------------------------------------------------------------


def test_a_run_without_proportions_is_planned_too(workdir, capsys):
    small.run(recipe(mixture=MixtureConfig(tokens=3_000)), workdir)
    planned = json.loads((workdir / "report.json").read_text(encoding="utf-8"))["mixture"]
    assert 2_900 < planned["tokens"] <= 3_000 and not planned["proportions"]
    told = "mixture of 93 rows (2,976 tokens), no source more than 4 times:"
    assert told in capsys.readouterr().out


@pytest.mark.parametrize(
    ("stages", "tokens"),
    [
        ((), 1e9),
        ((), 1.0),
        ((MixtureStageConfig((("book", 98.0), ("web", 1.0), ("code", 1.0))),), 10_000),
    ],
)
def test_a_plan_that_is_refused_leaves_no_earlier_corpus(workdir, stages, tokens):
    before = manifest.load(workdir / "manifest.json")
    with pytest.raises(DataError, match="No manifest is written, and one of an earlier build is"):
        small.run(recipe(mixture=MixtureConfig(stages, tokens)), workdir)
    assert not (workdir / "manifest.json").exists()
    work = small.run(recipe(), workdir)
    assert manifest.load(workdir / "manifest.json") == before
    assert not any(small.ran(work).values())


def test_a_source_that_exclusions_leave_nothing_to_train_on_is_an_error(workdir):
    base = recipe()
    rules = (*base.rules, RuleConfig("min_length", {"characters": 10_000}, ("book",), 1.0))
    exclude = (ExcludeConfig(("book",), rules=("min_length",)),)
    changed = replace(base, rules=rules, pack=replace(base.pack, exclude=exclude))
    with pytest.raises(DataError) as e:
        small.run(changed, workdir)
    assert str(e.value).startswith(
        "source zh: config.pack.exclude leaves none of 20 documents in train: exclude: min_length "
        "(20), held out (0); loosen the exclusion, or"
    )
    assert not (workdir / "manifest.json").exists()
