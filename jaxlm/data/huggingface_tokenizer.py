"""Tokenizers of Hugging Face: a tokenizer.json, and beside it what names its special tokens.

The library `tokenizers` is an extra (`pip install 'jaxlm[hf]'`); it is imported when needed.
"""

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jaxlm.data.abstract_tokenizer import (
    PROBE,
    Tokenizer,
    TokenizerError,
    check,
    is_marker,
    not_unicode,
)

FILE = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
NAMES = ("special_tokens_map.json", SETTINGS)
"""Files that say which pieces start, end and fill; the later one wins."""
ROLES = ("bos", "eos", "pad")

SPACE = "\u2581"
TO_SPACE = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
METASPACE_DECODERS = (
    [TO_SPACE, {"type": "ByteFallback"}],
    [TO_SPACE, {"type": "ByteFallback"}, {"type": "Fuse"}],
)


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer.json: added tokens that mark something are never found in text, nothing is put
    before or behind it, and it is neither cut nor padded."""

    def __init__(self, path: Path):
        self.path = path / FILE if path.is_dir() else path
        self.definition = read_definition(self.path)
        self._tokenizer = _load(self.definition, self.path)
        self.kind: str = type(self._tokenizer.model).__name__
        added = self.definition["added_tokens"]
        self._controls = {t["content"]: t["id"] for t in added if t["special"]}
        self.vocab_size: int = 1 + max(self._tokenizer.get_vocab().values(), default=-1)
        names = special_names(self.path.parent)
        self.bos_id, self.eos_id, self.pad_id = (
            self._controls.get(names[role], -1) if role in names else -1 for role in ROLES
        )
        self._check_added()
        check(self, "use a byte-level tokenizer, or one with byte fallback and no normalizer")
        self._check_markers()

    def encode(self, text: str) -> list[int]:
        """Ids of a text, without BOS. `TokenizerError` if the text is not Unicode."""
        try:
            return self._tokenizer.encode(text, add_special_tokens=False).ids
        except (TypeError, UnicodeEncodeError):
            raise not_unicode(text) from None

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; control symbols give nothing, broken UTF-8 gives U+FFFD."""
        return self._tokenizer.decode([int(i) for i in ids], skip_special_tokens=True)

    def controls(self) -> dict[str, int]:
        """Control symbol -> id: pieces that no text becomes, and that decode to nothing."""
        return dict(self._controls)

    def piece_bytes(self) -> list[bytes]:
        """UTF-8 of the text that each piece stands for; nothing for control symbols."""
        spell = _speller(self.definition["decoder"])
        found = []
        for id in range(self.vocab_size):
            piece = self._tokenizer.id_to_token(id)
            if piece is None or piece in self._controls:
                found.append(b"")
            else:
                found.append(spell(piece) if spell else self.decode([id]).encode())
        return found

    def spells(self) -> bool:
        """With the decoders that are known to do no more."""
        return _speller(self.definition["decoder"]) is not None

    def hash(self) -> str:
        """16 hex digits over model, normalizer, pre-tokenizer, decoder, added tokens and the
        probe's ids."""
        data = json.dumps([self.definition, self.encode(PROBE)], sort_keys=True)
        return hashlib.sha256(data.encode()).hexdigest()[:16]

    def _check_added(self) -> None:
        """The library gives an added token another id when the one in the file does not fit."""
        for token in self.definition["added_tokens"]:
            id = self._tokenizer.token_to_id(token["content"])
            if id != token["id"]:
                raise TokenizerError(
                    f"{self.path}: the added token {token['content']!r} has the id {token['id']}, "
                    f"which does not follow on the vocabulary (the library reads {id}); "
                    "write the file again with the library that made it"
                )

    def _check_markers(self) -> None:
        """A model may hold its markers as pieces of text, which `encode_special_tokens` lets be."""
        ids = frozenset(self._controls.values())
        for name in self._controls:
            for text in (name, f" {name}", f"a{name}b"):
                if not ids.isdisjoint(self.encode(text)):
                    raise TokenizerError(
                        f"{self.path}: a text that holds {name!r} becomes that control symbol, so "
                        "that any document could write it; use a tokenizer whose model does not "
                        "hold its markers"
                    )


def read_definition(path: Path) -> dict[str, Any]:
    """What decides the ids of a text, of a tokenizer.json; markers are special tokens here."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        model = data["model"]
        tokens = [dict(t) for t in data["added_tokens"]]
        for token in tokens:
            token["special"] = token["special"] or is_marker(token["content"])
        if merges := model.get("merges"):  # written in two ways
            pairs = [m.split(" ", 1) if isinstance(m, str) else m for m in merges]
            model = model | {"merges": pairs}
        dropout = model.get("dropout")
        parts = {n: data[n] for n in ("normalizer", "pre_tokenizer", "decoder")}
    except FileNotFoundError:
        raise TokenizerError(
            f"{path.parent}: has no {FILE}; name a directory with one, or a SentencePiece model"
        ) from None
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise TokenizerError(f"{path}: not a {FILE} of Hugging Face: {e!r}") from None
    if dropout:
        raise TokenizerError(f"{path}: dropout={dropout} gives other ids each time; set it to null")
    return {"model": model, "added_tokens": sorted(tokens, key=lambda t: t["id"])} | parts


def special_names(directory: Path) -> dict[str, str]:
    """Role -> piece, as far as the files beside a tokenizer.json name them."""
    found: dict[str, str] = {}
    for file in NAMES:
        path = directory / file
        if not path.is_file():
            continue
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            for role in ROLES:
                token = data.get(f"{role}_token")
                if isinstance(token, Mapping):  # with flags
                    token = token["content"]
                if token is not None:
                    found[role] = str(token)
        except (ValueError, KeyError, AttributeError) as e:
            raise TokenizerError(f"{path}: cannot be read: {e!r}; restore or remove it") from None
    return found


def _load(definition: dict[str, Any], path: Path) -> Any:
    try:
        import tokenizers
    except ModuleNotFoundError:
        raise TokenizerError(
            f"{path}: a tokenizer of Hugging Face needs: pip install 'jaxlm[hf]'"
        ) from None
    whole = {"version": "1.0", "truncation": None, "padding": None, "post_processor": None}
    try:
        tokenizer = tokenizers.Tokenizer.from_str(json.dumps(whole | definition))
    except Exception as e:  # the library raises no narrower one
        raise TokenizerError(f"{path}: not a {FILE} of Hugging Face: {e}") from None
    tokenizer.encode_special_tokens = True  # as text
    return tokenizer


def _speller(decoder: Any) -> Callable[[str], bytes] | None:
    """Piece -> its bytes, for the decoders whose text is those bytes joined; None for others."""
    match decoder:
        case {"type": "ByteLevel"} | {"type": "Sequence", "decoders": [{"type": "ByteLevel"}]}:
            return _byte_level
        case {"type": "Sequence", "decoders": [*parts]} if parts in METASPACE_DECODERS:
            return _metaspace
        case _:
            return None


def _byte_level(piece: str) -> bytes:
    """A character a byte; a piece with another character is spelled as it is."""
    try:
        return bytes(map(BYTES.__getitem__, piece))
    except KeyError:
        return piece.encode()


def _metaspace(piece: str) -> bytes:
    if re.fullmatch("<0x[0-9A-F]{2}>", piece):
        return bytes([int(piece[3:5], 16)])
    return piece.replace(SPACE, " ").encode()


def _byte_characters() -> dict[str, int]:
    """Character -> byte, as in GPT-2: those that can be seen stand for themselves."""
    seen = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in seen]
    return {chr(b): b for b in seen} | {chr(256 + i): b for i, b in enumerate(others)}


BYTES = _byte_characters()
