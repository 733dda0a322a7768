"""Names of code as pieces of their own: training cuts `user_id` at its underscore.

The names become further merges of a BPE model, behind all that training found: they join pieces
that would stand side by side, and never cut a word in two, as a user-defined symbol would.
"""

import re
from collections import Counter
from itertools import pairwise

from sentencepiece import sentencepiece_model_pb2

from data_tools.document import DataError

NAME = re.compile(r" ?(?=[A-Za-z_]*[A-Za-z])[A-Za-z]*_[A-Za-z_]*(?![A-Za-z_0-9])")
"""With the space before it, as most words have. Names with digits are cut at each digit."""

ModelProto = sentencepiece_model_pb2.ModelProto  # pyright: ignore[reportAttributeAccessIssue]
NORMAL = ModelProto.SentencePiece.NORMAL


def count_names(text: str, counts: Counter[str]) -> None:
    """Adds the names of a text that have an underscore."""
    counts.update(NAME.findall(text))


def with_names(model: bytes, counts: Counter[str], number: int) -> bytes:
    """The model with `number` more pieces: the most frequent names, ties by the alphabet, and what
    leads to them (`user_` to `user_id`). `DataError` if there are not so many names."""
    proto = ModelProto.FromString(model)
    scores = {p.piece: p.score for p in proto.pieces if p.type == NORMAL}
    lowest, end = min(scores.values()), len(proto.pieces) + number
    for name, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        parts = _merge(name.replace(" ", "\u2581"), scores)
        if len(proto.pieces) + len(parts) - 1 > end:
            continue
        whole = parts[0]
        for part in parts[1:]:
            whole += part
            lowest -= 1  # merged after all others
            scores[whole] = lowest
            proto.pieces.add(piece=whole, score=lowest, type=NORMAL)
    if missing := end - len(proto.pieces):
        raise DataError(
            f"config.tokenizer.identifiers={number}: the names in the sample give {missing} fewer; "
            "ask for fewer, or add code"
        )
    proto.trainer_spec.vocab_size = end
    return proto.SerializeToString()


def _merge(word: str, scores: dict[str, float]) -> list[str]:
    """The word as the model cuts it: the best merge first, the leftmost of equals."""
    parts = list(word)
    while True:
        pairs = [(scores.get(a + b), i) for i, (a, b) in enumerate(pairwise(parts))]
        found = [(-score, i) for score, i in pairs if score is not None]
        if not found:
            return parts
        _, i = min(found)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
