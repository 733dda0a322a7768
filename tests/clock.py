"""A clock that goes as the test says, on a busy machine too."""

import pytest


class Clock:
    """Monotonic seconds that pass when the test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        self.s = 1000.0
        monkeypatch.setattr("jaxlm.activity.time.monotonic", self)

    def __call__(self) -> float:
        return self.s
