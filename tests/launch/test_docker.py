"""Dockerfiles: linted, all fixed, and the commands run with no more than what is copied.

Which packages pip would install, and a training there: tests/system/test_images.py.
"""

import re

import pytest

from jaxlm import preflight
from tests.launch import images, jobsets
from tests.launch.test_clusters import lines

IGNORED = (images.ROOT / ".dockerignore").read_text(encoding="utf-8")
TPU = images.text("tpu")


@pytest.fixture(scope="module")
def env(tmp_path_factory) -> dict[str, str]:
    return images.environment(tmp_path_factory.mktemp("python"))


@pytest.mark.parametrize("name", images.NAMES)
def test_nothing_is_wrong_with_it(name):
    dockerfile = images.text(name)
    assert images.lint(dockerfile) == []
    assert list(images.loose(dockerfile)) == []
    assert images.missing(dockerfile, images.context(images.ROOT, IGNORED)) == []


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        (r"^FROM .*", "FROM python:latest", "DL3007"),
        (r"WORKDIR /jaxlm", "WORKDIR jaxlm", "DL3000"),
        (r"--constraint\S+ --requirement\S+ .*", "jax", "DL3013"),
        (r"--no-cache-dir ", "", "DL3042"),
        (r"^CMD .*", "CMD python -m launch", "DL3025"),
        (r"^CMD .*", "RUN cd launch", "DL3003"),
        (r"^CMD .*", "CMND python", "DL1000"),
    ],
)
def test_lint_would_see(old, new, code):
    changed = re.sub(old, new, TPU, flags=re.MULTILINE)
    assert changed != TPU and any(code in found for found in images.lint(changed))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (r"@sha256:\w+", ""),
        (r"@sha256:\w", "@sha256:"),
        (r"3\.13\.15-", "3.13-"),
        (r"--constraint\S+", ""),
        (r"^CMD .*", "RUN apt-get install -y slurm-wlm"),
    ],
)
def test_what_is_loose_would_be_seen(old, new):
    changed = re.sub(old, new, TPU, flags=re.MULTILINE)
    assert changed != TPU and len(list(images.loose(changed))) == 1


def test_both_are_one_but_for_the_accelerator():
    gpu = images.text("gpu")
    assert "'jax[tpu]'" in TPU and "'jax[cuda13]'" in gpu
    same = TPU.replace("jax[tpu]", "jax[cuda13]").replace("TPU", "GPU").replace("tpu.", "gpu.")
    assert same == gpu


def test_packages_are_installed_before_any_code_is_there():
    found = images.instructions(TPU)
    install = [kind for kind, _ in found].index("RUN")
    assert ("COPY", "pyproject.toml constraints.txt ./") in found[:install]
    assert ("COPY", "jaxlm jaxlm") in found[install:]


# ---- what a build is given -----------------------------------------------------------------------


def test_a_build_is_given_what_is_copied_and_no_more(tmp_path):
    kept = ("jaxlm/cli.py", "jaxlm/plan/chips.toml", "configs/own.py", "constraints.txt")
    out = (
        ".git/config",
        ".venv/bin/python",
        ".env",
        "runs/own/data/manifest.json",
        "tests/launch/test_docker.py",
        "jaxlm/__pycache__/cli.cpython-313.pyc",
        "jaxlm/plan/__pycache__/chips.pyc",
        "key.json",
    )
    for name in (*kept, *out):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    assert images.context(tmp_path, IGNORED) == set(kept)
    assert {*out} <= images.context(tmp_path, "")  # it would be seen

    copied = {word for value in images.values(TPU, "COPY") for word in value.split()[:-1]}
    given = images.context(images.ROOT, IGNORED) - {".dockerignore", "launch/docker/tpu.Dockerfile"}
    assert {name.partition("/")[0] for name in given} == copied


@pytest.mark.parametrize("source", ["nowhere", "tests", "jaxlm/nowhere.py", "jaxl", "README.md"])
def test_a_source_that_a_build_is_not_given_would_be_seen(source):
    given = images.context(images.ROOT, IGNORED)
    assert images.missing(f"{TPU}COPY {source} launch ./\n", given) == [source]


# ---- what is copied runs -------------------------------------------------------------------------


@pytest.mark.parametrize("name", images.NAMES)
def test_commands_run_there(name, env, tmp_path):
    here = images.build(images.text(name), images.ROOT, tmp_path)
    assert here == tmp_path / "jaxlm" and not (here / ".git").exists()
    assert preflight.code(here / "jaxlm") == preflight.code(images.ROOT / "jaxlm")

    code, said = images.say(images.command(images.text(name)), here, env)
    assert code == 0 and said.startswith("usage: python -m launch LAUNCHER")
    where = "import jaxlm, data_tools, launch; print(jaxlm.__file__, launch.__file__)"
    files = f"{here / 'jaxlm/__init__.py'} {here / 'launch/__init__.py'}\n"
    assert images.say(["python", "-c", where], here, env) == (0, files)


def test_the_command_of_a_pod_runs_there(env, tmp_path):
    here = images.build(TPU, images.ROOT, tmp_path)
    job = jobsets.manifest(jobsets.make("v5p:4x4x8"))["spec"]["replicatedJobs"][0]
    pod = job["template"]["spec"]["template"]["spec"]["containers"][0]
    at = pod["command"].index("--")
    command = [*pod["command"][:at], "--dry-run", *pod["command"][at:]]
    place = {entry["name"]: entry.get("value", "0") for entry in pod["env"]}
    code, said = images.say(command, here, {**env, **place, "JOB_COMPLETION_INDEX": "3"})
    assert code == 0, said
    assert f"-m jaxlm train --workdir={jobsets.WORKDIR} " in said and said.endswith("--process=3\n")


@pytest.mark.parametrize(
    ("dockerfile", "module"),
    [
        (TPU.replace("COPY jaxlm jaxlm\n", ""), "jaxlm"),
        (TPU.replace("COPY data_tools data_tools\n", ""), "data_tools"),
        (TPU.replace("COPY launch launch\n", "COPY launch/ ./\n"), "launch"),
    ],
)
def test_what_is_not_copied_would_be_missed(dockerfile, module, env, tmp_path):
    """Though an editable installation of this checkout may be there."""
    here = images.build(dockerfile, images.ROOT, tmp_path)
    code, said = images.say(["python", "-c", f"import {module}"], here, env)
    assert code == 1 and f"No module named '{module}'" in said


# ---- the page ------------------------------------------------------------------------------------


def test_the_page_builds_a_file_that_is_there_and_submits_that_image():
    (build,), (push,) = lines("docker build"), lines("docker push")
    flags = dict(word[2:].split("=") for word in build if word.startswith("--"))
    assert (images.ROOT / flags["file"]).is_file() and build[-1] == "."
    assert flags["platform"] == "linux/amd64"
    assert flags["tag"] == push[-1]
    submitted = [line for line in lines("python -m launch gke") if "--slices=2" in line]
    assert submitted and all(f"--image={flags['tag']}" in line for line in submitted)
    registry = flags["tag"].partition("/")[0]
    assert ["gcloud", "auth", "configure-docker", registry] in lines("gcloud auth")
