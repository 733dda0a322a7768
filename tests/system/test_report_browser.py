"""The report as a person sees it: in a browser that is given every chance to misbehave."""

import json
import re
import shutil
import struct
import subprocess
import zlib
from pathlib import Path

import pytest

from data_tools.report.page import SECTIONS
from tests.data_tools import eventful, small

pytestmark = pytest.mark.system

WIDTH, HEIGHT = 1280, 9000
CONTROL = '<img src="http://127.0.0.1:9/pixel"><script>console.error("heard")</script>'


@pytest.fixture(scope="module")
def chromium() -> str:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium fonts-wqy-zenhei")
    return path


@pytest.fixture(scope="module")
def page(tmp_path_factory) -> Path:
    """report.html of a build, away from all that lies beside it."""
    workdir = tmp_path_factory.mktemp("build")
    small.run(eventful.write(workdir), workdir)
    return Path(shutil.copy(workdir / "report.html", tmp_path_factory.mktemp("page")))


def browse(chromium: str, page: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """Opens a page in a new headless browser with its log on stderr; waits for its end."""
    profile = page.with_name("profile")
    shutil.rmtree(profile, ignore_errors=True)
    command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
    command += [f"--user-data-dir={profile}", f"--window-size={WIDTH},{HEIGHT}"]
    # what the browser asks for itself goes nowhere
    command += ["--proxy-server=127.0.0.1:9", "--enable-logging=stderr", *options, page.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done


def requests(log: Path) -> set[str]:
    """What a page asked for, of all that is in a browser's network log."""
    events = json.loads(log.read_text())["events"]
    parameters = [e["params"] for e in events if "params" in e]
    return {p["url"] for p in parameters if p.get("initiator") == "null"}


def pixels(path: Path) -> bytes:
    """The filtered rows of a PNG: zero wherever a pixel is as its neighbour."""
    data, at, parts = path.read_bytes(), 8, []
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        if data[at + 4 : at + 8] == b"IDAT":
            parts.append(data[at + 8 : at + 8 + length])
        at += length + 12
    return zlib.decompress(b"".join(parts))


def test_it_is_drawn_in_silence(chromium, page, tmp_path):
    picture, log = tmp_path / "page.png", tmp_path / "net.json"
    done = browse(chromium, page, f"--screenshot={picture}", f"--log-net-log={log}")
    assert "CONSOLE" not in done.stderr
    assert requests(log) == set()
    rows = pixels(picture)
    assert len(rows) >= HEIGHT * WIDTH * 3
    drawn = len(rows) - rows.count(0)
    assert drawn > 0.005 * len(rows), f"{drawn} of {len(rows)} bytes differ from their neighbours"


def test_noise_would_be_heard(chromium, tmp_path):
    """The test above can fail: a page that asks and complains is caught by the same means."""
    page, log = tmp_path / "control.html", tmp_path / "net.json"
    page.write_text(CONTROL)
    done = browse(chromium, page, f"--screenshot={tmp_path / 'c.png'}", f"--log-net-log={log}")
    assert re.search("CONSOLE.*heard", done.stderr)
    assert requests(log) == {"http://127.0.0.1:9/pixel"}
    assert not any(pixels(tmp_path / "c.png")[-WIDTH:])


def test_the_browser_sees_what_was_written(chromium, page):
    dom = browse(chromium, page, "--dump-dom").stdout
    body = dom.partition("<body>")[2]
    assert re.findall(r"<h2[^>]*>([^<]*)</h2>", body) == list(SECTIONS)
    assert body.count("<svg") == page.read_text(encoding="utf-8").count("<svg") >= 8
    assert not re.search(r"<(script|img|iframe|link|object|embed)\b", body)
    # a hostile text or file name closes no element of ours
    assert "&lt;b&gt;cut.jsonl.gz" in body
    assert dom.rstrip().endswith("</body></html>")
