"""Real sshds on this machine, each on a port of its own: hosts for `python -m launch ssh`."""

import contextlib
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

from launch.job import free_port

CONF = """\
ListenAddress 127.0.0.1:{port}
HostKey {root}/host_key
AuthorizedKeysFile {root}/key.pub
PidFile none
StrictModes no
UsePAM no
PermitRootLogin yes
PrintMotd no
"""


@contextlib.contextmanager
def hosts(root: Path, count: int) -> Iterator[list[str]]:
    """Their destinations, and `flags(root)` for ssh to reach them."""
    path = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:/usr/bin")
    assert path is not None, "sshd: apt-get install openssh-server"
    root.mkdir(parents=True)
    for name in ("host_key", "key"):
        command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", root / name)
        subprocess.run(command, check=True)
    with contextlib.suppress(PermissionError):  # another user's sshd needs none
        Path("/run/sshd").mkdir(exist_ok=True)
    names = []
    with contextlib.ExitStack() as stack:
        for index in range(count):
            port = free_port()
            conf, log = root / f"{index}.conf", root / f"{index}.log"
            conf.write_text(CONF.format(port=port, root=root))
            sshd = subprocess.Popen([path, "-D", "-f", conf, "-E", log])
            stack.callback(sshd.wait)
            stack.callback(sshd.terminate)
            names.append(f"ssh://127.0.0.1:{port}")
            deadline = time.monotonic() + 20
            while not (log.exists() and "Server listening" in log.read_text()):
                assert sshd.poll() is None and time.monotonic() < deadline, log.read_text()
                time.sleep(0.02)
        yield names


def flags(root: Path) -> list[str]:
    """Of ssh."""
    options = ("StrictHostKeyChecking=no", f"UserKnownHostsFile={root}/known", "LogLevel=ERROR")
    return ["-F/dev/null", f"-i{root}/key", *(f"-o{option}" for option in options)]
