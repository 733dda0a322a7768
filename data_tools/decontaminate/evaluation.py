"""Evaluation sets: the hashes of all their runs of units, and their texts to confirm a match.

texts.json    [place in the file, text] of each text that has a run
hashes.npy    uint64[G]  sorted
texts.npy     uint32[G]  which text has the run of that hash; a run counts once a text
"""

import itertools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from data_tools.decontaminate.config import DecontaminateConfig, EvaluationConfig
from data_tools.dedup.node import begins
from data_tools.dedup.shingles import batches
from data_tools.dedup.units import VERSION, grams, spell, units
from data_tools.document import DataError
from data_tools.stage import Input, Partition, Report, Stage
from jaxlm.data.manifest import sha256


@dataclass(frozen=True)
class SetConfig:
    """What the runs of one set depend on, besides its file."""

    format: str
    fields: tuple[str, ...]
    words: int
    characters: int


def set_inputs(config: DecontaminateConfig, workdir: Path) -> dict[str, tuple[Input, ...]]:
    """Name of a set -> its file; `DataError` when there is none."""
    inputs = {}
    for one in config.sets:
        path = workdir / one.path
        if not path.is_file():
            raise DataError(
                f"evaluation set {one.name}: no file {path}; correct its path, or take the set "
                "out of the recipe: without its text nothing can be kept apart from it"
            )
        inputs[one.name] = (Input(path, one.name, sha256(path)),)
    return inputs


def set_partition(one: EvaluationConfig, config: DecontaminateConfig, file: Input) -> Partition:
    """The task that reads a set."""
    slice = SetConfig(one.format, one.fields, config.words, config.characters)
    return Partition(one.name, slice, {"file": (file,)})


def runs_partition(partition: Partition[SetConfig], out: Path) -> Report:
    """Writes the three files; needs 16 bytes a run, and 32 while they are sorted.

    Raises `DataError` for a set without a run: nothing could be kept apart from it.
    """
    config = partition.config
    (file,) = partition.inputs["file"]
    found = list(_texts(file, config))
    hashes, owners = [np.empty(0, np.uint64)], [np.empty(0, np.uint32)]
    for batch in batches([len(text) for _, text in found]):
        here = units([text for _, text in found[batch]], code=False)
        hash_U, inside_U = grams(here, config.words, config.characters)
        owner_U = np.repeat(np.arange(batch.start, batch.stop), np.diff(here.bounds))
        hashes.append(hash_U[inside_U])
        owners.append(owner_U[inside_U].astype(np.uint32))
    hash_G, owner_G = np.concatenate(hashes), np.concatenate(owners)
    order = np.lexsort((owner_G, hash_G))
    hash_G, owner_G = hash_G[order], owner_G[order]
    first_G = begins(hash_G, owner_G)
    hash_G, owner_G = hash_G[first_G], owner_G[first_G]
    if not len(hash_G):
        raise DataError(
            f"evaluation set {partition.name}: none of its {len(found)} texts has a run of "
            f"words={config.words} or characters={config.characters}, so that it would protect "
            "nothing; lower words or characters, or take the set out of the recipe"
        )
    long, owner_G = np.unique(owner_G, return_inverse=True)
    np.save(out / "hashes.npy", hash_G)
    np.save(out / "texts.npy", owner_G.astype(np.uint32))
    texts = json.dumps([found[i] for i in long], ensure_ascii=False)
    (out / "texts.json").write_text(texts, encoding="utf-8")
    return {"texts": len(found), "too_short": len(found) - len(long), "runs": len(hash_G)}


def _texts(file: Input, config: SetConfig) -> Iterator[tuple[str, str]]:
    """(Place, text); a line that cannot be read is an error, since its text would stay unseen."""
    with file.path.open("rb") as lines:
        for number, data in enumerate(lines, 1):
            where = f"line {number}"
            try:
                line = data.decode().strip()
            except UnicodeDecodeError as e:
                raise DataError(
                    f"{file.path} {where}: is not UTF-8 ({e.reason}); convert the file"
                ) from None
            if not line:
                continue
            if config.format == "txt":
                yield where, line
            else:
                for field in config.fields:
                    yield f"{where} {field}", _field(line, field, f"{file.path} {where}")


def _field(line: str, field: str, where: str) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as e:
        raise DataError(f"{where}: broken JSON ({e}); mend the line") from None
    if not isinstance(value, dict) or not isinstance(value.get(field), str):
        raise DataError(f"{where}: no text in field {field!r}; correct the set's fields")
    return value[field].encode(errors="replace").decode()


def spelled_runs(text: str, words: int, characters: int) -> list[str]:
    """The runs of a text in their order, spelled with spaces between words: equal if and only if
    the runs are."""
    parts, single = spell(text, code=False)
    result = []
    for at, alone in enumerate(single):
        end = at + (characters if alone else words)
        if end <= len(parts):
            gaps = (
                "" if a or b else " "
                for a, b in zip(single[at:], single[at + 1 : end], strict=False)
            )
            result.append("".join(itertools.chain(*zip(parts[at:end], [*gaps, ""], strict=True))))
    return result


RUNS = Stage("evaluation_runs", f"2 {VERSION}", runs_partition)
