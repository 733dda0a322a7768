"""The lock of a work directory in a store: one holder, told apart from a dead one."""

import json
import subprocess
import sys
import threading
import time

import pytest

from bench.stores import Fault, Proxy, put
from jaxlm import lease, storage
from jaxlm.errors import EnvironmentProblem
from jaxlm.lease import Holder, Lease, Lost
from tests.launch.watch import until


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lease, "RENEW_S", 0.2)
    monkeypatch.setattr(lease, "DEAD_S", 3.0)
    monkeypatch.setattr(lease, "REFUSE_S", 1.0)
    monkeypatch.setattr(lease, "LOOK_S", 0.1)
    monkeypatch.setattr(storage, "WAITS_S", (0.01, 0.01, 0.01))


@pytest.fixture
def url(store: Proxy, request: pytest.FixtureRequest) -> str:
    return store.url(f"{request.node.originalname}/lock")


def never(why: str) -> None:
    raise AssertionError(why)


def somebody(machine: str, pid: int = 1) -> Holder:
    return Holder("name", "a-host", machine, pid, time.time())


def write(store: Proxy, url: str, holder: Holder) -> None:
    put(store, url.split("/", 3)[3], json.dumps(holder._asdict()).encode())


def test_it_is_held_renewed_and_given_back(url):
    with Lease(url, never) as held:
        first = json.loads(storage.read_text(url))
        assert lease.holder(url) is not None
        time.sleep(1.0)
        held.confirm()
        later = json.loads(storage.read_text(url))
        assert later["time"] > first["time"] and later["name"] == first["name"]
    assert lease.holder(url) is None
    with pytest.raises(FileNotFoundError):
        storage.read_text(url)
    with Lease(url, never):  # and can be had again
        pass


def test_a_second_one_is_refused_while_the_first_lives(url, monkeypatch):
    monkeypatch.setattr(lease, "DEAD_S", 60.0)
    with Lease(url, never):
        monkeypatch.setattr(lease, "_machine", lambda: "another")
        began = time.monotonic()
        with pytest.raises(EnvironmentProblem, match="is training there"), Lease(url, never):
            pass
        assert time.monotonic() - began < lease.DEAD_S


def test_of_several_at_once_one_gets_it(url):
    held, refused = [], []

    def take() -> None:
        try:
            with Lease(url, never):
                held.append(1)
                assert len(held) == 1
                until(lambda: len(refused) == 3)
                held.pop()
        except EnvironmentProblem:
            refused.append(1)

    threads = [threading.Thread(target=take) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not held and len(refused) == 3


def test_a_process_of_this_machine_that_is_gone_is_not_waited_for(store, url, monkeypatch):
    monkeypatch.setattr(lease, "DEAD_S", 60.0)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    write(store, url, somebody(lease._machine(), gone.pid))
    began = time.monotonic()
    with Lease(url, never):
        assert time.monotonic() - began < lease.DEAD_S / 2


def test_a_holder_elsewhere_that_does_not_write_is_dead_after_a_while(store, url, capsys):
    write(store, url, somebody("elsewhere"))
    began = time.monotonic()
    with Lease(url, never):
        assert time.monotonic() - began > lease.DEAD_S
    assert "pid 1 on a-host; waiting to see" in capsys.readouterr().err


def test_a_store_that_was_away_is_no_sign_of_a_dead_holder(store, url, monkeypatch):
    """It kept the holder from writing, too."""
    monkeypatch.setattr(lease, "RENEW_S", 1000)
    with Lease(url, never) as held:
        monkeypatch.setattr(lease, "_machine", lambda: "another")
        held.confirm()
        look, looks = Lease._look, []

        def slow(self: Lease):
            looks.append(time.monotonic())
            if len(looks) == 3:
                time.sleep(lease.DEAD_S)
            return look(self)

        monkeypatch.setattr(Lease, "_look", slow)
        with Lease(url, never):
            pass
    assert len(looks) > 0.8 * lease.DEAD_S / lease.LOOK_S


def test_whose_lease_was_taken_over_is_told_and_may_not_confirm(store, url):
    why: list[str] = []
    told = threading.Event()
    with Lease(url, lambda text: (why.append(text), told.set())) as held:  # type: ignore[func-returns-value]
        write(store, url, somebody("elsewhere"))
        assert told.wait(60)
        with pytest.raises(Lost, match="pid 1 on a-host has taken it over"):
            held.confirm()
    assert "did not write to it for too long" in why[0]
    assert json.loads(storage.read_text(url))["host"] == "a-host"  # it is left to its holder


def test_a_store_that_fails_for_a_while_loses_no_lease(store, url):
    with Lease(url, never) as held:
        method = "PUT" if store.scheme == "s3" else "POST"
        store.faults.append(Fault("503", "lock", times=2, method=method))
        store.faults.append(Fault("reset", "lock", times=2, method=method))
        until(lambda: not any(fault.times for fault in store.faults))  # they came
        held.confirm()


def test_an_object_that_is_no_lease_is_written_over(store, url):
    put(store, url.split("/", 3)[3], b"what is this")
    with Lease(url, never):
        assert lease.holder(url) is not None
