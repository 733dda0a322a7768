"""Dialogues as JSON: lines, or a file that is an array. A dialogue is a record.

Its text has a turn after the other, each as "role: words". The roles are user, assistant and
system, or the names that the data gives the speakers.
"""

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from data_tools.read.charset import CODECS, detect, undecodable
from data_tools.read.compressed import DamagedFile, read_blocks
from data_tools.read.cut import cut_lines
from data_tools.read.format import WHOLE, Span
from data_tools.read.json_array import split_array
from data_tools.read.jsonl import meta_of, read_values
from data_tools.read.record import WHOLE_FILE, Bad, Record
from data_tools.source import SourceConfig

LISTS = ("conversations", "conversation", "messages", "dialogue", "dialog", "turns")
SPEAKER, WORDS = ("from", "role", "speaker"), ("value", "content", "text")
ROLES = {
    **dict.fromkeys(("user", "human", "question", "input", "prompt"), "user"),
    **dict.fromkeys(("assistant", "gpt", "bot", "model", "chatgpt", "answer"), "assistant"),
    "system": "system",
}
"""Names of the speakers in common data sets; another name stays as it is."""


class UnknownShape(ValueError):
    """JSON that is no dialogue: what was expected, and what was found."""

    def __init__(self, reason: str, found: str):
        super().__init__(reason)
        self.reason, self.found = reason, found


def cut_dialogue(path: Path, size: int) -> list[Span]:
    """Lines are cut; an array is one span."""
    return [WHOLE] if ".json" in path.suffixes else cut_lines(path, size)


def read_dialogue(path: Path, source: SourceConfig, span: Span) -> Iterator[Record | Bad]:
    """A record a dialogue. Shapes that are known, of a line or an element:

    {"conversations": turns} with `LISTS` for the key, or turns alone; where turns are
    [{"from": .., "value": ..}, ..] with `SPEAKER` and `WORDS` for the keys,
    [{"human": .., "assistant": ..}, ..], [["question", "answer"], ..], or ["words", "words", ..]
    of a user and an assistant in turn.
    """
    if ".json" in path.suffixes and _begins_array(path):
        yield from _read_array(path, source)
        return
    for found in read_values(path, source, span):
        if isinstance(found, Bad):
            yield found
        else:
            value, line = found
            yield _record(value, line.place, line.offset, source)


def _begins_array(path: Path) -> bool:
    """Many a file named .json has an object on each line."""
    try:
        head = next(filter(None, read_blocks(path, WHOLE)), b"")
    except DamagedFile:
        return False
    return head.removeprefix(codecs.BOM_UTF8).lstrip()[:1] == b"["


def _read_array(path: Path, source: SourceConfig) -> Iterator[Record | Bad]:
    number = 1
    try:
        for element in split_array(_decoded(path, source), source.max_record_bytes):
            yield element if isinstance(element, Bad) else _element(element, number, source)
            number += 1
        if number == 1:
            yield Bad(WHOLE_FILE, "empty file")
    except DamagedFile as e:
        yield e.at(f"element {number}")
    except UnicodeDecodeError as e:
        yield undecodable(f"element {number}", source.encoding, e)


def _decoded(path: Path, source: SourceConfig) -> Iterator[str]:
    decoder = None
    for block in filter(None, read_blocks(path, WHOLE)):
        if decoder is None:
            codec = CODECS.get(source.encoding) or detect(block) or "utf-8"
            decoder = codecs.getincrementaldecoder(codec)()
        yield decoder.decode(block)
    if decoder is not None:
        yield decoder.decode(b"", final=True)


def _element(text: str, number: int, source: SourceConfig) -> Record | Bad:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as e:
        return Bad(f"element {number}", "broken JSON", str(e))
    return _record(value, f"element {number}", number - 1, source)


def _record(value: Any, place: str, offset: int, source: SourceConfig) -> Record | Bad:
    try:
        text = "\n".join(f"{role}: {words}" for role, words in turns(value))
    except UnknownShape as e:
        return Bad(place, e.reason, e.found)
    return Record(text, place, offset, meta_of(value, source) if isinstance(value, dict) else {})


def turns(value: Any) -> list[tuple[str, str]]:
    """(Role, words) of each turn of a dialogue; raises `UnknownShape`."""
    if isinstance(value, dict):
        name = next((name for name in LISTS if name in value), None)
        if name is None:
            raise UnknownShape("no list of turns", _shape(value))
        value = value[name]
    if not isinstance(value, list) or not value:
        raise UnknownShape("turns are not a list", _shape(value))
    if all(isinstance(turn, str) for turn in value):
        return [(("user", "assistant")[i % 2], turn) for i, turn in enumerate(value)]
    return [pair for turn in value for pair in _turn(turn)]


def _turn(turn: Any) -> Iterator[tuple[str, str]]:
    for speaker, words in _pairs(turn):
        if not isinstance(speaker, str) or not isinstance(words, str):
            raise UnknownShape("a turn without a speaker and words", _shape(turn))
        yield ROLES.get(speaker.lower(), speaker), words


def _pairs(turn: Any) -> list[tuple[Any, Any]]:
    """(Speaker, words), or None for what is not there."""
    if isinstance(turn, list) and len(turn) == 2:
        return list(zip(("user", "assistant"), turn, strict=True))
    if not isinstance(turn, dict):
        raise UnknownShape("unknown shape of a turn", _shape(turn))
    speaker = next((turn[key] for key in SPEAKER if key in turn), None)
    if speaker is None and turn and all(name in ROLES for name in turn):
        return list(turn.items())
    return [(speaker, next((turn[key] for key in WORDS if key in turn), None))]


def _shape(value: Any) -> str:
    if isinstance(value, dict):
        return f"fields {', '.join(list(value)[:10])}"
    return f"list of {len(value)}" if isinstance(value, list) else type(value).__name__
