"""A gcloud for tests: a Cloud TPU API in a directory, and workers that are directories too.

It refuses flags that the real one has not. `GCLOUD_STUB` names the directory: `resource.json`, the
queued resource, if there is one; `lives.json`, for each that is made the states which looks at it
find, the last of them for ever; `refusals.json`, of {"of": VERB, "err"}, each given once;
`calls.jsonl`. Commands of ssh run in bash on this machine, with the tools of `docker_stub`, on two
workers a node at once, and again after 255, as with the real one.
"""

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.launch import flags

PLACE = Path(os.environ.get("GCLOUD_STUB", "."))
WORKERS = 2
NOT_FOUND = (
    "ERROR: (gcloud.compute.tpus.queued-resources.describe) NOT_FOUND: Resource "
    "'projects/p/locations/us-east5-b/queuedResources/{}' was not found"
)


def read(name: str, default: Any = None) -> Any:
    """The JSON of a file of the directory."""
    path = PLACE / name
    return json.loads(path.read_text()) if path.exists() else default


def write(place: Path, name: str, data: Any) -> None:
    """At once: others read it meanwhile."""
    new = place / f"{name}.{os.getpid()}"
    new.write_text(json.dumps(data))
    new.replace(place / name)


def resource(line: Sequence[str], **changes: str) -> dict[str, Any]:
    """What the API makes of the words of `create`."""
    given = dict(word.partition("=")[::2] for word in line if word.startswith("--"))
    key, _, value = given["--labels"].partition("=")
    node = {
        "acceleratorType": given["--accelerator-type"],
        "description": given["--description"],
        "labels": {key: value},
    }
    count = given.get("--node-count")
    spec = {"multisliceParams": {"nodeCount": int(count)}} if count else {"nodeId": line[4]}
    return {
        "name": f"projects/p/locations/us-east5-b/queuedResources/{line[4]}",
        "tpu": {"nodeSpec": [{"node": node, **spec}]},
        "state": {"state": "CREATING", **changes},
    }


def main() -> int:
    """`gcloud compute tpus queued-resources|tpu-vm VERB NAME FLAGS`."""
    line = sys.argv[1:]
    wrong = list(flags.problems(["gcloud", *line]))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 2
    verb, name = line[3], line[4]
    with (PLACE / "calls.jsonl").open("a") as calls:
        print(json.dumps(line), file=calls)
    refusals = read("refusals.json", [])
    for refusal in refusals:
        if refusal["of"] == verb:
            refusals.remove(refusal)
            write(PLACE, "refusals.json", refusals)
            print(refusal["err"], file=sys.stderr)
            return 1
    if line[2] == "tpu-vm":
        return _node(verb, name, line)
    if verb == "create":
        write(PLACE, "resource.json", resource(line))
        return 0
    found = read("resource.json")
    if found is None:
        print(NOT_FOUND.format(name), file=sys.stderr)
        return 1
    if verb == "delete":
        (PLACE / "resource.json").unlink()
        lives = read("lives.json", [[]])
        write(PLACE, "lives.json", lives[1:] or [[]])
        return 0
    lives = read("lives.json", [[]])
    if lives[0]:
        found["state"] = {**found["state"], "state": lives[0].pop(0)}
        write(PLACE, "lives.json", lives)
        write(PLACE, "resource.json", found)
    print(json.dumps(found))
    return 0


def state() -> str:
    """Of the queued resource."""
    return (read("resource.json") or {"state": {"state": ""}})["state"]["state"]


def _node(verb: str, name: str, line: Sequence[str]) -> int:
    if state() != "ACTIVE":
        print("ERROR: NOT_FOUND: Resource 'projects/p/nodes/x' was not found", file=sys.stderr)
        return 1
    if verb == "describe":
        endpoints = [{"ipAddress": f"10.0.0.{i}"} for i in range(WORKERS)]
        print(json.dumps({"state": "READY", "health": "HEALTHY", "networkEndpoints": endpoints}))
        return 0
    given = dict(word.partition("=")[::2] for word in line if word.startswith("--"))
    all_of = range(WORKERS) if given["--worker"] == "all" else [int(given["--worker"])]
    codes: dict[int, int] = {}
    threads = [
        threading.Thread(target=_ssh, args=(f"{name}.{worker}", given["--command"], worker, codes))
        for worker in all_of
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return next((code for code in codes.values() if code), 0)


def _ssh(host: str, command: str, worker: int, codes: dict[int, int]) -> None:
    place = PLACE / "hosts" / host
    place.mkdir(parents=True, exist_ok=True)
    # The real one splits at spaces, and ssh joins with them.
    words = " ".join(command.split(" "))
    for _ in range(3):
        child = subprocess.Popen(["bash", "-c", words], env={**os.environ, "STUB_HOST": str(place)})
        while child.poll() is None:
            time.sleep(0.02)
            if state() != "ACTIVE" or (place / "cut").exists():
                (place / "cut").unlink(missing_ok=True)
                child.kill()
                child.wait()
                child.returncode = 255
        codes[worker] = child.returncode
        if child.returncode != 255 or state() != "ACTIVE":
            return


if __name__ == "__main__":
    sys.exit(main())
