"""Every detector of structured private data, in order of trust."""

import re
from collections.abc import Iterator
from typing import NamedTuple

from data_tools.privacy import (
    account,
    address,
    card,
    email,
    icd10,
    passport,
    phone,
    plate,
    resident,
    uscc,
)
from data_tools.privacy.context import DASH
from data_tools.privacy.span import Find


class Anchor(NamedTuple):
    """Places where detectors look closely: found in one quick pass, which pays for many."""

    pattern: re.Pattern[str]
    before: int
    """Characters before the beginning of a match that a hit may begin at."""
    after: int
    """Characters after its end that a hit may end at."""

    def windows(self, text: str) -> Iterator[tuple[int, int]]:
        """What lies around the matches, merged where it overlaps."""
        start = end = 0
        for match in self.pattern.finditer(text):
            if match.start() - self.before > end:
                if end:
                    yield start, end
                start = match.start() - self.before
            end = min(len(text), match.end() + self.after)
        if end:
            yield start, end


NUMBERS = Anchor(re.compile(rf"[0-9](?:[0-9]{{4}}|[0-9 .\u00a0\u3000{DASH}]{{6}})"), 24, 48)
"""Five digits in a row, or seven of digits and what stands between them."""
ADDRESSES = Anchor(re.compile("@"), 64, 260)
TEXT = None


class Detector(NamedTuple):
    """What finds an entity, and where it has to look."""

    entity: str
    find: Find
    where: Anchor | None
    """`None`: in the whole text."""


DETECTORS: tuple[Detector, ...] = (
    Detector("icd10", icd10.find, TEXT),
    Detector("resident_id", resident.find, NUMBERS),
    Detector("email", email.find, ADDRESSES),
    Detector("uscc", uscc.find, NUMBERS),
    Detector("bank_card", card.find, NUMBERS),
    Detector("ip", address.find_four, NUMBERS),
    Detector("ip", address.find_six, TEXT),
    Detector("mobile", phone.find_mobile, NUMBERS),
    Detector("landline", phone.find_landline, NUMBERS),
    Detector("passport", passport.find, NUMBERS),
    Detector("plate", plate.find, TEXT),
    Detector("wechat", account.find_wechat, TEXT),
    Detector("qq", account.find_qq, NUMBERS),
)
