"""The launcher of TPU VMs, as a command: what cannot be, and how that is told."""

import pytest

from launch import tpu_vm
from launch.tpu_vm import ACTIONS
from tests.launch import cloud as clouds
from tests.launch.cloud import NAME, QUEUE, RUN, WORKDIR, ZONE, launch, look_at, said, start
from tests.launch.watch import until_text


@pytest.fixture
def cloud(tmp_path, monkeypatch):
    with clouds.made(tmp_path, monkeypatch) as found:
        yield found


# ---- what cannot be ------------------------------------------------------------------------------


def test_what_the_queue_refuses_is_78(cloud):
    cloud.lives(["WAITING_FOR_RESOURCES"])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", "WAITING_FOR_RESOURCES")
    cloud.becomes("FAILED", failedData={"error": {"code": 8, "message": "no more capacity"}})
    assert process.wait(60) == 78
    assert f"launch: {NAME}: FAILED: no more capacity\n" in said(cloud)
    assert cloud.verbs == ["create", "delete"] and cloud.is_empty


@pytest.mark.parametrize("state", ["FAILED", "SUSPENDED"])
def test_what_is_left_of_an_earlier_one_makes_room(cloud, state):
    cloud.train("end(0)")
    cloud.holds(state)
    assert launch(cloud, *RUN)[0] == 0
    assert cloud.verbs == ["delete", "create", "delete"]


@pytest.mark.parametrize("state", ["ACTIVE", "FAILED", "SUSPENDED", "WAITING_FOR_RESOURCES"])
def test_one_of_somebody_else_is_not_touched(cloud, state):
    node = {"acceleratorType": "v6e-16", "labels": {"owner": "me"}}
    cloud.holds(state, tpu={"nodeSpec": [{"node": node}]})
    for arguments in ((*RUN, f"--logs={cloud.place}"), *((a, WORKDIR, ZONE) for a in ACTIONS)):
        done = look_at(*arguments)
        assert done.returncode == 2
        assert done.stderr.splitlines()[-1] == (
            f"launch: the queued resource {NAME} was not made by this launcher; use --name"
        )
    assert {call[3] for call in cloud.calls} == {"describe"}


def test_one_of_another_size_is_stopped_first(cloud):
    cloud.holds("ACTIVE", "--accelerator=v6e:8x8")
    code, _, err = launch(cloud, *RUN)
    assert code == 2 and "is there already, as 1 x v6e-64, and not 1 x v6e-16; stop it first" in err
    assert cloud.verbs == []


def test_workers_that_cannot_be_made_ready_are_78(cloud):
    cloud.train("end(0)")
    code, _, err = launch(cloud, *RUN, "--setup=echo no disk >&2; false")
    assert code == 78 and cloud.is_empty and err.count("no disk") == 6
    assert "its workers could not be made ready, 3 times, exit code 1; what they said is" in err


def test_one_that_somebody_deletes_is_not_made_again(cloud):
    cloud.train("end(75)")
    cloud.lives([*QUEUE, "DELETING"], [])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", f"{NAME}: DELETING")
    (cloud.place / "resource.json").unlink()
    assert process.wait(60) == 75
    assert f"{NAME} was deleted, and is not made again" in said(cloud)
    assert cloud.verbs == ["create"]


def test_a_look_that_fails_in_the_queue_is_repeated(cloud):
    cloud.train("end(0)")
    cloud.lives(["WAITING_FOR_RESOURCES", "WAITING_FOR_RESOURCES", "ACTIVE"])
    process = start(cloud, *RUN)
    until_text(cloud.place / "err", "WAITING")
    cloud.refuses({"of": "describe", "err": "ERROR: (gcloud) UNAVAILABLE: try again"})
    assert process.wait(60) == 0 and "UNAVAILABLE: try again; asking again" in said(cloud)


# ---- wrong inputs --------------------------------------------------------------------------------


def instead(**changes: str | None) -> list[str]:
    """The arguments of `RUN`, some of them others, or left out."""
    given = dict(a.removeprefix("--").split("=", 1) for a in RUN)
    merged = {**given, **{k.replace("_", "-"): v for k, v in changes.items()}}
    return [f"--{name}={value}" for name, value in merged.items() if value is not None]


WRONG = [
    (instead(accelerator="v9:4x4"), "'v9:4x4': no accelerator 'v9'; known are v4, v5e, v5p"),
    (instead(accelerator="h100:8"), "h100:1x8: is not to be had as a TPU VM: the Cloud TPU API"),
    (instead(accelerator="7x:4x4x4"), "7x:4x4x4: is not to be had as a TPU VM"),
    (instead(accelerator="v5p:4x4x16"), "a TPU VM of 256 chips comes as v5p:4x8x8; use that shape"),
    (instead(accelerator=None), "the following arguments are required: --accelerator"),
    (instead(zone=None), "the following arguments are required: --zone"),
    (instead(zone="us-east5"), "--zone=us-east5: must be a zone, as us-east5-b"),
    (instead(image=None), "the following arguments are required: --image"),
    (instead(image="a/jaxlm"), "may be another image at each start; name a tag"),
    (instead(slices="0"), "argument --slices: '0' is not a whole number from 1 up"),
    (instead(workdir="runs/a"), "--workdir=runs/a: TPU VMs share no disk; write gs://BUCKET/PATH"),
    (instead(workdir="gs://user:hush@bucket/a"), "which may be secret"),
    (instead(name="Run_7"), "--name=Run_7: must be lower case letters, digits and -"),
    ([*RUN, "--spot", "--reserved"], "--reserved: not allowed with argument --spot"),
    ([*RUN, "--gcloud=network"], "--gcloud=network: is no flag of gcloud; write --gcloud=--FLAG"),
    ([*RUN, "--gcloud=--labels=a=b"], "--gcloud=--labels=a=b: the launcher sets that flag itself"),
    ([*RUN, "--ssh=--worker=0"], "--ssh=--worker=0: the launcher sets that flag itself"),
    ([*RUN, "--process=1"], "--process differs from process to process, the launcher sets it"),
    ([*RUN, "--config.watch.grace_seconds=9"], "use --grace-seconds, which tells the container"),
    ([*RUN, "--config.data.manifest=s3://k:hush@b/m.json"], "which may be secret"),
    (["status", ZONE], "one of the arguments --workdir --name is required"),
    (["stop", "--workdir=runs/a", ZONE], "--workdir=runs/a: TPU VMs share no disk"),
    (["logs", WORKDIR, ZONE, "--process=x"], "argument --process: 'x' is not a whole number"),
]


@pytest.mark.parametrize(("arguments", "message"), WRONG)
def test_a_wrong_input_is_2_and_nothing_is_asked_of_the_cloud(cloud, capfd, arguments, message):
    try:
        code = tpu_vm.main(arguments)
    except SystemExit as e:
        code = e.code
    out, err = capfd.readouterr()
    assert (code, out, cloud.calls) == (2, "", []), err
    assert message in err.splitlines()[-1] and "hush" not in err


REFUSED = [
    # What gcloud 528 says, of itself or of an answer of the API.
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) Error parsing [queued_resource].\n"
        "The [queued_resource] resource is not properly specified.\n"
        "Failed to find attribute [project]. The attribute can be set in the following ways: \n"
        "- set the property `core/project`",
        "choose one with `gcloud config set project PROJECT` or --project",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) You do not currently have an "
        "active account selected.\nPlease run:\n\n  $ gcloud auth login\n\nto obtain new "
        "credentials.",
        "log in with `gcloud auth login`",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) PERMISSION_DENIED: Cloud TPU API "
        "has not been used in project 123 before or it is disabled.\n"
        "- '@type': type.googleapis.com/google.rpc.ErrorInfo\n  reason: SERVICE_DISABLED",
        "enable it with `gcloud services enable tpu.googleapis.com`",
    ),
    (
        "ERROR: (gcloud.compute.tpus.queued-resources.describe) PERMISSION_DENIED: Permission "
        "'tpu.queuedResources.get' denied on 'projects/p/locations/us-east5-b'",
        "who runs this needs roles/tpu.admin",
    ),
    ("Segmentation fault", "Segmentation fault"),
    ("", "it failed in silence"),
]


@pytest.mark.parametrize(("words", "message"), REFUSED)
@pytest.mark.parametrize("arguments", [RUN, ("status", WORKDIR, ZONE), ("stop", WORKDIR, ZONE)])
def test_a_gcloud_that_refuses_is_78_in_one_line(cloud, words, message, arguments):
    cloud.refuses({"of": "describe", "err": words})
    logs = [f"--logs={cloud.place}"] if arguments == RUN else []
    done = look_at(*logs, *arguments)
    (line,) = done.stderr.splitlines()
    assert done.returncode == 78 and message in line and len(cloud.calls) == 1
    assert line.startswith(f"launch: gcloud compute tpus queued-resources describe {NAME}: ")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            "RESOURCE_EXHAUSTED: Quota limit 'TPUV6EPreemptiblePerProjectPerZoneForTPUAPI' has "
            "been exceeded. Limit: 0 in zone us-east5-b.",
            "ask for quota, where spot machines have their own",
        ),
        (
            "INVALID_ARGUMENT: Accelerator type v6e-16 is not available in zone us-east5-b.",
            "see what there is with `gcloud compute tpus accelerator-types list --zone=ZONE`",
        ),
        (
            f"ALREADY_EXISTS: Resource 'projects/p/queuedResources/{NAME}' already exists",
            "somebody else has just made it: choose another --name",
        ),
    ],
)
def test_a_request_that_is_refused_is_78_and_leaves_nothing(cloud, words, message):
    cloud.refuses({"of": "create", "err": f"ERROR: (gcloud) {words}"})
    code, _, err = launch(cloud, *RUN)
    assert code == 78 and message in err.splitlines()[-1]
    assert cloud.verbs == ["create"]


def test_no_gcloud_is_78(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert tpu_vm.main(["status", WORKDIR, ZONE]) == 78
    assert capfd.readouterr().err.startswith("launch: gcloud: is not installed; install the Google")
