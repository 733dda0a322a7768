"""Sources that are there: those that an inventory has not declared missing, and give documents."""

import json
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.dedup.config import ShingleConfig
from data_tools.document import DataError
from data_tools.mixture import without
from data_tools.pack.config import BucketConfig, ExcludeConfig
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.scrub import Scrubber
from data_tools.recipe import Recipe, RuleConfig
from data_tools.source import SourceConfig
from data_tools.stage import Report
from jaxlm.schema import ConfigError


def check_names(recipe: Recipe) -> None:
    """`ConfigError` for a source or a type that the recipe names and has not: by a slip of the pen
    a step would pass over all text in silence. What is a default may be named in vain."""
    near, shingles = recipe.near, recipe.near.shingles
    sources, types = [s.name for s in recipe.sources], sorted({s.type for s in recipe.sources})
    default = ShingleConfig()
    for path, named, usual, known in (
        ("near.survivor.sources", near.survivor.sources, (), sources),
        ("near.shingles.types", shingles.types, default.types, types),
        ("near.shingles.code_types", shingles.code_types, default.code_types, types),
        ("boilerplate.types", recipe.boilerplate.types, BoilerplateConfig().types, types),
        ("privacy.types", recipe.privacy.types, PrivacyConfig().types, types),
    ):
        for name in named:
            if name not in known and name not in usual:
                raise ConfigError(
                    f"config.{path}: {name!r} is of no source; use one of {', '.join(known)}"
                )


def available(recipe: Recipe, workdir: Path) -> tuple[Recipe, dict[str, str]]:
    """The recipe without the sources that its inventory declares missing; source -> why."""
    if not recipe.inventory:
        return recipe, {}
    path = workdir / recipe.inventory
    if not path.is_file():
        raise DataError(
            f"{path}: no such file; gather the sample first: "
            f"python -m data_tools sample --workdir={workdir}"
        )
    missing = _missing(path)
    for name in missing:
        print(f"source {name} is left out: {missing[name]}", flush=True)
    present = tuple(s for s in recipe.sources if s.name not in missing)
    kinds = {s.type for s in present}
    pack, heldout = recipe.pack, recipe.heldout
    return replace(
        recipe,
        sources=present,
        rules=_of_types(recipe.rules, kinds),
        mixture=without(recipe.mixture, {s.type for s in recipe.sources} - kinds),
        heldout=replace(heldout, types=tuple(t for t in heldout.types if t[0] in kinds)),
        pack=replace(
            pack, buckets=_of_types(pack.buckets, kinds), exclude=_of_types(pack.exclude, kinds)
        ),
    ), missing


def _of_types[E: (RuleConfig, BucketConfig, ExcludeConfig)](
    entries: Sequence[E], kinds: Collection[str]
) -> tuple[E, ...]:
    """What applies to one of these types at least."""
    return tuple(
        replace(entry, types=tuple(t for t in entry.types if t in kinds))
        for entry in entries
        if not entry.types or not set(kinds).isdisjoint(entry.types)
    )


def _missing(path: Path) -> dict[str, str]:
    """Source -> why it is missing, by an inventory."""
    try:
        missing = json.loads(path.read_text(encoding="utf-8"))["missing"]
    except (ValueError, RecursionError) as e:
        fault = f"is no JSON ({e})"
    except (TypeError, KeyError):
        fault = "has no object 'missing'"
    else:
        if isinstance(missing, dict) and all(isinstance(why, str) for why in missing.values()):
            return missing
        fault = f"has missing={missing!r}, which is no object of source -> reason"
    raise DataError(
        f"{path}: {fault}; gather the sample again (python -m data_tools sample), or set "
        "config.inventory='' when no source is missing"
    )


def check_read(source: SourceConfig, reports: Sequence[Report], privacy: PrivacyConfig) -> None:
    """`DataError` when what its partitions of the read stage said is that there is no document.

    A bad record is quoted as `privacy`, `of` the source's type, lets people see it.
    """
    if sum(r["documents"] for r in reports):
        return
    where = f"source {source.name}: no document in the files of {', '.join(source.paths)}"
    where += f" below {source.root}"
    bad = sum((Counter(r["bad"]) for r in reports), Counter())
    if not bad:
        raise DataError(
            f"{where}: they have no record that the format {source.format} takes for a document; "
            "correct format or paths, or take the source out of the recipe"
        )
    reasons = ", ".join(f"{reason} ({n})" for reason, n in bad.most_common(5))
    sample = next(s for r in reports for s in r["bad_samples"])
    detail = Scrubber(privacy, None).mask(sample["detail"])
    raise DataError(
        f"{where}: {reasons}; for example {sample['path']} {sample['place']}: "
        f"{sample['reason']} {detail}".rstrip()
    )


def check_kept(source: str, counts: Mapping[str, Any]) -> None:
    """`DataError` when nothing of a source is left; `counts` as of `report.summarize`."""
    if not counts["kept"]:
        rules = ", ".join(f"{rule} ({n})" for rule, n in counts["dropped"].items())
        raise DataError(
            f"source {source}: all {counts['documents']} documents were dropped: {rules}; "
            "loosen the rule, or take the source out of the recipe (each document is in dropped/)"
        )


def check_trained(source: str, counts: Mapping[str, Any]) -> None:
    """`DataError` when exclusions are why nothing of a source is in train; `counts` as above."""
    if counts["excluded"]:
        lost = {why: lost["documents"] for why, lost in counts["excluded"].items()}
        lost["held out"] = counts["kept"] - sum(lost.values())
        reasons = ", ".join(f"{why} ({n})" for why, n in lost.items())
        raise DataError(
            f"source {source}: config.pack.exclude leaves none of {counts['kept']} documents in "
            f"train: {reasons}; loosen the exclusion, or take the source out of the recipe (each "
            "document is in stages/shuffle/*/excluded.parquet)"
        )
