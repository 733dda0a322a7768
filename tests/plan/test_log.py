"""A compiler's words are kept apart, and whoever waits for it hears that it is at work."""

import os
import re
import time

from jaxlm.plan import log
from jaxlm.plan.log import Log


def test_what_is_written_to_standard_error_is_taken(capfd):
    with Log("compiling") as taken:
        os.write(2, b"E0000 a compiler's complaint\n")
    os.write(2, b"after\n")
    assert taken.text == "E0000 a compiler's complaint\n"
    assert capfd.readouterr().err == "after\n"


def test_long_work_gives_signs_of_life(capfd, monkeypatch):
    monkeypatch.setattr(log, "TICK_S", 0.01)
    with Log("compiling") as taken:
        os.write(2, b"a complaint\n")
        time.sleep(0.2)
    first, *_ = capfd.readouterr().err.splitlines()
    assert re.fullmatch(r"compiling: \d+ s so far", first)
    assert taken.text == "a complaint\n"
