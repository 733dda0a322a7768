"""Models that find the names of persons, places and organisations."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from data_tools.privacy.ner import bert_crf, jiagu
from data_tools.privacy.span import Recogniser
from data_tools.stage import Input


@dataclass(frozen=True)
class Model:
    """How a recogniser is made."""

    inputs: Callable[[Path], tuple[Input, ...]]
    """What its results depend on; raises when it cannot be used here."""
    load: Callable[[Path], Recogniser]
    needs_path: bool


NER: dict[str, Model | None] = {
    "none": None,
    "jiagu": Model(jiagu.inputs, jiagu.load, needs_path=False),
    "bert_crf": Model(bert_crf.inputs, bert_crf.load, needs_path=True),
}


@functools.cache
def load(name: str, path: str) -> Recogniser | None:
    """The model of a key of `NER`, once a process."""
    model = NER[name]
    return model and model.load(Path(path))
