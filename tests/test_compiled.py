"""Compiled programs are kept for the next start: whole, of this machine, of this user alone."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from jaxlm import compiled
from jaxlm.compiled import Kept
from jaxlm.errors import EnvironmentProblem

PROGRAM = """
import jax, numpy as np
from jax import monitoring
from jaxlm import compiled

seen = []
monitoring.register_event_listener(lambda name, **_: seen.append(name.rpartition("/")[2]))
compiled.keep(jax.devices()[0])
print(jax.jit(lambda x: x @ x + 1)(np.full((8, 8), 3, np.float32)).tobytes().hex())
print(seen.count("cache_hits"), seen.count("cache_misses"))
"""


def compiles(home: Path, **variables: str) -> tuple[str, str, str]:
    """A process that multiplies: its product, how many programs it found and made, what it says."""
    given = {"XDG_CACHE_HOME": str(home), "JAX_ENABLE_COMPILATION_CACHE": "1", **variables}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, env=os.environ | given
    )
    assert done.returncode == 0, done.stderr
    product, counts = done.stdout.splitlines()
    return product, counts, done.stderr


@pytest.fixture
def kept(tmp_path) -> Kept:
    return Kept(tmp_path, "machine")


def files(directory: Path) -> list[Path]:
    return sorted(path for path in directory.rglob("*") if path.is_file())


def test_a_second_process_compiles_nothing(tmp_path):
    product, counts, said = compiles(tmp_path)
    assert (counts, said) == ("0 1", "")
    (path,) = files(tmp_path)
    directory = tmp_path / compiled.NAME
    assert path.parent == directory and directory.stat().st_mode & 0o777 == 0o700
    assert compiles(tmp_path) == (product, "1 0", "")


def test_a_damaged_program_is_compiled_again(tmp_path):
    product, _, _ = compiles(tmp_path)
    (path,) = files(tmp_path)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    assert compiles(tmp_path) == (product, "0 1", "")
    assert files(tmp_path) == [path]
    assert compiles(tmp_path) == (product, "1 0", "")


@pytest.mark.parametrize("name", ["JAX_ENABLE_COMPILATION_CACHE", "JAX_COMPILATION_CACHE_DIR"])
def test_what_the_user_tells_jax_stands(tmp_path, name):
    given = {"JAX_ENABLE_COMPILATION_CACHE": "0", "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "x")}
    compiles(tmp_path, **{name: given[name]})
    assert not (tmp_path / compiled.NAME).exists()


def test_where_nothing_can_be_kept_a_line_says_so(tmp_path):
    (tmp_path / compiled.NAME).touch()
    product, counts, said = compiles(tmp_path)
    assert product and counts == "0 0"
    assert said == (
        f"{tmp_path / compiled.NAME}: compiled programs cannot be kept (File exists); each start "
        "compiles anew\n"
    )


def test_programs_that_another_could_have_written_are_not_run(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    path = compiled.directory()
    assert compiled.directory() == path
    path.chmod(0o770)
    with pytest.raises(EnvironmentProblem, match="this user alone can write"):
        compiled.directory()
    path.chmod(0o700)
    theirs = tmp_path / "theirs"
    path.rename(theirs)
    path.symlink_to(theirs)
    with pytest.raises(EnvironmentProblem, match="this user alone can write"):
        compiled.directory()
    path.unlink()
    theirs.rename(path)
    monkeypatch.setattr(os, "geteuid", lambda: path.stat().st_uid + 1)
    with pytest.raises(EnvironmentProblem, match="this user alone can write"):
        compiled.directory()


def test_a_home_that_is_not_there_or_cannot_be_written(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file" / "cache"))
    with pytest.raises(EnvironmentProblem, match=r"cannot be kept \(Not a directory\)"):
        compiled.directory()


def test_a_program_of_another_machine_is_none(kept, tmp_path):
    kept.put("key", b"program")
    assert kept.get("key") == b"program"
    assert Kept(tmp_path, "another").get("key") is None


def test_a_machine_is_its_processor_and_how_many(tmp_path):
    one = tmp_path / "one"
    one.write_text("processor: 0\nmodel name : A\nflags : fpu sse\nbogomips : 1\n")
    other = tmp_path / "other"
    other.write_text("processor: 0\nmodel name : A\nflags : fpu sse avx2\nbogomips : 1\n")
    same = tmp_path / "same"
    same.write_text("processor: 1\nmodel name : A\nflags : fpu sse\nbogomips : 2\n")
    assert compiled.machine(one) == compiled.machine(same) != compiled.machine(other)
    assert str(len(os.sched_getaffinity(0))) in compiled.machine(one).split("\n")
    assert compiled.machine(tmp_path / "none")


@pytest.mark.parametrize("length", [0, 20, 35])
def test_a_torn_file_is_none_and_goes(kept, tmp_path, length):
    kept.put("key", b"program")
    (path,) = files(tmp_path)
    path.write_bytes(path.read_bytes()[:length])
    assert kept.get("key") is None
    assert files(tmp_path) == []


def test_what_was_used_longest_ago_makes_room(tmp_path):
    kept = Kept(tmp_path, "machine", limit=3 * 100)
    for age, key in enumerate(("c", "b", "a")):
        kept.put(key, bytes(68))
        os.utime(kept._file(key), (time.time() - 100 - age,) * 2)
    assert kept.get("a") == bytes(68)
    kept.put("d", bytes(68))
    assert [key for key in "abcd" if kept.get(key) is not None] == ["a", "c", "d"]
    kept.put("large", bytes(300))
    assert kept.get("large") is None and len(files(tmp_path)) == 3


def test_parts_of_killed_processes_go(kept, tmp_path):
    old, new = tmp_path / f"{compiled.PART}old", tmp_path / f"{compiled.PART}new"
    old.touch()
    new.touch()
    os.utime(old, (time.time() - 2 * compiled.PART_S,) * 2)
    kept.put("key", b"program")
    assert not old.exists() and new.exists() and kept.get("key") == b"program"


def test_a_full_disk_is_told_once(kept, tmp_path, capsys, monkeypatch):
    kept.put("key", b"program")
    monkeypatch.setattr(kept, "_directory", tmp_path / "gone")
    kept.put("other", b"program")
    kept.put("third", b"program")
    assert kept.get("other") is None
    assert capsys.readouterr().err == (
        f"{tmp_path / 'gone'}: compiled programs cannot be kept (No such file or directory); "
        "the run goes on\n"
    )
