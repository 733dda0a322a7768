"""Malformed files: no crash, no hang, no loss, each counted with its name and place."""

import json
import subprocess
import sys


def test_malformed_files_of_every_format(tmp_path):
    """In a process of its own, so that a crash or a hang names its file."""
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.data_tools.fuzz", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    last = tmp_path / "last"
    assert done.returncode == 0, f"{last.read_text()}: {done.stderr[-2000:]}"
    seen = json.loads(done.stdout)
    assert seen["files"] >= 500
    assert seen["wrong"] == []
    assert len(seen["reasons"]) > 15, "the files are malformed in many ways"
    seconds, name = seen["slowest"]
    assert seconds < 10, name
    assert seen["memory_mb"] < 500
