"""Turns traditional Chinese into simplified, by the variant that the text shows."""

import functools
from dataclasses import dataclass

import numpy as np
import opencc

from data_tools.clean.characters import HAN
from data_tools.clean.measure import measure
from data_tools.document import Document, Drop

KANA = (0x3041, 0x30FF)
JAPANESE = 0.1
"""Kana for each Han character: Japanese has about 1 and more; Chinese shop names write a の."""
COMMON_HAN = range(0x3400, 0xA000)
"""OpenCC's single characters beyond these are rarities that decide nothing."""


@dataclass(frozen=True)
class TraditionalToSimplified:
    """Converts a text with more characters that only traditional Chinese has than simplified only.

    Taiwan's forms (裡, 為) ask for OpenCC's `tw2s`, Hong Kong's (裏, 説) for `hk2s`, neither for
    `t2s`. Japanese stays.
    """

    def __call__(self, document: Document) -> Document | Drop:
        variant = variant_of(document.text)
        if not variant:
            return document
        return document.with_text(_converter(variant).convert(document.text))


def variant_of(text: str) -> str:
    """OpenCC's configuration for a text: tw2s, hk2s or t2s; empty when it is not traditional."""
    measures = measure(text)
    if not measures.counts[HAN]:
        return ""
    points = measures.points
    traditional = _count(points, "t2s")
    if traditional <= _count(points, "s2t"):
        return ""
    kana = np.count_nonzero((points >= KANA[0]) & (points <= KANA[1]))
    if kana > JAPANESE * measures.counts[HAN]:
        return ""
    taiwan, hong_kong = _count(points, "tw2t"), _count(points, "hk2t")
    if taiwan == hong_kong:
        return "t2s"
    return "tw2s" if taiwan > hong_kong else "hk2s"


def _count(points: np.ndarray, config: str) -> int:
    """Characters that a conversion would change by themselves."""
    changed = _changed(config)
    return int(np.count_nonzero(changed[np.minimum(points, len(changed) - 1)]))


@functools.cache
def _changed(config: str) -> np.ndarray:
    """Whether OpenCC changes a code point that stands alone; bool, up to the common Han."""
    before = "".join(map(chr, COMMON_HAN))
    after = _converter(config).convert("\n".join(before)).split("\n")
    changed = np.zeros(COMMON_HAN.stop + 1, bool)
    changed[COMMON_HAN.start : COMMON_HAN.stop] = [
        a != b for a, b in zip(before, after, strict=True)
    ]
    return changed


@functools.cache
def _converter(config: str) -> opencc.OpenCC:
    return opencc.OpenCC(config)
