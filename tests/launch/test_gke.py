"""The launcher of GKE, as a command, with a kubectl in the path that knows the real one's flags."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from launch import gke, gke_arguments
from launch.arguments import name_of
from tests.launch import flags, kubectl_stub

ROOT = Path(__file__).parents[2]
WORKDIR = "--workdir=gs://bucket/runs/lm_7b"
NAME = "lm-7b-aa4507"
IMAGE = "--image=us-docker.pkg.dev/project/images/jaxlm:1.0"
CONFIG = "--config=configs/lm_7b.py:v5p:4x4x8"
SUBMIT = ("--accelerator=v5p:4x4x8", CONFIG, WORKDIR, IMAGE)
NONE = {"of": "get"}
"""kubectl's answer where there is no such object."""


class Kubectl:
    """What the stub is to say, and what it was asked."""

    def __init__(self, place: Path):
        self._place = place
        self.answers(NONE, {"of": "create", "out": "jobset.jobset.x-k8s.io/a created\n"})

    def answers(self, *answers: dict[str, Any]) -> None:
        (self._place / "answers.json").write_text(json.dumps(answers))

    @property
    def calls(self) -> list[dict[str, Any]]:
        path = self._place / "calls.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


@pytest.fixture
def kubectl(tmp_path, monkeypatch):
    """In front of a path that has no other."""
    tool = tmp_path / "bin/kubectl"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec {sys.executable} {kubectl_stub.__file__} "$@"\n')
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("KUBECTL_STUB", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(ROOT), *sys.path]))
    return Kubectl(tmp_path)


def running(**changes: Any) -> dict[str, Any]:
    """What kubectl prints of a JobSet that runs."""
    job = gke_arguments.job(*gke_arguments.read(SUBMIT, ""))
    return {**gke.plan(job).manifest, "status": {"restarts": 0}, **changes}


def of(found: dict[str, Any]) -> dict[str, Any]:
    return {"of": "get", "out": json.dumps(found)}


def launch(*arguments: str) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "launch", "gke", *arguments]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)


# ---- submitting ----------------------------------------------------------------------------------


def test_a_job_is_submitted_as_it_is_planned(kubectl):
    done = launch(*SUBMIT, "--namespace=team", "--context=c", "--", "--config.train.end=9 steps")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == (
        f"launch: submitted {NAME}; look at it with: python -m launch gke status {WORKDIR} "
        "--context=c --namespace=team\n"
    )
    look, create = kubectl.calls
    assert look["line"][:5] == ["get", "jobset", NAME, "--context=c", "--namespace=team"]
    assert create["line"][:3] == ["create", "--context=c", "--namespace=team"]
    made = json.loads(create["stdin"])
    pod = made["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["command"] == [
        *("python", "-m", "launch", "host", "--place=jobset", WORKDIR, "--", CONFIG),
        *("--config.watch.grace_seconds=120", "--config.train.end=9 steps"),
    ]


def test_dry_run_prints_what_would_be_run_and_runs_nothing(kubectl):
    done = launch(*SUBMIT, "--dry-run")
    assert (done.returncode, done.stderr, kubectl.calls) == (0, "", [])
    lines = done.stdout.splitlines()
    assert lines[0].startswith(f"kubectl get jobset {NAME} ") and lines[-1] == "EOF"
    script = done.stdout.replace(f"kubectl get jobset {NAME}", "true")
    kubectl.answers({"of": "create"})
    subprocess.run(["sh", "-c", script], check=True)
    (create,) = kubectl.calls
    kubectl.answers(NONE, {"of": "create"})
    assert launch(*SUBMIT).returncode == 0
    assert json.loads(create["stdin"]) == json.loads(kubectl.calls[-1]["stdin"])
    assert create["line"] == kubectl.calls[-1]["line"]


def test_every_line_of_a_plan_has_only_flags_of_kubectl():
    args = (*SUBMIT, "--queue=team", "--service-account=trainer")
    planned = gke.plan(gke_arguments.job(*gke_arguments.read(args, "")), ["--context=c"])
    for line in (*planned.needs, planned.look, planned.clear, planned.create):
        assert list(flags.problems(line)) == []
    assert list(flags.problems([*planned.look, "--wait"])) == ["kubectl get: no flag --wait"]


def test_a_queue_and_an_account_must_be_there(kubectl):
    wanted = (*SUBMIT, "--queue=team", "--service-account=trainer", "--namespace=n")
    kubectl.answers(NONE, NONE, NONE, {"of": "create"})
    assert launch(*wanted).returncode == 0
    queue, account, *_ = (call["line"] for call in kubectl.calls)
    assert queue[:4] == ["get", "localqueues.kueue.x-k8s.io", "team", "--namespace=n"]
    assert account[:4] == ["get", "serviceaccounts", "trainer", "--namespace=n"]


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'error: the server doesn\'t have a resource type "localqueues"',
            "install Kueue in it, or leave out --queue",
        ),
        (
            'Error from server (NotFound): localqueues.kueue.x-k8s.io "team" not found',
            "kubectl get localqueues.kueue.x-k8s.io team: Error from server (NotFound): ",
        ),
        (
            'Error from server (NotFound): serviceaccounts "trainer" not found',
            "make it with `kubectl create serviceaccount`",
        ),
    ],
)
def test_without_them_nothing_is_submitted(kubectl, capfd, said, message):
    kubectl.answers({"of": "get", "err": said, "code": 1})
    assert gke.main([*SUBMIT, "--queue=team", "--service-account=trainer"]) == 78
    (line,) = capfd.readouterr().err.splitlines()
    assert message in line and len(kubectl.calls) == 1


def test_one_that_runs_is_left_alone(kubectl):
    kubectl.answers(of(running()))
    done = launch(*SUBMIT)
    message = f"launch: {NAME} is there already, running; stop it first, or wait for it\n"
    assert (done.returncode, done.stderr) == (2, message)
    assert len(kubectl.calls) == 1


@pytest.mark.parametrize("state", ["Completed", "Failed"])
def test_one_that_has_ended_makes_room(kubectl, state):
    ended = running(status={"terminalState": state})
    kubectl.answers(of(ended), {"of": "delete"}, {"of": "create"})
    assert launch(*SUBMIT).returncode == 0
    lines = [call["line"] for call in kubectl.calls]
    assert [line[0] for line in lines] == ["get", "delete", "create"]
    assert lines[1][1:3] == ["jobset", NAME]


def test_one_of_somebody_else_is_not_touched(kubectl):
    other = running(metadata={"name": NAME, "labels": {}}, status={"terminalState": "Failed"})
    for arguments in (SUBMIT, ("stop", WORKDIR), ("status", WORKDIR)):
        kubectl.answers(of(other))
        done = launch(*arguments)
        assert done.returncode == 2 and "was not made by this launcher" in done.stderr
    assert {call["line"][0] for call in kubectl.calls} == {"get"}


# ---- looking and stopping ------------------------------------------------------------------------


def pod(job_index: int, phase: str, **status: Any) -> dict[str, Any]:
    labels = {"jobset.sigs.k8s.io/job-index": str(job_index)}
    return {"metadata": {"labels": labels}, "status": {"phase": phase, **status}}


def test_status_says_what_runs_and_what_is_waited_for(kubectl):
    found = running(status={"restarts": 3, "restartsCountTowardsMax": 1})
    found["spec"]["replicatedJobs"][0]["replicas"] = 2
    unscheduled = {"type": "PodScheduled", "status": "False", "message": "0/9 nodes are available"}
    pulling = {"name": "jaxlm", "state": {"waiting": {"reason": "ImagePullBackOff"}}}
    gone = {"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"}
    items = [
        pod(0, "Running"),
        pod(0, "Pending", conditions=[unscheduled]),
        pod(0, "Pending", conditions=[unscheduled]),
        pod(0, "Pending", containerStatuses=[pulling]),
        pod(0, "Failed", conditions=[gone]),
    ]
    kubectl.answers(of(found), of({"items": items}))
    done = launch("status", WORKDIR)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        f"{NAME}: running, restarts 3, 1 of 30 count",
        "job 0, 32 pods: 1 failed, 3 pending, 1 running",
        "  2 pods: 0/9 nodes are available",
        "  1 pod: ImagePullBackOff",
        "  1 pod: disrupted: TerminationByKubelet",
        "job 1, 32 pods: none yet",
        "where the run is: jaxlm status --workdir=gs://bucket/runs/lm_7b",
    ]
    selector = f"--selector=jobset.sigs.k8s.io/jobset-name={NAME}"
    assert selector in kubectl.calls[1]["line"]


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"spec": {**running()["spec"], "suspend": True}}, f"{NAME}: queued, restarts 0"),
        ({"status": {"terminalState": "Completed"}}, f"{NAME}: completed, restarts 0"),
        (
            {
                "status": {
                    "terminalState": "Failed",
                    "conditions": [{"type": "Failed", "status": "True", "message": "exit code 78"}],
                }
            },
            "  exit code 78",
        ),
    ],
)
def test_status_says_how_it_stands(kubectl, changes, line):
    kubectl.answers(of(running(**changes)), of({"items": []}))
    out = launch("status", f"--name={NAME}").stdout
    assert any(found.startswith(line) for found in out.splitlines()), out


def test_logs_are_those_of_a_process(kubectl):
    found = running()
    found["spec"]["replicatedJobs"][0]["replicas"] = 2
    kubectl.answers(of(found), {"of": "logs", "out": "step 7\n"})
    done = launch("logs", WORKDIR, "--process=37", "--lines=5", "--follow")
    assert (done.returncode, done.stdout) == (0, "step 7\n")
    line = kubectl.calls[1]["line"]
    assert "--follow" in line and "--tail=5" in line and "--container=jaxlm" in line
    assert (
        f"--selector=jobset.sigs.k8s.io/jobset-name={NAME},jobset.sigs.k8s.io/job-index=1,"
        "batch.kubernetes.io/job-completion-index=5"
    ) in line


def test_stop_waits_until_all_have_saved(kubectl):
    kubectl.answers(of(running()), {"of": "delete", "out": "deleted\n"})
    done = launch("stop", WORKDIR)
    assert done.returncode == 0 and done.stderr.splitlines() == [
        f"launch: stopping {NAME}: every process saves and ends, within 150 s",
        f"launch: {NAME} is stopped; submitting it again goes on from its newest checkpoint",
    ]
    line = kubectl.calls[1]["line"]
    assert {"--cascade=foreground", "--wait=true", "--timeout=210s"} < set(line)


@pytest.mark.parametrize("action", ["status", "logs", "stop"])
def test_what_is_not_there_is_said(kubectl, action):
    kubectl.answers(NONE)
    done = launch(action, WORKDIR)
    assert done.returncode == 2
    assert done.stderr.startswith(f"launch: there is no JobSet {NAME} where kubectl looks; it was")
    assert len(kubectl.calls) == 1


# ---- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("workdir", "name"),
    [
        ("gs://bucket/runs/lm_7b", NAME),
        ("gs://bucket/runs/lm_7b/", NAME),
        ("gs://bucket/a", "a-773aaa"),
        ("gs://bucket/7B.Run_", "run-7b-run-2ae2d9"),
        ("gs://bucket/" + "x" * 90, "x" * 30 + "-7999e0"),
        ("gs://bucket/___", "run-a2ca8d"),
    ],
)
def test_the_name_is_made_of_the_workdir(workdir, name):
    assert name_of(workdir) == name


# ---- wrong inputs --------------------------------------------------------------------------------


def instead(**changes: str | None) -> list[str]:
    """The arguments of `SUBMIT`, some of them others, or left out."""
    given = dict(a.removeprefix("--").split("=", 1) for a in SUBMIT)
    merged = {**given, **{k.replace("_", "-"): v for k, v in changes.items()}}
    return [f"--{name}={value}" for name, value in merged.items() if value is not None]


WRONG = [
    (instead(accelerator="v9:4x4"), "'v9:4x4': no accelerator 'v9'; known are v4, v5e, v5p"),
    (instead(accelerator="v5p:4x4x6"), "near are v5p:4x4x4 or v5p:4x4x8"),
    (instead(accelerator="h100:1x4"), "a a3-megagpu-8g of GKE has 8 GPUs, and is used whole; use"),
    (instead(accelerator=None), "the following arguments are required: --accelerator"),
    (instead(config=None), "the following arguments are required: --config"),
    (instead(slices="0"), "argument --slices: '0' is not a whole number from 1 up"),
    (instead(accelerator="h100:4x8", slices="2"), "write more nodes, as --accelerator=h100:8x8"),
    (instead(accelerator="v5p:2x2x1", slices="2"), "GKE joins slices of several hosts only"),
    (instead(workdir="runs/a"), "--workdir=runs/a: pods share no disk; write gs://BUCKET/PATH"),
    (instead(workdir="http://a/b"), "is no URL of an object store that can be used"),
    (instead(workdir="gs://user:hush@bucket/a"), "which may be secret"),
    (instead(image="Jaxlm:1"), "--image=Jaxlm:1: is no name of an image; write REGION-docker"),
    (instead(image="a/jaxlm"), "--image=a/jaxlm: may be another image at each start; name a tag"),
    (instead(image="a/jaxlm:latest"), "may be another image at each start"),
    (instead(name="Run_7"), "--name=Run_7: must be lower case letters, digits and -"),
    (instead(name="x" * 41), "from a letter on, 40 at most"),
    (instead(namespace="team/a"), "--namespace=team/a: must be lower case letters"),
    (instead(queue="Team"), "--queue=Team: must be lower case letters"),
    (instead(service_account="a_b"), "--service-account=a_b: must be lower case letters"),
    (instead(grace_seconds="soon"), "argument --grace-seconds: 'soon' is not a whole number"),
    (instead(max_restarts="-1"), "argument --max-restarts: '-1' is not a whole number from 0 up"),
    ([*SUBMIT, "--process=1"], "--process differs from process to process, the launcher sets it"),
    ([*SUBMIT, "--", "--processes=2"], "--processes differs from process to process"),
    ([*SUBMIT, "--coordinator=a:1"], "--coordinator differs from process to process"),
    ([*SUBMIT, "--config.watch.grace_seconds=9"], "use --grace-seconds, which tells Kubernetes"),
    ([*SUBMIT, "--config.data.manifest=s3://k:hush@b/m.json"], "which may be secret"),
    (["status"], "one of the arguments --workdir --name is required"),
    (["stop", "--workdir=runs/a"], "--workdir=runs/a: pods share no disk"),
    (["stop", "--name=Run"], "--name=Run: must be lower case letters"),
    (["logs", WORKDIR, "--process=x"], "argument --process: 'x' is not a whole number from 0 up"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_input_is_2_and_nothing_is_asked_of_the_cluster(kubectl, capfd, arguments, message):
    try:
        code = gke.main(arguments)
    except SystemExit as e:
        code = e.code
    out, err = capfd.readouterr()
    assert (code, out, kubectl.calls) == (2, "", []), err
    last = err.splitlines()[-1]
    assert message in last and "hush" not in err


def test_a_process_that_is_not_there_is_told(kubectl, capfd):
    kubectl.answers(of(running()))
    assert gke.main(["logs", WORKDIR, "--process=32"]) == 2
    assert capfd.readouterr().err == f"launch: --process=32: {NAME} has 32, counted from 0\n"


REFUSED = [
    # What kubectl 1.32.4 says, and the reason is in its words.
    (
        'error: the server doesn\'t have a resource type "jobset"',
        "install JobSet 0.10.1 or later in the cluster",
    ),
    (
        'E1202 14:05:06.950898   25128 memcache.go:265] "Unhandled Error" err="couldn\'t get"\n'
        "The connection to the server localhost:8080 was refused - did you specify the right host "
        "or port?",
        "choose the cluster with `gcloud container clusters get-credentials`",
    ),
    (
        "Unable to connect to the server: dial tcp: lookup a.example: no such host",
        "see that it can be reached from here",
    ),
    (
        "Error in configuration: context was not found for specified context: nope",
        "or --context",
    ),
    (
        'Error from server (Forbidden): jobsets.jobset.x-k8s.io "a" is forbidden: User "me" cannot '
        'get resource "jobsets" in API group "jobset.x-k8s.io" in the namespace "default"',
        "needs the role roles/container.developer",
    ),
    (
        "error: You must be logged in to the server (the server has asked for the client to "
        "provide credentials)",
        "log in with `gcloud auth login`",
    ),
    ("Segmentation fault", "Segmentation fault"),
    ("", "it failed in silence"),
]


@pytest.mark.parametrize(("said", "message"), REFUSED)
@pytest.mark.parametrize("arguments", [SUBMIT, ("status", WORKDIR), ("stop", WORKDIR)])
def test_a_cluster_that_refuses_is_78_in_one_line(kubectl, capfd, said, message, arguments):
    kubectl.answers({"of": "get", "err": f"{said}\n", "code": 1})
    assert gke.main(arguments) == 78
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"launch: kubectl get jobset {NAME}: ") and message in line
    assert "memcache" not in line and len(kubectl.calls) == 1


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (
            'Error from server (BadRequest): error when creating "STDIN": JobSet in version '
            '"v1alpha2" cannot be handled as a JobSet: strict decoding error: unknown field '
            '"spec.failurePolicy.rules[0].onJobFailureMessagePatterns"',
            "the cluster's JobSet is older than 0.10.1: install a later one",
        ),
        (
            'Error from server (NotFound): error when creating "STDIN": namespaces "x" not found',
            "make it with `kubectl create namespace`",
        ),
        (
            'Error from server (Forbidden): error when creating "STDIN": admission webhook '
            '"vjobset.kb.io" denied the request: the JobSet name is too long',
            "that is a rule of the cluster",
        ),
    ],
)
def test_a_manifest_that_is_refused_is_78_in_one_line(kubectl, capfd, said, message):
    kubectl.answers(NONE, {"of": "create", "err": f"{said}\n", "code": 1})
    assert gke.main(SUBMIT) == 78
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith("launch: kubectl create: Error from server") and message in line


def test_no_kubectl_is_78(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert gke.main(["logs", WORKDIR]) == 78
    assert capfd.readouterr().err == (
        "launch: kubectl: is not installed; `gcloud components install kubectl "
        "gke-gcloud-auth-plugin` brings it (docs/clusters.md)\n"
    )


def test_what_is_no_json_is_78(kubectl, capfd):
    kubectl.answers({"of": "get", "out": "hello"})
    assert gke.main(["status", WORKDIR]) == 78
    assert "prints no JSON: 'hello'" in capfd.readouterr().err
