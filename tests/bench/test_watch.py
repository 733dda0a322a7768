"""What is measured of a command."""

import sys
from pathlib import Path

import pytest

from bench.watch import Failed, watch


def test_memory_is_seen_of_all_processes_of_a_command(tmp_path: Path):
    hold = "import time; held = bytearray(60 << 20); time.sleep(0.6)"
    code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}]); print(7)"
    seen = watch([sys.executable, "-c", code], tmp_path / "log")
    assert seen.output == "7\n" and seen.seconds > 0.6
    assert 60 << 20 < seen.peak_bytes < 200 << 20
    with pytest.raises(Failed, match=r"exit code 3\n.*no luck"):
        watch(
            [sys.executable, "-c", "import sys; print('no luck', file=sys.stderr); sys.exit(3)"],
            tmp_path / "log",
        )
