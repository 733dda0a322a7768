"""Runs a job on hosts that are reached by ssh, one process each, and starts it again while that
helps.

This launcher stays until the job has ended, and ssh's connections with it. A connection that is
lost ends its process: it saves if the others do, and is killed after a minute.
"""

import argparse
import concurrent.futures
import ipaddress
import re
import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from launch import arguments, exits, foreground, place
from launch.job import Job, logs_of
from launch.place import Place
from launch.process import Spec
from launch.tool import Refused, Tool

CHECK_S = 120.0
"""That a host may take to answer, and to start Python."""
_OPTIONS = (
    "BatchMode=yes",  # no questions: nobody would answer
    "ConnectTimeout=20",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=4",
)
_NAME = r"([\w.-]+@)?(?P<name>[A-Za-z0-9_][\w.-]*|\[[0-9a-fA-F:.]+\])"
_HOST = re.compile(_NAME, re.ASCII), re.compile(rf"ssh://{_NAME}(:\d+)?/?", re.ASCII)
SSH = Tool(
    missing="install an OpenSSH client",
    noise="Warning: |Pseudo-terminal",
    remedies=(
        ("Permission denied|Host key verification", "make `ssh HOST true` work without questions"),
        ("Connection|resolve hostname|No route|timed out|closed by", "can it be reached by ssh?"),
        ("No module named", "is the project's code there? --directory says where"),
        ("[Nn]o such file", "the code and its Python must be there: --directory, --python"),
    ),
)

_EPILOG = """\
All other arguments, or those after --, go to `jaxlm train`: --config=FILE, --config.a.b=VALUE ...

  python -m launch ssh status --workdir=DIR     whether it runs, and how far it is
  python -m launch ssh logs --workdir=DIR --process=N
  python -m launch ssh stop --workdir=DIR       every process saves and ends

hosts     a file with a destination of ssh's a line, as name, user@name or ssh://user@name:port;
          # begins a comment; process 0 runs on the first one
needs     ssh to all of them without a password, to any login shell but tcsh; the same code, Python,
          corpus and work directory (or URLs) on all of them; the first one's port 61440 or one of
          the 4,095 above it
output    of process 0 as it is, of others after "[index] "; here in LOGS/ssh-I.log, on each host
          in LOGS/process-I.log

Failures and exit codes are those of `python -m launch local`; a host that is lost is one more
reason to start again.
"""


@dataclass(frozen=True)
class Hosts:
    """Where a job runs, and how its hosts are reached."""

    names: tuple[str, ...]
    """Destinations of ssh; process 0 runs on the first one."""
    coordinator: str
    """HOST:PORT of process 0, as the others see it."""
    bind: str = ""
    directory: str = "."
    """Of the project, on each host."""
    python: str = sys.executable
    setup: tuple[str, ...] = ()
    """Lines of shell before all else."""
    ssh: tuple[str, ...] = ()
    """More of ssh's own flags."""

    def command(self, index: int, words: Sequence[str]) -> tuple[str, ...]:
        """Runs a module of the project's, with its arguments, on a host."""
        program = shlex.join((self.python, "-m", *words))
        lines = (f"cd {shlex.quote(self.directory)} || exit 78", *self.setup, f"exec {program}")
        options = (f"-o{option}" for option in _OPTIONS)
        return ("ssh", *options, *self.ssh, "--", self.names[index], "\n".join(lines))


def plan(hosts: Hosts, workdir: str, logs: Path, train: Sequence[str]) -> tuple[Spec, ...]:
    """A launcher on each host, without an end of its own: it hears and tells by its connection."""
    how = ("launch", "host", "--once", "--tell", "--listen")
    where = (f"--workdir={workdir}", f"--logs={logs}")
    count = len(hosts.names)
    places = (Place(i, count, hosts.coordinator, hosts.bind).flags for i in range(count))
    return tuple(
        Spec(
            index=i,
            command=hosts.command(i, (*how, *flags, *where, "--", *train)),
            log=logs / f"ssh-{i}.log",
            listens=True,
        )
        for i, flags in enumerate(places)
    )


def check(hosts: Hosts) -> None:
    """Whether each host can start its launcher. `Refused` with the first that cannot, and why."""

    def one(index: int) -> str:
        command = hosts.command(index, ("launch", "host", "--help"))
        try:
            SSH.call(command, wait_s=CHECK_S, name=hosts.names[index])
        except Refused as e:
            return str(e)
        return ""

    with concurrent.futures.ThreadPoolExecutor(64) as pool:
        failed = [(i, why) for i, why in enumerate(pool.map(one, range(len(hosts.names)))) if why]
    if failed:
        others = ", ".join(hosts.names[i] for i, _ in failed[1:6])
        others += f" and {len(failed) - 6} more" if len(failed) > 6 else ""
        raise Refused(failed[0][1] + (f"; nor can be used: {others}" if others else ""))


# ---- command line --------------------------------------------------------------------------------


def main(argv: Sequence[str]) -> int:
    """`python -m launch ssh [status|logs|stop] ARGUMENTS`; returns the exit code."""
    return arguments.act(argv, foreground.actions("ssh", "ssh-{}.log"), _submit)


def _submit(argv: Sequence[str]) -> int:
    args, train = arguments.split(_parser(), argv)
    names = read(args.hosts)
    hosts = Hosts(
        names=names,
        coordinator=_coordinator(names, args),
        bind=args.bind,
        directory=args.directory,
        python=args.python,
        setup=tuple(args.setup),
        ssh=tuple(args.ssh),
    )
    logs = args.logs or logs_of(args.workdir)
    specs = plan(hosts, args.workdir, logs, train)
    if args.dry_run:
        for spec in specs:
            print(shlex.join(spec.command))
        return exits.DONE
    check(hosts)
    job = Job(args.workdir, logs, lambda: specs, max_restarts=args.max_restarts)
    return foreground.run(job)


def read(path: Path) -> tuple[str, ...]:
    """The destinations in a file; `ValueError` for what is none, or there twice."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"--hosts={path}: cannot be read ({e})") from None
    found = dict[str, int]()
    for number, line in enumerate(lines, 1):
        name = line.partition("#")[0].strip()
        if name and not _host(name):
            raise ValueError(
                f"{path}:{number}: {name!r} is no host; write [user@]name, or "
                "ssh://[user@]name:PORT"
            )
        if name in found:
            raise ValueError(f"{path}:{number}: {name} is there already, in line {found[name]}")
        if name:
            found[name] = number
    if not found:
        raise ValueError(f"--hosts={path}: names no host; write one a line")
    return tuple(found)


def _host(destination: str) -> str:
    """The host's own name in it; empty if it is none."""
    plain, url = _HOST
    found = plain.fullmatch(destination) or url.fullmatch(destination)
    return found["name"] if found else ""


def _coordinator(names: Sequence[str], args: argparse.Namespace) -> str:
    """HOST:PORT of process 0; `ValueError` if the others could not reach it."""
    if args.coordinator and _host(args.coordinator) != args.coordinator:
        raise ValueError(f"--coordinator={args.coordinator}: write the address alone")
    hosts = [_host(name) for name in names]
    first = args.coordinator or hosts[0]
    if _is_loopback(first) and not all(map(_is_loopback, hosts)):
        raise ValueError(
            f"{first}: process 0 is there, and others cannot reach it by that name; use another in "
            "--hosts, or --coordinator=ADDRESS"
        )
    return f"{first}:{place.port_of(args.workdir)}"


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:  # a name
        return False


def _parser() -> argparse.ArgumentParser:
    parser = arguments.Parser(
        "ssh",
        usage="--hosts=FILE --workdir=DIR --config=FILE [--config.a.b=VALUE ...]",
        description=__doc__ or "",
        epilog=_EPILOG,
    )
    add = parser.add_argument
    add("--hosts", type=Path, required=True, metavar="FILE", help="a destination of ssh's a line")
    add("--workdir", required=True, metavar="DIR", help="of the run, shared, or gs://, s3://")
    add("--logs", type=Path, metavar="DIR", help="default: WORKDIR/logs, of a URL runs/NAME/logs")
    default = "on each host (default: the same as here)"
    add("--directory", default=str(Path.cwd()), metavar="DIR", help=f"of the project {default}")
    add("--python", default=sys.executable, metavar="FILE", help=default)
    add("--coordinator", default="", metavar="ADDRESS", help="of the first host, as others see it")
    add("--bind", default="", metavar="ADDRESS", help="where process 0 listens; default everywhere")
    setup = "line of shell before all else, as 'export NCCL_SOCKET_IFNAME=eth1'; may be repeated"
    add("--setup", action="append", default=[], metavar="LINE", help=setup)
    more = "of ssh's own, as --ssh=-p2222; may be repeated"
    add("--ssh", action="append", default=[], metavar="FLAG", help=more)
    restarts = "give up after K restarts without progress (default %(default)s)"
    number = arguments.whole(0)
    add("--max-restarts", type=number, default=Job.max_restarts, metavar="K", help=restarts)
    add("--dry-run", action="store_true", help="print what would be run")
    return parser
