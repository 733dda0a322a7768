"""Notices from a metadata server on loopback, which speaks as Google's does."""

import itertools
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest

from jaxlm import notices
from jaxlm.safety import WatchConfig
from jaxlm.signals import Stop

TERMINATE = "TERMINATE_ON_HOST_MAINTENANCE"
INSTANCE = "/computeMetadata/v1/instance/"
CFG = WatchConfig(notices="gce", grace_seconds=30, notice_seconds=90)


class Metadata(ThreadingHTTPServer):
    """Values that change, and requests that wait until they do."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.values = {"preempted": "FALSE", "maintenance-event": "NONE"}
        self.changed = threading.Condition()
        self.asked: list[str] = []
        self.fails = self.etags = 0
        self.flavor = "Google"

    def set(self, name: str, value: str) -> None:
        with self.changed:
            self.values[name] = value
            self.changed.notify_all()


class Handler(BaseHTTPRequestHandler):
    server: Metadata  # pyright: ignore[reportIncompatibleVariableOverride]

    def do_GET(self):
        url = urlsplit(self.path)
        name, query = url.path.removeprefix(INSTANCE), parse_qs(url.query)
        self.server.asked.append(name)
        if self.headers["Metadata-Flavor"] != "Google" or name not in self.server.values:
            self.send_error(403)
        elif self.server.fails:
            self.server.fails -= 1
            self.send_error(503)
        else:
            etag = query["last_etag"][0]
            with self.server.changed:
                self.server.changed.wait_for(lambda: self.etag(name) != etag, timeout=5)
            body = self.server.values[name].encode()
            self.send_response(200)
            self.send_header("Metadata-Flavor", self.server.flavor)
            self.send_header("ETag", self.etag(name))
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    def etag(self, name: str) -> str:
        return f"e-{self.server.etags}-{self.server.values[name]}"

    def log_message(self, format, *args):
        pass


class Asked(Stop):
    """Keeps what it is asked for."""

    def __init__(self):
        super().__init__()
        self.what: list[tuple[str, float, bool]] = []

    def ask(self, why: str, grace_s: float, urgent: bool = False) -> None:
        self.what.append((why, grace_s, urgent))


@pytest.fixture
def server(monkeypatch):
    with Metadata() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("GCE_METADATA_HOST", f"127.0.0.1:{server.server_port}")
        monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")  # is not asked
        monkeypatch.setattr(notices, "RETRY_S", 0.05)
        yield server
        # Its clients end with it: a notice is the last that they wait for.
        server.fails, server.flavor = 0, "Google"
        server.set("preempted", "TRUE")
        for value in itertools.cycle(["NONE", TERMINATE]):
            server.set("maintenance-event", value)
            time.sleep(0.1)
            if not [t for t in threading.enumerate() if "(_listen)" in t.name]:
                break
        server.shutdown()


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_machine_that_is_preempted(server):
    stop = Asked()
    notices.listen(CFG, stop)
    until(lambda: {"preempted", "maintenance-event"} <= set(server.asked))
    assert stop.what == []
    server.set("preempted", "TRUE")
    until(lambda: bool(stop.what))
    assert stop.what == [("GCE says that this machine is preempted", 30, False)]


def test_one_that_is_preempted_before_anyone_listens(server):
    server.set("preempted", "TRUE")
    stop = Asked()
    notices.listen(CFG, stop)
    until(lambda: bool(stop.what))


def test_maintenance_that_moves_the_machine_is_nothing(server):
    stop = Asked()
    notices.listen(CFG, stop)
    server.set("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    until(lambda: server.asked.count("maintenance-event") >= 2)
    server.set("maintenance-event", TERMINATE)
    until(lambda: bool(stop.what))
    assert stop.what == [("GCE says that this machine is to end", 90, False)]


def test_maintenance_that_was_told_of_before_the_start_is_noted(server, capfd):
    """Else each start would end at once while the notice is up, which may be an hour."""
    server.set("maintenance-event", TERMINATE)
    stop, said = Asked(), []
    notices.listen(CFG, stop)
    until(lambda: said.append(capfd.readouterr().err) or "training goes on" in "".join(said))
    server.etags += 1  # told again
    server.set("maintenance-event", TERMINATE)
    until(lambda: server.asked.count("maintenance-event") >= 3)
    assert stop.what == []
    server.set("maintenance-event", "NONE")
    until(lambda: server.asked.count("maintenance-event") >= 4)
    server.set("maintenance-event", TERMINATE)
    until(lambda: bool(stop.what))
    assert stop.what == [("GCE says that this machine is to end", 90, False)]
    assert "training goes on" not in capfd.readouterr().err


def test_a_server_that_fails_is_said_once_and_asked_again(server, capfd):
    server.fails = 3
    stop = Asked()
    notices.listen(CFG, stop)
    until(lambda: len(server.asked) >= 6)
    server.set("preempted", "TRUE")
    until(lambda: bool(stop.what))
    err = capfd.readouterr().err
    assert err.count("no notices come from there") == 1 and "503" in err


def test_an_answer_of_another_server_is_no_notice(server, capfd):
    server.flavor = "none"
    server.set("preempted", "TRUE")
    stop = Asked()
    notices.listen(CFG, stop)
    until(lambda: len(server.asked) >= 4)
    assert stop.what == []
    assert "the answer has no Metadata-Flavor: Google" in capfd.readouterr().err


def test_nobody_listens_unless_asked(server):
    notices.listen(WatchConfig(), Asked())
    time.sleep(0.1)
    assert server.asked == []
