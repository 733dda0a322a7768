"""A docker for tests: one container of the host `STUB_HOST`, a directory, as a process."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HOST = Path(os.environ.get("STUB_HOST", "."))


def _file(name: str) -> Path:
    return HOST / name


def _status() -> str:
    if not _file("created.json").exists():
        return ""
    if _file("code").exists():
        return "exited"
    return "running" if _file("pid").exists() else "created"


def _live() -> None:
    """The container itself."""
    command = json.loads(_file("created.json").read_text())["command"]
    with _file("log").open("ab") as log:
        child = subprocess.Popen(command, stdout=log, stderr=log)
    _file("pid").write_text(str(child.pid))
    code = child.wait()
    _file("code.new").write_text(str(code if code >= 0 else 128 - code))
    _file("code.new").replace(_file("code"))


def _send(number: int) -> None:
    if _status() == "running":
        os.kill(int(_file("pid").read_text()), number)


def _end(grace_s: float) -> None:
    deadline = time.monotonic() + grace_s
    _send(signal.SIGTERM)
    while _status() == "running" and time.monotonic() < deadline:
        time.sleep(0.02)
    _send(signal.SIGKILL)


def _follow() -> None:
    at = 0
    while True:
        ended = _status() != "running"
        with _file("log").open("rb") as log:
            log.seek(at)
            new = log.read()
        os.write(1, new)
        at += len(new)
        if ended:
            return
        time.sleep(0.02)


def main() -> int:
    """`docker VERB FLAGS NAME`."""
    verb, *words = sys.argv[1:]
    with _file("calls.jsonl").open("a") as calls:
        print(json.dumps([verb, *words]), file=calls)
    if verb == "_live":
        _live()
    elif verb == "login":
        _file("token").write_text(sys.stdin.read())
    elif verb == "create":
        if _status():
            return 1
        at = next(i for i, word in enumerate(words) if not word.startswith("--"))
        made = {"flags": words[:at], "image": words[at], "command": words[at + 1 :]}
        _file("created.json").write_text(json.dumps(made))
    elif verb != "pull" and not _status():
        return 0 if verb == "rm" else 1
    elif verb == "start":
        stub = [sys.executable, __file__, "_live"]
        subprocess.Popen(stub, stdout=subprocess.DEVNULL, start_new_session=True)
        while not _file("pid").exists():
            time.sleep(0.01)
    elif verb == "logs":
        _follow()
    elif verb == "wait":
        while _status() != "exited":
            time.sleep(0.02)
        print(_file("code").read_text())
    elif verb == "kill":
        name = words[0].partition("=")[2]
        _send(signal.Signals[f"SIG{name}"])
    elif verb == "stop":
        _end(float(words[1]))
    elif verb == "rm":
        _end(0)
        for name in ("created.json", "pid", "code", "log"):
            _file(name).unlink(missing_ok=True)
    elif verb == "inspect" and words[0].startswith("--format"):
        print(_status())
    return 0


if __name__ == "__main__":
    sys.exit(main())
