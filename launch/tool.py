"""Calls of other programs, as sbatch and kubectl, and what their refusals mean, in a line."""

import json
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from launch import guard

WAIT_S = 120.0
"""That a call may take which asks for little."""


class Refused(Exception):
    """A program is not there, or did not do it: a line that says which, why, and what helps."""


@dataclass(frozen=True)
class Tool:
    """A program, and what is known of its refusals."""

    missing: str
    """What helps where it is not installed."""
    remedies: tuple[tuple[str, str], ...] = ()
    """Pattern of what it says -> what helps."""
    noise: str = "(?!)"
    """Pattern of lines that say nothing, as a log's."""

    def call(
        self, command: Sequence[str], stdin: str = "", wait_s: float = WAIT_S, name: str = ""
    ) -> str:
        """What it prints; `Refused` if it fails: `name`, or else the command without its flags."""
        name = name or shlex.join(word for word in command if not word.startswith("-"))
        if shutil.which(command[0]) is None:
            raise self._missing(command[0])
        try:
            done = subprocess.run(
                guard.command(command),
                input=stdin,
                capture_output=True,
                text=True,
                timeout=wait_s,
                check=False,
                start_new_session=True,  # a Ctrl-C is ours to act upon
            )
        except subprocess.TimeoutExpired:
            raise Refused(f"{name}: no answer within {wait_s:.0f} s") from None
        if done.returncode:
            raise Refused(f"{name}: {self.explained(done.stderr, done.returncode)}")
        return done.stdout

    def read(self, command: Sequence[str]) -> Any:
        """The JSON that it prints; None if it prints nothing."""
        text = self.call(command)
        try:
            return json.loads(text) if text.strip() else None
        except ValueError:
            raise Refused(f"{command[0]}: prints no JSON: {text.strip()[:100]!r}") from None

    def show(self, command: Sequence[str]) -> int:
        """Runs it for as long as it takes, with our output and our Ctrl-C; its exit code."""
        try:
            return subprocess.run(command, stdin=subprocess.DEVNULL, check=False).returncode
        except FileNotFoundError:
            raise self._missing(command[0]) from None

    def explained(self, stderr: str, code: int = 1) -> str:
        """The last thing that it said, on a line, and the remedy if it is known."""
        said = [line.strip() for line in stderr.splitlines() if line.strip()]
        said = [line for line in said if not re.match(self.noise, line)] or said
        said = said or [f"it failed in silence, with exit code {code}"]
        last = next((line for line in reversed(said) if line.lower().startswith("error")), said[-1])
        for pattern, remedy in self.remedies:
            if re.search(pattern, stderr):
                return f"{last}; {remedy} (docs/clusters.md)"
        return last

    def _missing(self, name: str) -> Refused:
        return Refused(f"{name}: is not installed; {self.missing}")
