import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_passes(): pass

@pytest.mark.skipif(True, reason="no such machine")
def test_skips(): pass

@pytest.mark.xfail(strict=True)
def test_is_known_to_fail(): assert False
"""


@pytest.mark.parametrize(
    ("ci", "outcome"),
    [("true", "1 passed, 1 xfailed, 1 error"), ("", "1 passed, 1 skipped, 1 xfailed")],
)
def test_a_skip_fails_in_ci_alone(tmp_path, ci, outcome):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text(TESTS)
    done = run_pytest(tmp_path, ci)
    assert outcome in done
    assert (": Skipped: no such machine" in done) == bool(ci)


def test_a_module_that_skips_itself_fails_in_ci(tmp_path):
    shutil.copy(Path(__file__).with_name("conftest.py"), tmp_path)
    (tmp_path / "test_it.py").write_text("import pytest\npytest.importorskip('no_such_module')")
    done = run_pytest(tmp_path, ci="true")
    assert "in CI every test must run, this one would not" in done
    assert "1 error" in done


def run_pytest(directory: Path, ci: str) -> str:
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(directory)]
    root = Path(__file__).parents[1]  # conftest.py imports from tests
    environment = {**os.environ, "CI": ci, "PYTHONPATH": str(root)}
    done = subprocess.run(command, env=environment, cwd=directory, capture_output=True, text=True)
    return done.stdout
