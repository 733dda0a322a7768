"""What a compiler says on standard error, from C++, where Python does not see it."""

import os
import sys
import tempfile
from pathlib import Path
from types import TracebackType


class Log:
    """Takes all that is written to the process's standard error while it is open.

    It goes to a file, which is removed at the end: if the compiler takes the process down, its last
    words are still there, in `jaxlm-compiler-PID-*.log` of the directory for temporary files.
    """

    def __init__(self) -> None:
        self.text = ""
        """All of it, once closed."""

    def __enter__(self) -> "Log":
        sys.stderr.flush()
        number, name = tempfile.mkstemp(".log", f"jaxlm-compiler-{os.getpid()}-")
        self._path = Path(name)
        self._before = os.dup(2)
        os.dup2(number, 2)
        os.close(number)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        sys.stderr.flush()
        os.dup2(self._before, 2)
        os.close(self._before)
        self.text = self._path.read_text(encoding="utf-8", errors="replace")
        self._path.unlink()
