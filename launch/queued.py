"""A queued resource of the Cloud TPU API: TPU VMs that are asked for, waited for, and given back.

Nothing is stored here: its name finds it again, and a label says whose it is. Sources: the API's
v2 (QueuedResource, NodeSpec, MultisliceParams) and Google's page "Manage queued resources".
"""

import os
import re
import shlex
import signal
import subprocess
from dataclasses import dataclass
from typing import Any

from launch.gcloud import GCLOUD
from launch.job import Pause, Ready
from launch.process import say
from launch.tool import Refused

OWNER = ("managed-by", "jaxlm")
"""Label of what this launcher has made."""
NONE = "not there"
"""In place of a state."""
DELETE_S = 1800.0
"""That it may take to delete a queued resource with its nodes."""
_LOOKS = 20
"""Looks in a row that may fail while it is waited for; 3 that do not find it, and it is gone."""
_PREPARATIONS = 3
"""Of the workers, before giving up."""
_GLANCE_S = 0.2


@dataclass(frozen=True)
class Request:
    """What is asked for, and by which command lines."""

    name: str
    zone: str
    accelerator_type: str = ""
    runtime: str = ""
    slices: int = 1
    workdir: str = ""
    """For who finds it in a list."""
    project: str = ""
    more: tuple[str, ...] = ()
    """Flags of gcloud for creating it, as `--spot`."""

    @property
    def where(self) -> tuple[str, ...]:
        """Flags of every command."""
        project = (f"--project={self.project}",) if self.project else ()
        return (f"--zone={self.zone}", *project, "--quiet")

    @property
    def look(self) -> tuple[str, ...]:
        """Prints it."""
        return (*_command("describe"), self.name, *self.where, "--format=json")

    @property
    def create(self) -> tuple[str, ...]:
        """Puts it into the queue, and does not wait."""
        one, several = (f"--node-id={self.name}",), (f"--node-count={self.slices}",)
        nodes = one if self.slices == 1 else (*several, f"--node-prefix={self.name}")
        return (
            *(*_command("create"), self.name, *self.where, "--async", *nodes),
            f"--accelerator-type={self.accelerator_type}",
            f"--runtime-version={self.runtime}",
            f"--labels={'='.join(OWNER)}",
            f"--description={self.workdir}",
            "--scopes=cloud-platform",  # else a token may not write to a bucket
            *self.more,
        )

    @property
    def delete(self) -> tuple[str, ...]:
        """Returns when it is gone, and its nodes."""
        return (*_command("delete"), self.name, *self.where, "--force")

    @property
    def nodes(self) -> tuple[str, ...]:
        """Names of its slices, as the API gives them."""
        if self.slices == 1:
            return (self.name,)
        return tuple(f"{self.name}-{i}" for i in range(self.slices))


def _command(verb: str) -> tuple[str, ...]:
    return ("gcloud", "compute", "tpus", "queued-resources", verb)


def look(request: Request) -> dict[str, Any] | None:
    """It, as the API describes it; None if there is none. `Refused` if that cannot be told."""
    try:
        return GCLOUD.read(request.look)
    except Refused as e:
        if re.search("NOT_FOUND.*/queuedResources/", str(e)):
            return None
        raise


def state(found: dict[str, Any] | None) -> str:
    """As the API names it, or `NONE`."""
    return NONE if found is None else found.get("state", {}).get("state", "STATE_UNSPECIFIED")


def why_failed(found: dict[str, Any]) -> str:
    """What the API says."""
    error = found["state"].get("failedData", {}).get("error", {})
    return error.get("message") or "the API does not say why"


def kind(found: dict[str, Any]) -> tuple[str, int]:
    """Its `--accelerator-type`, and its slices."""
    specs = found["tpu"]["nodeSpec"]
    slices = sum(spec.get("multisliceParams", {}).get("nodeCount", 1) for spec in specs)
    return specs[0]["node"].get("acceleratorType", ""), slices


def own(found: dict[str, Any]) -> dict[str, Any]:
    """`ValueError` for one that somebody else has made."""
    if not _is_own(found):
        name = found["name"].rpartition("/")[2]
        raise ValueError(f"the queued resource {name} was not made by this launcher; use --name")
    return found


def _is_own(found: dict[str, Any]) -> bool:
    key, value = OWNER
    specs = found.get("tpu", {}).get("nodeSpec", [])
    return any(spec.get("node", {}).get("labels", {}).get(key) == value for spec in specs)


class Resource:
    """One of ours, from the queue to its end."""

    def __init__(self, request: Request, prepare: tuple[str, ...], poll_s: float):
        """`prepare`: command that makes the workers ready for an attempt."""
        self._request, self._prepare, self._poll_s = request, prepare, poll_s
        self._asked = False
        """Whether it may be there."""
        self._ours = False
        """Whether it is: we have made it, or found one of ours."""
        self._made = False
        self._said, self._failed_looks, self._missing, self._preparations = "", 0, 0, 0

    def check(self) -> None:
        """Ahead of all else: `Refused` if gcloud cannot, `ValueError` if the name is taken."""
        self._look()

    def ready(self, pause: Pause) -> Ready:
        """Waits until it is there and its workers are ready; makes it, where there is none.

        `Refused` if that cannot be, `ValueError` if the name is taken.
        """
        result = Ready.AS_BEFORE
        self._preparations = 0
        while True:
            now = self._look()
            if now == "ACTIVE":
                done = self._prepared(pause)
                if done is not None:
                    return result if done else Ready.STOPPED
            elif now in ("SUSPENDED", "FAILED"):  # what is left of it counts as quota
                self._clear()
            elif now == NONE and self._ours:
                self._missing += 1
                if self._missing == 3:
                    say(f"{self._request.name} was deleted, and is not made again")
                    return Ready.STOPPED
            if now in ("SUSPENDED", "FAILED", NONE) and not self._ours:
                self._create()
                result = Ready.ANEW
            if pause(self._poll_s):
                say("stopped as asked; the same command goes on from there")
                return Ready.STOPPED

    def close(self) -> None:
        """Deletes it, if it is ours; says loudly how to do it where that fails."""
        if not self._asked:
            return
        name = self._request.name
        try:
            found = look(self._request)
            if state(found) in (NONE, "DELETING") or not (self._ours or _is_own(found or {})):
                return
            say(f"deleting {name} and its machines")
            GCLOUD.call(self._request.delete, wait_s=DELETE_S)
            say(f"{name} is deleted")
        except (Refused, KeyboardInterrupt) as e:
            why = str(e) or "interrupted"
            say(f"{why}\nlaunch: {name} MAY STILL BE THERE, AND COSTS MONEY; delete it with:")
            say(shlex.join(self._request.delete))

    def keep(self) -> None:
        """Says that it stays."""
        if self._ours:
            say(f"{self._request.name} is kept; to delete it: {shlex.join(self._request.delete)}")

    def _look(self) -> str:
        """The state, empty if it could not be told this time; says what has changed."""
        try:
            found = look(self._request)
        except Refused as e:
            self._failed_looks += 1
            if not self._ours or self._failed_looks == _LOOKS:
                raise
            say(f"{e}; asking again")
            return ""
        self._failed_looks = 0
        if found is not None:
            self._missing = 0
            self._adopt(found)
        now = state(found)
        if now != self._said:
            say(f"{self._request.name}: {now}")
            self._said = now
        if found is not None and now == "FAILED" and self._made:
            raise Refused(f"{self._request.name}: FAILED: {why_failed(found)}")
        return now

    def _adopt(self, found: dict[str, Any]) -> None:
        if self._ours:
            return
        there = kind(own(found))
        wanted = self._request.accelerator_type, self._request.slices
        if there != wanted and state(found) not in ("SUSPENDED", "FAILED", "DELETING"):
            raise ValueError(
                f"{self._request.name} is there already, as {there[1]} x {there[0]}, and not "
                f"{wanted[1]} x {wanted[0]}; stop it first"
            )
        self._asked = self._ours = state(found) != "DELETING"

    def _create(self) -> None:
        self._asked = True
        GCLOUD.call(self._request.create)
        self._ours = self._made = True
        self._missing = 0
        say(f"{self._request.name}: in the queue for {self._request.accelerator_type}")

    def _clear(self) -> None:
        GCLOUD.call(self._request.delete, wait_s=DELETE_S)
        self._ours = False

    def _prepared(self, pause: Pause) -> bool | None:
        """Whether the workers are ready; False: we were asked to stop; None: look again."""
        process = subprocess.Popen(self._prepare, stdin=subprocess.DEVNULL, start_new_session=True)
        try:
            while process.poll() is None:
                if pause(_GLANCE_S):
                    return False
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode == 0:
            return True
        self._preparations += 1
        if self._preparations == _PREPARATIONS:
            raise Refused(
                f"{self._request.name}: its workers could not be made ready, {_PREPARATIONS} "
                f"times, exit code {process.returncode}; what they said is above"
            )
        return None
