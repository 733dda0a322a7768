"""The roll call over real sockets: who comes, who does not, and who is not one of us."""

import json
import socket
import threading
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from jaxlm import rollcall
from jaxlm.errors import EnvironmentProblem, PeerMissing

HOST = "127.0.0.1"


@pytest.fixture
def server():
    with rollcall.listen(HOST, 0) as server:
        yield server


@pytest.fixture
def pool():
    with ThreadPoolExecutor(4) as pool:
        yield pool


def port(server: socket.socket) -> int:
    return server.getsockname()[1]


def call(
    pool: ThreadPoolExecutor, server: socket.socket, process: int, processes: int = 3
) -> Future[list[str]]:
    return pool.submit(rollcall.call, HOST, port(server), process, processes, 5.0)


def test_all_come(server, pool):
    others = [call(pool, server, i) for i in (2, 1)]
    hosts = [socket.gethostname()] * 3
    assert rollcall.hold(server, 3, 5.0) == hosts
    assert [other.result() for other in others] == [hosts, hosts]


def test_one_does_not_come(server, pool):
    other = call(pool, server, 2)
    message = r"^1 of 3 processes did not come within 0 s: 1. Here are: 0, 2 \(.+\)$"
    with pytest.raises(PeerMissing, match=message) as raised:
        rollcall.hold(server, 3, 0.4)
    assert raised.value.exit_code == 75
    with pytest.raises(PeerMissing, match=message):
        other.result()


def test_process_0_does_not_answer():
    with socket.create_server((HOST, 0)) as closed:
        number = port(closed)
    with pytest.raises(PeerMissing, match="process 0 did not answer process 1 within 0 s"):
        rollcall.call(HOST, number, 1, 2, 0.3)


def test_what_answers_may_be_no_run_that_starts():
    with socket.create_server((HOST, 0)) as stranger:

        def serve() -> None:
            while True:
                try:
                    connection = stranger.accept()[0]
                except OSError:
                    return
                with connection:
                    connection.sendall(b"PRI * HTTP/2.0\r\n")

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        with pytest.raises(PeerMissing, match="not process 0 of a run that starts"):
            rollcall.call(HOST, port(stranger), 1, 2, 0.5)


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\n", b"[]\n", b'{"process": "1"}\n'])
def test_a_stranger_is_not_counted(server, pool, said):
    with socket.create_connection((HOST, port(server))) as stranger:
        stranger.sendall(said)
        stranger.shutdown(socket.SHUT_WR)
        others = [call(pool, server, i) for i in (1, 2)]
        assert len(rollcall.hold(server, 3, 5.0)) == 3
    assert [len(other.result()) for other in others] == [3, 3]


def test_another_number_of_processes(server, pool):
    other = call(pool, server, 1, processes=4)
    message = "process 1 on .+ was started with --processes=4, process 0 with --processes=3"
    with pytest.raises(EnvironmentProblem, match=message):
        rollcall.hold(server, 3, 5.0)
    with pytest.raises(EnvironmentProblem, match=message):
        other.result()


def test_two_of_one_number(server, pool):
    others = [call(pool, server, 1) for _ in range(2)]
    with pytest.raises(EnvironmentProblem, match="two processes say --process=1"):
        rollcall.hold(server, 3, 5.0)
    for other in others:
        with pytest.raises(EnvironmentProblem, match="two processes say --process=1"):
            other.result()


def come_and_leave(server: socket.socket) -> None:
    with socket.create_connection((HOST, port(server))) as dead:
        me = {"process": 1, "processes": 3, "host": "old"}
        dead.sendall(json.dumps(me).encode() + b"\n")


def test_one_that_comes_again_takes_its_place(server, pool):
    come_and_leave(server)
    again, other = call(pool, server, 1), call(pool, server, 2)
    hosts = rollcall.hold(server, 3, 5.0)
    assert "old" not in hosts
    assert again.result() == other.result() == hosts


def test_one_that_has_left_is_waited_for(server, pool):
    come_and_leave(server)
    other = call(pool, server, 2)
    held = pool.submit(rollcall.hold, server, 3, 5.0)
    with pytest.raises(TimeoutError):
        held.result(0.5)
    again = call(pool, server, 1)
    assert again.result() == other.result() == held.result()
    assert "old" not in held.result()


def test_one_that_has_left_is_missing(server, pool):
    come_and_leave(server)
    other = call(pool, server, 2)
    with pytest.raises(PeerMissing, match=r"^1 of 3 processes did not come within 0 s: 1. Here"):
        rollcall.hold(server, 3, 0.4)
    with pytest.raises(PeerMissing):
        other.result()


def test_a_port_that_is_taken(server):
    with pytest.raises(EnvironmentProblem, match="cannot listen there"):
        rollcall.listen(HOST, port(server))


def test_it_listens_where_it_is_told(server):
    assert server.getsockname()[0] == HOST
    with rollcall.listen(None, 0) as everywhere:
        assert everywhere.getsockname()[0] in ("::", "0.0.0.0")
