"""The scrubber: private data in one text, treated by policy."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from unicodedata import unidata_version

from data_tools.document import Drop
from data_tools.privacy import placeholder
from data_tools.privacy.claims import claim
from data_tools.privacy.config import PrivacyConfig
from data_tools.privacy.ner import load
from data_tools.privacy.span import Span

_CUT = re.compile(
    r"(?<![0-9A-Za-z.])[0-9０-９](?:[ -]?[0-9０-９]){5,}[Xx]?$|[0-9A-Za-z._%+-]+@[0-9A-Za-z.-]*$"
)
"""What the end of a text may have been cut from: a long number, an address."""

MARGIN = 500
"""Characters behind an excerpt that are looked at: no private thing and its context is longer."""

VERSION = f"1, Unicode {unidata_version}"
"""Of what is found and of what it is replaced by; part of the version of the stages that do it."""


@dataclass(frozen=True)
class Scrubbed:
    """A text that stays."""

    text: str
    counts: Counter[str]
    """Entity -> spans, those that are kept too."""


class Scrubber:
    """What a recipe wants done with the texts of one source type.

    The model of named entities, if there is one, is loaded once a process.
    """

    def __init__(self, config: PrivacyConfig, key: bytes | None):
        """`config` is `of` the type; `key` may be `None` to `mask` only, or when none is `hash`."""
        self.policies = config.policies()
        self._key = key
        self._recognise = load(config.ner, config.ner_path) if config.names() else None
        shown = {"keep": "keep", "generalise": "generalise"}
        self._shown = {e: shown.get(p, "mask") for e, p in self.policies.items()}

    def scrub(self, text: str) -> Scrubbed | Drop:
        """The text as its policies leave it. Idempotent, as far as no model of names is asked."""
        spans = claim(text, self._recognise)
        text, more = self._settle(text, spans, self.policies)
        counts = Counter(span.entity for span in spans) + more
        dropped = [e for e in counts if self.policies[e] == "drop"]
        if dropped:
            found = ", ".join(f"{counts[e]} of {e}" for e in sorted(dropped))
            return Drop("privacy", f"{found}; the policy is to drop the document")
        return Scrubbed(text, counts)

    def mask(self, text: str) -> str:
        """For people's eyes: all is masked that is not `keep`, whatever else its policy, and so is
        a number or an address that the text ends in: it may have been cut there."""
        text, _ = self._settle(text, claim(text, self._recognise), self._shown)
        return _CUT.sub(lambda match: placeholder.mask("", match[0]), text)

    def excerpt(self, text: str, characters: int) -> str:
        """The beginning of a text for people's eyes: masked before it is cut, so that nothing
        shows which is private only by what follows."""
        return self.mask(text[: characters + MARGIN])[:characters]

    def _settle(
        self, text: str, spans: Sequence[Span], policies: Mapping[str, str]
    ) -> tuple[str, Counter[str]]:
        """The text with its spans replaced, and with what that uncovers replaced too: a label
        inside an address may have kept its neighbour from being seen. Counts the latter."""
        more: Counter[str] = Counter()
        text, changed = self._replace(text, spans, policies)
        while changed:
            text, changed = self._replace(text, claim(text), policies)
            more += changed
        return text, more

    def _replace(
        self, text: str, spans: Sequence[Span], policies: Mapping[str, str]
    ) -> tuple[str, Counter[str]]:
        parts, at = [], 0
        changed: Counter[str] = Counter()
        for span in spans:
            original = text[span.start : span.end]
            new = self._replacement(span.entity, original, policies[span.entity])
            changed[span.entity] += new != original
            parts += text[at : span.start], new
            at = span.end
        return "".join([*parts, text[at:]]), +changed

    def _replacement(self, entity: str, original: str, policy: str) -> str:
        if policy in ("mask", "drop"):  # a document that goes: what this uncovers is told too
            return placeholder.mask(entity, original)
        if policy == "hash":
            assert self._key is not None, "a hash without its key"
            return placeholder.hashed(entity, original, self._key)
        if policy == "generalise":
            return placeholder.generalised(original)
        return original
