"""`setup.sh` with stand-ins for Python, in a directory whose name has a space."""

import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = ("cat", "cksum", "cp", "dirname", "grep", "mkdir", "rm", "sed")

PYTHON = """#!/bin/sh
case "$1 $2" in
    "-c "*) echo 3.13.9 ;;
    "-m venv") mkdir -p "$3/bin" && cp "$0" "$3/bin/python" && cp "$0" "$3/bin/python3" ;;
    "-m pip") echo pip >>log; [ ! -e broken ] ;;
esac
"""


@pytest.fixture
def clone(tmp_path):
    """A clone, and `bin/` beside it: all that is on the path."""
    clone = tmp_path / "a clone"
    clone.mkdir()
    for name in ("setup.sh", "pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, clone)
    (tmp_path / "bin").mkdir()
    for tool in TOOLS:
        (tmp_path / "bin" / tool).symlink_to(str(shutil.which(tool)))
    return clone


def executable(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def setup(clone: Path, **environment: str) -> subprocess.CompletedProcess:
    path = f"{clone}/.venv/bin:{clone.parent}/bin"  # as where the environment is activated
    return subprocess.run(
        ["/bin/sh", "setup.sh"],
        cwd=clone,
        env={"PATH": path, **environment},
        capture_output=True,
        text=True,
    )


def test_without_a_usable_python_one_line_says_how_to_get_one(clone):
    executable(clone.parent / "bin/python3.13", "#!/bin/sh\nexit 127\n")  # a dead shim
    executable(clone.parent / "bin/python3", "#!/bin/sh\nexit 1\n")  # too old, or no ensurepip
    done = setup(clone)
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("setup: no Python 3.12 or 3.13 with venv and ensurepip here: ")
    assert "python3.13-venv" in done.stderr
    assert not (clone / ".venv").exists()


@pytest.mark.parametrize(
    "place", ["bin/python3.13", "bin/python3.12", "bin/python3", "versions/3.12.4/bin/python"]
)
def test_finds_an_interpreter(clone, place):
    executable(clone.parent / place, PYTHON)
    done = setup(clone)
    assert done.returncode == 0, done.stderr
    assert f"creating .venv with Python 3.13.9 ({clone.parent / place})" in done.stderr


def test_finds_pyenv_at_home(clone):
    python = clone.parent / "my home/.pyenv/versions/3.13.0/bin/python"
    executable(python, PYTHON)
    assert f"({python})" in setup(clone, HOME=str(clone.parent / "my home")).stderr


def test_asks_uv_last(clone):
    python = clone.parent / "of uv/python3.13"
    executable(python, PYTHON)
    executable(clone.parent / "bin/uv", f'#!/bin/sh\necho "$@" >>uv.log\necho "{python}"\n')
    assert f"({python})" in setup(clone).stderr
    assert (clone / "uv.log").read_text() == "python find --system >=3.12,<3.14\n"


def test_python_names_the_interpreter(clone):
    executable(clone.parent / "bin/python3.13", PYTHON)
    executable(clone.parent / "else where", PYTHON)
    done = setup(clone, PYTHON=str(clone.parent / "else where"))
    assert f"({clone.parent / 'else where'})" in done.stderr


def test_a_python_named_and_not_usable_is_not_replaced_by_another(clone):
    executable(clone.parent / "bin/python3.13", PYTHON)
    done = setup(clone, PYTHON="/no/such/python")
    assert done.returncode == 1
    assert done.stderr.startswith("setup: PYTHON=/no/such/python is no Python 3.12 or 3.13 with")


def test_what_is_installed_is_left_alone_until_the_pins_change(clone):
    executable(clone.parent / "bin/python3", PYTHON)
    setup(clone)
    again = setup(clone)
    assert (again.returncode, again.stderr) == (0, "")
    (clone / "constraints.txt").write_text("numpy==9\n")
    changed = setup(clone)
    assert changed.stderr == (
        "setup: installing 1 pinned packages (a minute or two)\nsetup: done\n"
    )
    assert (clone / "log").read_text() == "pip\n" * 2


def test_a_broken_installation_is_done_again_from_nothing(clone):
    executable(clone.parent / "bin/python3", PYTHON)
    (clone / "broken").touch()
    done = setup(clone)
    assert done.returncode == 1
    assert done.stderr.endswith("setup: pip failed, see above; make again once that is mended\n")
    (clone / "broken").unlink()
    (clone / ".venv/half-installed").touch()
    assert setup(clone).returncode == 0
    assert not (clone / ".venv/half-installed").exists()


def test_an_environment_of_the_users_own_is_kept(clone):
    executable(clone / ".venv/bin/python", PYTHON)
    (clone / ".venv/mine").touch()
    assert setup(clone).returncode == 0
    assert (clone / ".venv/mine").exists()


def test_a_moved_clone_is_installed_again(clone):
    executable(clone.parent / "bin/python3", PYTHON)
    setup(clone)
    moved = clone.rename(clone.parent / "moved")
    assert "installing" in setup(moved).stderr
