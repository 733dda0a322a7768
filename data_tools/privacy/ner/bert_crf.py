"""Names by a BERT with a CRF on top, from a directory:

config.json          of BertForTokenClassification; its `id2label` are BIO or BIOES labels
vocab.txt            a piece a line; tokenizer_config.json may say `do_lower_case: false`
model.safetensors    the model's tensors, and crf.start_transitions, crf.end_transitions and
                     crf.transitions as pytorch-crf names them

The CRF is over the tokens of a line of text, without [CLS] and [SEP]. A line that is too long for
the model is seen through windows that overlap, each token from where it has most context, and is
decoded whole.
"""

import dataclasses
import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from data_tools.document import DataError
from data_tools.privacy.ner import safetensors
from data_tools.privacy.ner.bert import Bert, BertConfig
from data_tools.privacy.ner.crf import Crf
from data_tools.privacy.ner.labels import entity, spans
from data_tools.privacy.ner.wordpiece import WordPiece
from data_tools.privacy.span import Recogniser, Span
from data_tools.stage import Input
from jaxlm.data.manifest import sha256

FILES = ("config.json", "vocab.txt", "model.safetensors")
OPTIONAL = "tokenizer_config.json"
OVERLAP = 0.25
"""Of a window that the next one sees again."""


def inputs(directory: Path) -> tuple[Input, ...]:
    """The files of the checkpoint."""
    missing = [name for name in FILES if not (directory / name).is_file()]
    if missing:
        raise DataError(f"ner_path={str(directory)!r}: has no {missing[0]}; bert_crf needs it")
    paths = [directory / name for name in (*FILES, OPTIONAL)]
    return tuple(Input(path, path.name, sha256(path)) for path in paths if path.is_file())


def load(directory: Path) -> Recogniser:
    """Reads the checkpoint; float32 in memory."""
    config = _json(directory / "config.json")
    weights = safetensors.read(directory / "model.safetensors")
    model = Bert(_architecture(config, directory / "config.json"), weights)
    labels = _labels(config, directory / "config.json")
    crf = _crf(weights, len(labels), directory)
    vocabulary = _vocabulary(directory / "vocab.txt")
    lower = True
    if (directory / OPTIONAL).is_file():
        lower = _json(directory / OPTIONAL).get("do_lower_case", True)
    tokenize = WordPiece(vocabulary, lower)
    first, last = vocabulary["[CLS]"], vocabulary["[SEP]"]

    def emissions(ids_T: Sequence[int]) -> np.ndarray:
        return model([first, *ids_T, last])[1:-1]

    def recognise(text: str) -> Iterator[Span]:
        for line in re.finditer(r"\S.*", text):
            tokens = tokenize(line[0])
            if tokens:
                size = model.config.max_position_embeddings - 2
                emission_TL = windowed(emissions, [token.id for token in tokens], size)
                at = line.start()
                offsets = [(at + token.start, at + token.end) for token in tokens]
                yield from spans([labels[i] for i in crf.decode(emission_TL)], offsets)

    return recognise


def windowed(
    score: Callable[[Sequence[int]], np.ndarray], ids_T: Sequence[int], size: int
) -> np.ndarray:
    """float32[T, L]: `score` of at most `size` tokens at a time. Of two windows that see a token,
    the one counts in whose inside it lies deeper."""
    overlap = int(size * OVERLAP)
    parts, done = [], 0
    for start in range(0, max(1, len(ids_T) - overlap), size - overlap):
        end = min(start + size, len(ids_T))
        cut = end if end == len(ids_T) else end - overlap // 2
        parts.append(score(ids_T[start:end])[done - start : cut - start])
        done = cut
    return np.concatenate(parts)


def _architecture(config: dict[str, Any], path: Path) -> BertConfig:
    for name, known in (("hidden_act", "gelu"), ("position_embedding_type", "absolute")):
        if config.setdefault(name, known) != known:
            raise DataError(f"{path}: {name}={config[name]!r}; only {known!r} is known here")
    found = {f.name: config[f.name] for f in dataclasses.fields(BertConfig) if f.name in config}
    try:
        return BertConfig(**found)
    except TypeError as e:
        raise DataError(f"{path}: must describe a BERT: {e}") from None


def _labels(settings: dict[str, Any], path: Path) -> list[str]:
    names = settings.get("id2label", {})
    labels = [names[str(n)] for n in range(len(names))]
    if not any(map(entity, labels)):
        raise DataError(
            f"{path}: id2label={labels} names no person, place or organisation; "
            "write labels such as B-PER, I-LOC, B-ORG"
        )
    return labels


def _vocabulary(path: Path) -> dict[str, int]:
    lines = path.read_text(encoding="utf-8").split("\n")
    vocabulary = {piece.rstrip("\r"): n for n, piece in enumerate(lines)}
    for piece in ("[UNK]", "[CLS]", "[SEP]"):
        if piece not in vocabulary:
            raise DataError(f"{path}: has no {piece}; it must be the vocabulary of a BERT")
    return vocabulary


def _crf(weights: dict[str, np.ndarray], labels: int, directory: Path) -> Crf:
    names = ("crf.start_transitions", "crf.end_transitions", "crf.transitions")
    shapes = ((labels,), (labels,), (labels, labels))
    for name, shape in zip(names, shapes, strict=True):
        if name not in weights or weights[name].shape != shape:
            found = weights[name].shape if name in weights else "missing"
            raise DataError(f"{directory}/model.safetensors: {name} is {found}, must be {shape}")
    return Crf(*(weights[name] for name in names))


def _json(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as e:
        raise DataError(f"{path}: is not JSON: {e}") from None
