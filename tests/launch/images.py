"""Dockerfiles without Docker: they are read, linted, and their steps done in a directory."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from pathlib import Path

from docker.utils.build import exclude_paths
from dockerfile_parse import DockerfileParser

ROOT = Path(__file__).parents[2]
NAMES = ("tpu", "gpu")
HADOLINT = Path(sys.executable).with_name("hadolint")
BASE = re.compile(r"python:(3\.\d+)\.\d+-slim-bookworm@sha256:[0-9a-f]{64}")
GLIBC = 36
"""Debian bookworm's, 2.36."""


def text(name: str) -> str:
    """Of an image's Dockerfile."""
    return (ROOT / f"launch/docker/{name}.Dockerfile").read_text(encoding="utf-8")


def instructions(dockerfile: str) -> list[tuple[str, str]]:
    """(`COPY`, its words) and so on, in order."""
    found = DockerfileParser(fileobj=BytesIO(dockerfile.encode())).structure
    return [(i["instruction"], i["value"]) for i in found if i["instruction"] != "COMMENT"]


def values(dockerfile: str, instruction: str) -> list[str]:
    """Of all instructions of that kind."""
    return [value for kind, value in instructions(dockerfile) if kind == instruction]


def command(dockerfile: str) -> list[str]:
    """What a container runs if it is told nothing."""
    return json.loads(values(dockerfile, "CMD")[-1])


# ---- what is wrong with it -----------------------------------------------------------------------


def lint(dockerfile: str) -> list[str]:
    """What hadolint finds."""
    line = [HADOLINT, "--no-fail", "--format=json", "-"]
    done = subprocess.run(line, input=dockerfile, capture_output=True, text=True, check=True)
    return [f"{found['code']}: {found['message']}" for found in json.loads(done.stdout)]


def loose(dockerfile: str) -> Iterator[str]:
    """What is not fixed: a base without its digest, a command that is no pip with our pins."""
    for base in values(dockerfile, "FROM"):
        if not BASE.fullmatch(base):
            yield f"FROM {base}: is not {BASE.pattern}"
    for run in values(dockerfile, "RUN"):
        for step in run.split("&&"):
            tool, *words = step.split()
            if tool not in ("python", "pip"):
                yield f"RUN {step.strip()}: is neither python nor pip"
            if tool == "pip" and "--constraint=constraints.txt" not in words:
                yield f"RUN {step.strip()}: has no --constraint=constraints.txt"


def context(root: Path, ignored: str) -> set[str]:
    """The files below `root` that a build is given, as `.dockerignore` says."""
    found = exclude_paths(str(root), ignored.split(), "launch/docker/tpu.Dockerfile")
    return {name for name in found if (root / name).is_file()}


def missing(dockerfile: str, given: set[str]) -> list[str]:
    """What it copies and a build is not given."""
    words = [value.split()[:-1] for value in values(dockerfile, "COPY")]
    return [source for sources in words for source in sources if not list(_below(source, given))]


def _below(source: str, given: set[str]) -> Iterator[tuple[str, str]]:
    """A file of the context, and where it is in `source`: "" if it is the source itself."""
    for name in given:
        if name == source or name.startswith(source + "/"):
            yield name, name[len(source) + 1 :]


# ---- done in a directory -------------------------------------------------------------------------


def build(
    dockerfile: str, root: Path, image: Path, run: Callable[[str, Path], None] = lambda *_: None
) -> Path:
    """Copies into `image` what the image would have, and calls `run` with each RUN and its place.

    Returns the working directory.
    """
    here, given = image, context(root, (ROOT / ".dockerignore").read_text(encoding="utf-8"))
    for kind, value in instructions(dockerfile):
        if kind == "WORKDIR":
            here = image / value.lstrip("/")
            here.mkdir(parents=True)
        elif kind == "COPY":
            *sources, to = value.split()
            for source in sources:
                for name, inside in _below(source, given):
                    inside = inside or (Path(name).name if to.endswith("/") else "")
                    path = here / to / inside
                    path.parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(root / name, path)
        elif kind == "RUN":
            run(value, here)
    return here


def environment(place: Path) -> dict[str, str]:
    """In which `python` has all packages, and nothing of this checkout.

    An editable installation is not seen by an interpreter that only finds its directory.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True)
    packages = [path for path in sys.path if path.endswith("site-packages")]
    here = next(place.glob("lib/python*/site-packages"))
    (here / "packages.pth").write_text("".join(f"{path}\n" for path in packages))
    pip = place / "bin/pip"
    pip.write_text('#!/bin/sh\nexec python -m pip "$@"\n')
    pip.chmod(0o755)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**kept, "PATH": f"{place / 'bin'}:{os.environ['PATH']}"}


def say(command: Sequence[str | Path], here: Path, env: Mapping[str, str]) -> tuple[int, str]:
    """Runs a command: its exit code, and all that it says."""
    done = subprocess.run(command, cwd=here, env=env, capture_output=True, text=True)
    return done.returncode, done.stdout + done.stderr


def resolve(
    run: str, here: Path, env: Mapping[str, str], python: str
) -> tuple[dict[str, str], str]:
    """Runs a RUN whose pip installs nothing; what it would install for this Python, and its words.

    Name -> version, for Linux on x86-64 with bookworm's glibc.
    """
    report = here / "report.json"
    options = {
        "DRY_RUN": "1",
        "IGNORE_INSTALLED": "1",
        "REPORT": str(report),
        "QUIET": "1",
        "DISABLE_PIP_VERSION_CHECK": "1",
        "TARGET": str(here / "nowhere"),
        "PYTHON_VERSION": python,
        "PLATFORM": " ".join(
            [f"manylinux_2_{n}_x86_64" for n in range(GLIBC, 4, -1)]
            + [f"manylinux{n}_x86_64" for n in (2014, 2010, 1)]
        ),
    }
    told = {f"PIP_{name}": value for name, value in options.items()}
    code, said = say(["/bin/sh", "-c", run], here, {**env, **told})
    if code != 0:
        return {}, said
    found = [package["metadata"] for package in json.loads(report.read_text())["install"]]
    return {normal(package["name"]): package["version"] for package in found}, said


def pins(constraints: str) -> dict[str, str]:
    """Name -> version, of lines NAME==VERSION."""
    found = [line.split("==") for line in constraints.splitlines()]
    return {normal(name): version for name, version in found}


def unpinned(installed: Mapping[str, str], pinned: Mapping[str, str]) -> list[str]:
    """What would be installed and has no pin, or another."""
    return [
        f"{name}=={version}: the pin is {pinned.get(name)}"
        for name, version in installed.items()
        if pinned.get(name) != version
    ]


def normal(name: str) -> str:
    """A package's name, however it is written."""
    return re.sub("[-_.]+", "-", name).lower()
