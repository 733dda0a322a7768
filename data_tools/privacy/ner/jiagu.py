"""Names by jiagu: a small perceptron for Chinese that comes with its package (extra `ner`)."""

import importlib
import importlib.util
import re
import warnings
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

from data_tools.document import DataError
from data_tools.privacy.ner.labels import spans
from data_tools.privacy.span import Recogniser, Span
from data_tools.stage import Input


def inputs(directory: Path) -> tuple[Input, ...]:
    """The installed release; it has no directory of its own."""
    found = importlib.util.find_spec("jiagu")
    if found is None or found.origin is None:
        raise DataError("ner='jiagu': it is not installed; pip install 'jaxlm[ner]'")
    return (Input(Path(found.origin), "jiagu", version("jiagu")),)


def load(directory: Path) -> Recogniser:
    """A line at a time: segmented into words, then labelled."""
    jiagu = importlib.import_module("jiagu")
    with warnings.catch_warnings():  # it leaves its model's file to the garbage collector
        warnings.simplefilter("ignore", ResourceWarning)
        jiagu.init()

    def recognise(text: str) -> Iterator[Span]:
        for line in re.finditer(r"\S.*", text):
            words, offsets, at = [], [], line.start()
            for word in jiagu.seg(line[0]):
                at = text.index(word, at)
                words.append(word)
                offsets.append((at, at + len(word)))
                at += len(word)
            yield from spans(jiagu.ner(words), offsets)

    return recognise
