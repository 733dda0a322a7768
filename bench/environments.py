"""Environments of other programs, made from the package registry and kept.

Where pip is given an index that has them (PIP_EXTRA_INDEX_URL), PyTorch's builds for CPUs are
taken, which are smaller by 5 GB; the CPU's code in both is the same.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Missing(Exception):
    """An environment that cannot be made here, and why."""


class Environment(NamedTuple):
    """What is installed, in this order, and by which Python."""

    requirements: tuple[str, ...]
    listed: str = ""
    """A file of requirements that one of them brings, under its `site-packages`."""
    python: str = ""
    """The version it asks for; that of this process will do otherwise."""


ENVIRONMENTS = {
    "torch": Environment(("torch==2.14.1", "transformers==5.24.0")),
    "maxtext": Environment(
        ("maxtext==0.2.5",),
        "dependencies/requirements/generated_requirements/decoupled-requirements.txt",
        "3.12",
    ),
}


def make(name: str, root: Path) -> Path:
    """The Python of an environment under `root`; raises `Missing`."""
    environment, place = ENVIRONMENTS[name], root / name
    python, marker, wanted = place / "bin/python", place / "installed", repr(ENVIRONMENTS[name])
    if marker.is_file() and marker.read_text() == wanted:
        return python.absolute()
    print(f"{place}: installing {', '.join(environment.requirements)}", flush=True)
    log = root / f"{name}.log"
    log.unlink(missing_ok=True)
    _call([_python(environment.python), "-m", "venv", "--clear", str(place)], log)
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check"]
    _call([*pip, *environment.requirements], log)
    if environment.listed:
        (listed,) = place.glob(f"lib/python*/site-packages/{environment.listed}")
        _call([*pip, "-r", str(listed)], log)
    marker.write_text(wanted)
    return python.absolute()


def _call(command: list[str], log: Path) -> None:
    with log.open("a") as output:
        code = subprocess.call(command, stdout=output, stderr=subprocess.STDOUT)
    if code:
        lines = [line for line in log.read_text().splitlines() if line.startswith("ERROR")]
        raise Missing(f"not installed: {lines[-1] if lines else f'exit code {code}'} ({log})")


def _python(version: str) -> str:
    """One of that version, or this one."""
    return next((path for path in _candidates(version) if _usable(path)), sys.executable)


def _candidates(version: str) -> Iterator[str]:
    if not version or version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return
    yield from filter(None, [shutil.which(f"python{version}")])
    for root in (os.environ.get("PYENV_ROOT"), Path.home() / ".pyenv"):
        if root:
            yield from map(str, Path(root).glob(f"versions/{version}.*/bin/python"))


def _usable(python: str) -> bool:
    """pyenv's shims exist without a Python behind them."""
    return not subprocess.call([python, "-c", "import venv, ensurepip"], stderr=subprocess.DEVNULL)
