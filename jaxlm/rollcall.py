"""The roll call: before a run starts, its process 0 waits for all others, and knows who is missing.

JAX's own start waits for as long, and then aborts without a name. Process 0 listens where JAX's
coordinator will; each other sends a line of JSON, and gets one back when all have come.
"""

import contextlib
import json
import socket
import time
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from jaxlm import records
from jaxlm.errors import EnvironmentProblem, PeerMissing

LINE_BYTES = 1 << 20
READ_S = 2.0
"""For a line that was begun."""


class Member(NamedTuple):
    """A process that has come."""

    host: str
    connection: socket.socket


def listen(host: str | None, port: int) -> socket.socket:
    """Where process 0 listens, by default everywhere; `EnvironmentProblem` if it cannot."""
    try:
        if host is None:
            if socket.has_dualstack_ipv6():
                family = socket.AF_INET6
                return socket.create_server(("", port), family=family, dualstack_ipv6=True)
            return socket.create_server(("", port))
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except OSError as e:
        where = f"--bind={host}, " if host is not None else ""
        raise EnvironmentProblem(
            f"{where}port {port} of --coordinator: process 0 cannot listen there ({e.strerror or e}"
            "). Is another run using the port, is this its host? Choose another"
        ) from e


def hold(server: socket.socket, processes: int, wait_s: float) -> list[str]:
    """Process 0 waits for all others; returns every process's host.

    `PeerMissing` names those that have not come after `wait_s`, `EnvironmentProblem` says what does
    not fit.
    """
    deadline = time.monotonic() + wait_s
    members: dict[int, Member] = {}
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        while len(members) < processes - 1 or len(members := _present(members)) < processes - 1:
            server.settimeout(max(deadline - time.monotonic(), 0.01))
            try:
                connection = stack.enter_context(server.accept()[0])
            except TimeoutError:
                problem = _missing(_present(members), processes, wait_s)
                _answer(members.values(), {"missing": problem})
                raise PeerMissing(problem) from None
            match _read(connection, READ_S):
                case {"process": int(me), "processes": int(count), "host": str(host)}:
                    member = Member(host, connection)
                case _:  # not one of us
                    connection.close()
                    continue
            problem = _misfit(me, count, member, members, processes)
            if problem is not None:
                _answer([*members.values(), member], {"problem": problem})
                raise EnvironmentProblem(problem)
            members[me] = member
        hosts = [socket.gethostname(), *(members[i].host for i in range(1, processes))]
        _answer(members.values(), {"hosts": hosts})
        return hosts


def call(host: str, port: int, process: int, processes: int, wait_s: float) -> list[str]:
    """Any other process reports to process 0; returns every process's host.

    `PeerMissing` if process 0 does not answer for `wait_s`, or if others have not come.
    """
    deadline, why = time.monotonic() + wait_s, "no answer"
    me = {"process": process, "processes": processes, "host": socket.gethostname()}
    while time.monotonic() < deadline:
        try:
            with socket.create_connection((host, port), deadline - time.monotonic()) as connection:
                connection.sendall(json.dumps(me).encode() + b"\n")
                answer = _read(connection, wait_s + READ_S)  # it may have begun to wait later
        except OSError as e:
            answer, why = None, e.strerror or str(e)
        else:
            why = "what answers is not process 0 of a run that starts: is an older one alive?"
        match answer:
            case {"hosts": hosts}:
                return hosts
            case {"missing": problem}:
                raise PeerMissing(problem)
            case {"problem": problem}:
                raise EnvironmentProblem(problem)
        time.sleep(0.2)
    raise PeerMissing(
        f"--coordinator={host}:{port}: process 0 did not answer process {process} within "
        f"{wait_s:.0f} s ({why}). Is it started, is the address right, does a firewall let through?"
    )


def _read(connection: socket.socket, wait_s: float) -> dict[str, Any] | None:
    """A line of JSON; None if that is not what comes."""
    connection.settimeout(wait_s)
    try:
        with connection.makefile("rb") as file:
            found = records.parsed(file.readline(LINE_BYTES))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _answer(members: Iterable[Member], answer: dict[str, Any]) -> None:
    for member in members:
        with contextlib.suppress(OSError):  # it has gone; that is for others to notice
            member.connection.sendall(json.dumps(answer).encode() + b"\n")


def _misfit(
    me: int, its_count: int, member: Member, members: dict[int, Member], processes: int
) -> str | None:
    if its_count != processes:
        return (
            f"process {me} on {member.host} was started with --processes={its_count}, process 0 "
            f"with --processes={processes}; start all with one number"
        )
    before = members.get(me)
    if me == 0 or (before is not None and not _has_left(before.connection)):
        host = socket.gethostname() if before is None else before.host
        return f"two processes say --process={me}, on {host} and {member.host}; give each its own"
    return None


def _present(members: dict[int, Member]) -> dict[int, Member]:
    return {i: member for i, member in members.items() if not _has_left(member.connection)}


def _has_left(connection: socket.socket) -> bool:
    connection.setblocking(False)
    try:
        return connection.recv(1, socket.MSG_PEEK) == b""
    except BlockingIOError:
        return False
    except OSError:
        return True
    finally:
        connection.settimeout(READ_S)


def _missing(members: dict[int, Member], processes: int, wait_s: float) -> str:
    missing = [str(i) for i in range(1, processes) if i not in members]
    came = ["0", *(f"{i} ({m.host})" for i, m in sorted(members.items()))]
    return (
        f"{len(missing)} of {processes} processes did not come within {wait_s:.0f} s: "
        f"{some(missing)}. Here are: {some(came)}"
    )


def some(names: Sequence[str]) -> str:
    """The first of them, for a message."""
    return ", ".join(names[:20]) + (" ..." if len(names) > 20 else "")
