"""Manifests: the golden ones, by the schemas of Kubernetes and JobSet, and what they must say."""

import copy
import difflib
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pydantic
import pytest
from kubeflow_trainer_api.models import JobsetV1alpha2JobSet

from launch import exits, jobset
from tests.launch import jobsets

CASES = jobsets.cases()
VERSIONS = ("1.31", "1.34", "1.37")
"""Of Kubernetes: pod failure policies are stable from 1.31 on."""


@pytest.mark.parametrize("name", CASES)
def test_a_manifest_is_that_of_the_golden_file(name):
    golden = (jobsets.GOLDEN / f"{name}.json").read_text(encoding="utf-8")
    found = jobsets.text(CASES[name])
    lines = list(difflib.unified_diff(golden.splitlines(), found.splitlines(), "golden", "now"))
    assert not lines, (
        "the manifest has changed. If that is meant: python -m tests.launch.jobsets\n"
        + "\n".join(lines)
    )


def test_there_is_no_golden_file_of_nothing():
    assert {path.stem for path in jobsets.GOLDEN.glob("*.json")} == set(CASES)


# ---- schemas -------------------------------------------------------------------------------------


def check_job(manifest: dict[str, Any], version: str) -> None:
    """Raises if the Job that the JobSet makes is not one of Kubernetes; unknown fields are none."""
    template = manifest["spec"]["replicatedJobs"][0]["template"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "a"}, **template}
    kubernetes_validate.validate(job, version, strict=True)


def check_jobset(manifest: dict[str, Any]) -> None:
    """Raises if JobSet's API has not these fields, of these types.

    The models are made from it; they drop what they do not know, and fill in defaults.
    """
    made = JobsetV1alpha2JobSet.from_dict(copy.deepcopy(manifest))
    assert made is not None
    assert list(dropped(manifest, made.to_dict())) == []


def dropped(given: Any, kept: Any, path: str = "") -> Iterator[str]:
    """What was given and is not kept as it was."""
    if isinstance(given, dict) and isinstance(kept, dict):
        for key, value in given.items():
            yield from dropped(value, kept.get(key), f"{path}.{key}")
    elif isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        for i, (value, other) in enumerate(zip(given, kept, strict=True)):
            yield from dropped(value, other, f"{path}[{i}]")
    elif given != kept:
        yield path


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", CASES)
def test_its_job_is_one_of_kubernetes(name, version):
    check_job(jobsets.manifest(CASES[name]), version)


@pytest.mark.parametrize("name", CASES)
def test_it_is_a_jobset(name):
    check_jobset(jobsets.manifest(CASES[name]))


def at(manifest: dict[str, Any], *path: str | int) -> Any:
    for key in path:
        manifest = manifest[key]  # pyright: ignore[reportArgumentType]
    return manifest


POD = ("spec", "replicatedJobs", 0, "template", "spec", "template", "spec")


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (POD, "hostNetworks", True),
        (POD, "terminationGracePeriodSeconds", "150"),
        ((*POD, "containers", 0), "imagee", "a"),
        (("spec", "replicatedJobs", 0, "template", "spec"), "backoffLimit", "0"),
    ],
)
def test_the_schema_of_kubernetes_would_tell(path, key, value):
    manifest = jobsets.manifest(CASES["v5p"])
    at(manifest, *path)[key] = value
    with pytest.raises(kubernetes_validate.ValidationError):
        check_job(manifest, "1.37")


@pytest.mark.parametrize(
    ("path", "key", "value"),
    [
        (("spec",), "maxRestarts", 3),
        (("spec", "failurePolicy"), "maxRestarts", "3"),
        (("spec", "failurePolicy", "rules", 0), "onFailureReasons", ["PodFailurePolicy"]),
        (("spec", "replicatedJobs", 0), "replicas", "2"),
        (("spec", "network"), "enableDNSHostnames", "yes"),
    ],
)
def test_the_schema_of_jobset_would_tell(path, key, value):
    manifest = jobsets.manifest(CASES["v5p"])
    at(manifest, *path)[key] = value
    with pytest.raises((pydantic.ValidationError, AssertionError)):
        check_jobset(manifest)


# ---- what it must say ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", CASES)
def test_its_names_are_those_that_jobset_and_kubernetes_allow(name):
    """What their webhooks refuse, and no schema says."""
    spec = jobsets.manifest(CASES[name])["spec"]
    for rule in spec["failurePolicy"]["rules"]:
        assert re.fullmatch("[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", rule["name"])
        assert rule["action"] in ("FailJobSet", "RestartJobSetAndIgnoreMaxRestarts")
    pod = at({"spec": spec}, *POD)
    volumes = [volume["name"] for volume in pod["volumes"]]
    assert len(set(volumes)) == len(volumes)
    for container in (*pod["containers"], *pod.get("initContainers", [])):
        assert {mount["name"] for mount in container["volumeMounts"]} <= set(volumes)
        names = [variable["name"] for variable in container["env"]]
        assert len(set(names)) == len(names)
        paths = [mount["mountPath"] for mount in container["volumeMounts"]]
        assert len(set(paths)) == len(paths)
    for volume in volumes:
        assert re.fullmatch("[a-z0-9]([-a-z0-9]*[a-z0-9])?", volume) and len(volume) <= 63


def job_failure(rules: list[dict[str, Any]], exit_code: int, disrupted: bool) -> str | None:
    """The message of Kubernetes' Job controller for a failed pod, None if no rule fits.

    As in pkg/controller/job/pod_failure_policy.go.
    """
    for index, rule in enumerate(rules):
        end = f"matching {rule['action']} rule at index {index}"
        if exit_code in rule.get("onExitCodes", {}).get("values", []):
            return f"Container jaxlm for pod default/a-0 failed with exit code {exit_code} {end}"
        if disrupted and "onPodConditions" in rule:
            return f"Pod default/a-0 has condition DisruptionTarget {end}"
    return None


def action(manifest: dict[str, Any], message: str | None) -> str:
    """What JobSet does about it: the first rule of which a pattern is found in the message."""
    reason = "BackoffLimitExceeded" if message is None else "PodFailurePolicy"
    for rule in manifest["spec"]["failurePolicy"]["rules"]:
        patterns = rule["onJobFailureMessagePatterns"]
        if reason in rule["onJobFailureReasons"] and any(
            re.search(pattern, message or "") for pattern in patterns
        ):
            return rule["action"]
    return "RestartJobSet"


@pytest.mark.parametrize(
    ("exit_code", "disrupted", "expected"),
    [
        (exits.USAGE, False, "FailJobSet"),
        (exits.ENVIRONMENT, False, "FailJobSet"),
        (exits.ENVIRONMENT, True, "FailJobSet"),
        (exits.RESTART, False, "RestartJobSet"),
        (exits.RESTART, True, "RestartJobSetAndIgnoreMaxRestarts"),
        (137, True, "RestartJobSetAndIgnoreMaxRestarts"),
        (137, False, "RestartJobSet"),
        (1, False, "RestartJobSet"),
    ],
)
def test_what_an_end_of_a_pod_leads_to(exit_code, disrupted, expected):
    manifest = jobsets.manifest(CASES["v5p"])
    rules = at(manifest, *POD[:-2])["podFailurePolicy"]["rules"]
    assert action(manifest, job_failure(rules, exit_code, disrupted)) == expected


def test_processes_are_counted_over_slices():
    everything = CASES["v5p-everything"]
    manifest = jobsets.manifest(everything)
    env = {e["name"]: e.get("value") for e in at(manifest, *POD)["containers"][0]["env"]}
    assert (env["JAXLM_PROCESSES"], env["JAXLM_PODS_PER_JOB"]) == ("64", "32")
    name = everything.name
    assert env["JAXLM_COORDINATOR"] == f"{name}-hosts-0-0.{name}:8482"
    assert at(manifest, "spec", "replicatedJobs", 0, "replicas") == 2


def test_arguments_are_not_expanded_by_kubernetes():
    job = jobsets.make("v5e:4x4")
    words = ("--config.data.manifest=$(HOME)/a", "--config.x=$$y")
    made = jobset.manifest(jobset.Job(**{**vars(job), "train": words}))
    command = at(made, *POD)["containers"][0]["command"]
    assert expanded(command[-2:]) == list(words)


def expanded(command: list[str]) -> list[str]:
    """As Kubernetes does it: $$ is $, $(NAME) a variable."""
    return [
        re.sub(r"\$(\$|\((\w+)\))", lambda m: "$" if m[1] == "$" else "EXPANDED", word)
        for word in command
    ]


@pytest.mark.parametrize(
    ("accelerator", "slices", "expected"),
    [
        ("v5p:4x4x8", 1, False),
        ("v5p:4x4x8", 2, True),
        ("a100:8", 1, False),
        ("a100:4x8", 1, True),
        ("h200:4x8", 1, False),  # other interfaces cannot be added to the host's network
    ],
)
def test_the_host_network_is_for_gradients_by_sockets(accelerator, slices, expected):
    job = jobset.Job(**{**vars(jobsets.make(accelerator)), "slices": slices})
    pod = at(jobset.manifest(job), *POD)
    assert ("hostNetwork" in pod) == expected
    assert pod.get("dnsPolicy") == ("ClusterFirstWithHostNet" if expected else None)
