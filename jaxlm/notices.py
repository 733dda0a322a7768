"""Notices that a machine is about to go away, from Google's metadata server.

`GCE_METADATA_HOST`, HOST or HOST:PORT, names another server, as for Google's own libraries.
https://cloud.google.com/compute/docs/metadata/querying-metadata tells of the waits and the header.
"""

import os
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from http.client import HTTPException

from jaxlm import terminal
from jaxlm.safety import WatchConfig
from jaxlm.signals import Stop

HEADER = "Metadata-Flavor"
WAIT_S = 60
"""That the server holds a request back while nothing changes."""
RETRY_S, RETRY_AT_MOST_S = 1.0, 60.0


class Listener:
    """Waits in threads for what Google says of this machine, and asks the run to stop."""

    def __init__(self, cfg: WatchConfig, stop: Stop):
        host = os.environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        self._url = f"http://{host}/computeMetadata/v1/instance"
        # A proxy would tell of its own machine, if anything.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self._cfg, self._stop = cfg, stop
        self._failed = False
        self._maintained_before: bool | None = None
        """Whether maintenance was told of before this start; None until the first answer."""
        for name, heed in (("preempted", self._preempted), ("maintenance-event", self._maintained)):
            threading.Thread(target=self._listen, args=[name, heed], daemon=True).start()

    def _preempted(self, value: str) -> bool:
        if value == "TRUE":
            self._stop.ask("GCE says that this machine is preempted", self._cfg.grace_seconds)
        return value == "TRUE"

    def _maintained(self, value: str) -> bool:
        """A machine that is moved (MIGRATE_ON_HOST_MAINTENANCE) goes on.

        So does a run that starts under a notice, which may stay up for an hour: each start would
        end at once, for nothing.
        """
        ends = value.startswith("TERMINATE")
        if ends and self._maintained_before is None:
            line = "GCE said before this start that this machine is to end; training goes on"
            terminal.show(line, sys.stderr)
        elif ends and not self._maintained_before:
            self._stop.ask("GCE says that this machine is to end", self._cfg.notice_seconds)
            return True
        self._maintained_before = ends
        return False

    def _listen(self, name: str, heed: Callable[[str], bool]) -> None:
        """Until the notice comes. A server that fails ends no run: it is said once."""
        etag, retry_s = "0", RETRY_S  # of no value: the first answer comes at once
        while True:
            try:
                etag, value = self._ask(name, etag)
            except (OSError, HTTPException, ValueError) as e:
                if not self._failed:
                    self._failed = True
                    line = f"{self._url}/{name}: no notices come from there ({e}); training goes on"
                    terminal.show(line, sys.stderr)
                time.sleep(retry_s)
                retry_s = min(2 * retry_s, RETRY_AT_MOST_S)
            else:
                retry_s = RETRY_S
                if heed(value):
                    return

    def _ask(self, name: str, etag: str) -> tuple[str, str]:
        """The value, when it is another than that of this etag or the wait is over; its etag."""
        url = f"{self._url}/{name}?wait_for_change=true&timeout_sec={WAIT_S}&last_etag={etag}"
        request = urllib.request.Request(url, headers={HEADER: "Google"})
        with self._opener.open(request, timeout=WAIT_S + 30) as answer:
            if answer.headers.get(HEADER) != "Google":
                raise ValueError(f"the answer has no {HEADER}: Google")
            value = answer.read(1000).decode("utf-8", "replace").strip()
            return answer.headers.get("ETag", "0"), value


def listen(cfg: WatchConfig, stop: Stop) -> None:
    """Listens where `watch.notices` says."""
    if cfg.notices == "gce":
        Listener(cfg, stop)
