"""The candidates for identifiers: what becomes a piece, and that each gives text back exactly."""

import pytest
import sentencepiece

from bench.identifiers import CANDIDATES, PRESET, Text, train

CODE = (
    "def get_user_id(self, userName):\n\t\treturn self._user_id  # 用户，编号。\n    __init__(9)\n"
)
MIXED = {"scripts mix", "scripts and numbers mix", "scripts mix, 1,000 names are pieces"}


def pieces(name: str) -> list[str]:
    """Those of a candidate trained on `CODE` alone."""
    options, sample = CANDIDATES[name](Text([CODE] * 50, [CODE] * 50, {}))
    size = {"vocab_size": 420, "character_coverage": 1.0, "hard_vocab_limit": False}
    model = train(sample, {**PRESET, **size, **options}).model
    spm = sentencepiece.SentencePieceProcessor(model_proto=model)
    assert spm.decode(spm.encode(CODE)) == CODE
    return [spm.id_to_piece(i) for i in range(spm.vocab_size())]


@pytest.mark.parametrize("name", CANDIDATES)
def test_candidates(name):
    found = pieces(name)
    names = [p for p in found if p.strip("▁") in ("get_user_id", "_user_id", "__init__")]
    assert bool(names) == (name != "SentencePiece's defaults")
    assert any("，" in p and "用" in p for p in found) == (name in MIXED)
    assert "\t\t" in "".join(found)
