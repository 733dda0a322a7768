"""A tokenizer that exists: SentencePiece's or Hugging Face's, taken as it is or refused."""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from data_tools.stage import Input, Partition, Report, Stage
from data_tools.tokenizer.config import TokenizerConfig
from data_tools.tokenizer.train import MODEL
from jaxlm.data.huggingface_tokenizer import (
    FILE,
    NAMES,
    SETTINGS,
    HuggingFaceTokenizer,
    special_names,
)
from jaxlm.data.manifest import sha256
from jaxlm.data.sentencepiece_tokenizer import SentencePieceTokenizer
from jaxlm.data.tokenizer import Tokenizer, TokenizerError, open_tokenizer

END_OF_TEXT = "<|endoftext|>"
DOES = {
    "bos": "starts a document",
    "pad": "fills rows and is not the one that starts documents",
}
OFFERED = 8
KINDS = {1: "unigram", 2: "bpe", 3: "word", 4: "char"}
"""SentencePiece's `model_type`."""


@dataclass(frozen=True)
class ExistingConfig:
    """Pieces that are to start documents and to fill rows; empty: those that it says."""

    bos: str
    pad: str


def partition(config: TokenizerConfig, workdir: Path) -> Partition[ExistingConfig]:
    """Of the stage `EXISTING`; `TokenizerError` if there is nothing at `config.path`."""
    path = workdir / config.path
    if not path.exists():
        raise TokenizerError(
            f"config.tokenizer.path={config.path!r}: there is no {path.absolute()}; name a "
            f"SentencePiece model, a {FILE} or a directory with one, or leave it empty to train one"
        )
    main = path / FILE if path.is_dir() else path
    files = [main, *(main.parent / n for n in NAMES if main.suffix == ".json")]
    inputs = tuple(Input(f.absolute(), f.name, sha256(f)) for f in files if f.is_file())
    if not main.is_file():
        raise TokenizerError(f"config.tokenizer.path={config.path!r}: {path} has no {FILE}")
    return Partition("model", ExistingConfig(config.bos, config.pad), {"tokenizer": inputs})


def existing_partition(partition: Partition[ExistingConfig], out: Path) -> Report:
    """Writes tokenizer.model, or tokenizer.json and a tokenizer_config.json: they name BOS and PAD.

    Raises `TokenizerError` for a tokenizer that cannot be used, with the reason.
    """
    config, path = partition.config, partition.inputs["tokenizer"][0].path
    tokenizer = open_tokenizer(path)
    names = {id: name for name, id in tokenizer.controls().items()} | {-1: ""}
    bos, eos, pad = (names[i] for i in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id))
    if isinstance(tokenizer, HuggingFaceTokenizer):
        _check_named(tokenizer, {"bos": config.bos, "pad": config.pad})
    bos = _choose(tokenizer, "bos", config.bos, (bos, END_OF_TEXT, eos))
    pad = _choose(tokenizer, "pad", config.pad, (pad, eos), taken=bos)
    match tokenizer:
        case SentencePieceTokenizer(model=model):
            kind = KINDS[model.trainer_spec.model_type]
            model.trainer_spec.bos_piece, model.trainer_spec.pad_piece = bos, pad
            (out / MODEL).write_bytes(model.SerializeToString())
            written = open_tokenizer(out / MODEL)
        case HuggingFaceTokenizer():
            kind = tokenizer.kind
            shutil.copyfile(path, out / FILE)
            settings = _settings(path.parent) | {"bos_token": bos, "pad_token": pad}
            settings |= {"eos_token": eos} if eos else {}
            text = json.dumps(settings, ensure_ascii=False, indent=1)
            (out / SETTINGS).write_text(text + "\n", encoding="utf-8")
            written = open_tokenizer(out)
        case _:
            raise AssertionError(tokenizer)
    assert written.hash() == tokenizer.hash()
    controls = tokenizer.controls()
    assert (written.bos_id, written.pad_id) == (controls[bos], controls[pad])
    return {
        "kind": kind,
        "hash": written.hash(),
        "vocab_size": written.vocab_size,
        "bos_id": written.bos_id,
        "pad_id": written.pad_id,
    }


def _check_named(tokenizer: HuggingFaceTokenizer, asked: Mapping[str, str]) -> None:
    """A piece that its files name for a role, and that it does not have, is not replaced."""
    named, controls = special_names(tokenizer.path.parent), tokenizer.controls()
    for role, piece in asked.items():
        name = named.get(role)
        if not piece and name and name not in controls:
            raise TokenizerError(
                f"config.tokenizer.{role}='': the files beside {tokenizer.path} name {name!r}, "
                f"which is no control symbol of it; {_offer(role, list(controls))}"
            )


def _choose(
    tokenizer: Tokenizer, role: str, asked: str, own: Sequence[str], taken: str = ""
) -> str:
    """The piece asked for, or the first of its own that is a control symbol and not taken."""
    controls = tokenizer.controls()
    free = [name for name in controls if name != taken]
    if asked and asked not in free:
        fault = "it starts documents already" if asked == taken else "it is no control symbol"
        raise TokenizerError(
            f"config.tokenizer.{role}={asked!r}: {fault} in {tokenizer.path}; {_offer(role, free)}"
        )
    found = next((name for name in (asked, *own) if name in free), None)
    if found is None:
        raise TokenizerError(
            f"config.tokenizer.{role}='': {tokenizer.path} names no piece that {DOES[role]}; "
            f"{_offer(role, free)}"
        )
    return found


def _offer(role: str, free: Sequence[str]) -> str:
    if not free:
        return "it has no other control symbol, and cannot be used"
    shown = ", ".join(free[:OFFERED])
    more = f" ... ({len(free)} in all)" if len(free) > OFFERED else ""
    return f"name one that is not used otherwise: {shown}{more}"


def _settings(directory: Path) -> dict[str, Any]:
    path = directory / SETTINGS
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


EXISTING = Stage("tokenizer", "existing 2", existing_partition)
