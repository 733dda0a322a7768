"""The manifest of a run on GKE: a JobSet, as plain data.

One Job a TPU slice, or one for all GPU nodes; one pod a host, which runs `python -m launch host`.
Where a setting has a reason, it stands beside it. Sources: the JobSet API and its concepts page
(jobset.sigs.k8s.io), GKE's pages on TPU multislice and Spot VMs, xpk 1.16 (commands/workload).

What says which process a pod is: `JAXLM_PROCESSES`, `JAXLM_PODS_PER_JOB`, `JAXLM_COORDINATOR`,
`JAXLM_JOB_INDEX`, and Kubernetes' own `JOB_COMPLETION_INDEX`; process = job index x pods per job +
completion index. `TPU_WORKER_ID`, `TPU_WORKER_HOSTNAMES` and, of several slices, `MEGASCALE_*` are
set by GKE's webhook in pods of a JobSet that ask for TPUs, in the same order; xpk sets none either.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from launch import exits
from launch.fabric import Fabric
from launch.machines import Target

API = "jobset.x-k8s.io/v1alpha2"
OLDEST = "0.10.1"
"""Of JobSet: the first release with `onJobFailureMessagePatterns`, in its Helm chart too."""
HOSTS = "hosts"
"""Name of the replicated job."""
CONTAINER = "jaxlm"
COORDINATOR_PORT = 8482
"""As JAX's own on TPU pods."""
TPU_PORTS, SLICES_PORT = (8471,), 8080
"""Where TPU hosts of a slice meet; where slices do."""
CACHE = "/cache"
"""Where the pod sees its share of the node's disk."""
DRIVER = "/usr/local/nvidia/lib64"
"""Where GKE puts the GPU driver's libraries."""
MARGIN_S = 30
"""Between the end of the program's own time to save and SIGKILL."""
NAME_LABEL = "jobset.sigs.k8s.io/jobset-name"
JOB_INDEX_LABEL = "jobset.sigs.k8s.io/job-index"
POD_INDEX_LABEL = "batch.kubernetes.io/job-completion-index"
OWNER = {"app.kubernetes.io/managed-by": "jaxlm"}
"""Label of what this launcher has made."""
WORKDIR = "jaxlm/workdir"
"""Annotation: the run's work directory."""


@dataclass(frozen=True)
class Job:
    """What is to be run."""

    name: str
    target: Target
    image: str
    workdir: str
    train: tuple[str, ...]
    """Arguments of `jaxlm train`, without --workdir."""
    slices: int = 1
    spot: bool = False
    queue: str = ""
    """Kueue's LocalQueue; empty: none."""
    service_account: str = ""
    """Of Kubernetes; empty: the namespace's default."""
    grace_s: int = 120
    """From SIGTERM until the program has saved."""
    max_restarts: int = 30
    disk_gb: int = 120
    """Of the node's disk, for the shards of the corpus and small files."""

    @property
    def hosts(self) -> int:
        """In all."""
        return self.target.hosts * self.slices


def manifest(job: Job) -> dict[str, Any]:
    """The JobSet: what `kubectl create` takes, as JSON."""
    labels = dict(OWNER)
    annotations = {WORKDIR: job.workdir}
    if job.queue:
        labels["kueue.x-k8s.io/queue-name"] = job.queue
    if job.target.is_tpu and job.target.hosts > 1:
        # A node pool is a slice: each Job gets one for itself, all of its pods lie in it. Pools of
        # single-host slices and of GPUs are shared, so that they may not be taken whole.
        annotations["alpha.jobset.sigs.k8s.io/exclusive-topology"] = "cloud.google.com/gke-nodepool"
    return {
        "apiVersion": API,
        "kind": "JobSet",
        "metadata": {"name": job.name, "labels": labels, "annotations": annotations},
        "spec": {
            # Names are known before pods are ready: the roll call is what they are ready for.
            "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
            "failurePolicy": _failure_policy(job),
            "replicatedJobs": [
                {
                    "name": HOSTS,
                    "replicas": job.slices,
                    "template": {"spec": _job(job)},
                }
            ],
        },
    }


def _failure_policy(job: Job) -> dict[str, Any]:
    """What a failed Job means for all: the first rule that fits, else a restart that counts.

    The words are those of Kubernetes' Job controller; the index is that of `_job`'s rules.
    """
    rules = (("hopeless", "FailJobSet"), ("disrupted", "RestartJobSetAndIgnoreMaxRestarts"))
    return {
        "maxRestarts": job.max_restarts,
        # Old pods are gone before new ones come: they would find the lease taken, the node full.
        "restartStrategy": "BlockingRecreate",
        "rules": [
            {
                "name": name,
                "action": action,
                "onJobFailureReasons": ["PodFailurePolicy"],
                "onJobFailureMessagePatterns": [f"matching FailJob rule at index {index}$"],
            }
            for index, (name, action) in enumerate(rules)
        ],
    }


def _job(job: Job) -> dict[str, Any]:
    hosts = job.target.hosts
    return {
        "completionMode": "Indexed",
        "parallelism": hosts,
        "completions": hosts,
        "backoffLimit": 0,  # a pod alone does not start again: all do, or none
        "podFailurePolicy": {
            "rules": [
                # A crash is not here: from outside it looks like a peer that was lost.
                {
                    "action": "FailJob",
                    "onExitCodes": {
                        "containerName": CONTAINER,
                        "operator": "In",
                        "values": [exits.USAGE, exits.ENVIRONMENT],
                    },
                },
                {
                    "action": "FailJob",
                    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
                },
            ]
        },
        "template": _pod(job),
    }


def _pod(job: Job) -> dict[str, Any]:
    target = job.target
    fabric = target.machine.fabric if job.hosts > 1 else None
    spec: dict[str, Any] = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": job.grace_s + MARGIN_S,
        "nodeSelector": dict(target.node_labels),
        "tolerations": [{"key": target.resource, "operator": "Exists", "effect": "NoSchedule"}],
        "containers": [_container(job, fabric)],
        "volumes": [{"name": "cache", "emptyDir": {}}],
        "automountServiceAccountToken": False,  # the program does not speak to Kubernetes
    }
    if job.service_account:
        spec["serviceAccountName"] = job.service_account
    if job.spot:
        key = "cloud.google.com/gke-spot"
        spec["nodeSelector"][key] = "true"
        spec["tolerations"].append(
            {"key": key, "operator": "Equal", "value": "true", "effect": "NoSchedule"}
        )
    if on_host_network(job):
        spec |= {"hostNetwork": True, "dnsPolicy": "ClusterFirstWithHostNet"}
    if not target.is_tpu:
        # A container has 64 MiB of shared memory by default, which NCCL finds too small.
        spec["volumes"].append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    if fabric is None:
        return {"spec": spec}
    spec["volumes"] += [
        {"name": _volume(path), "hostPath": {"path": path}}
        for path in {**fabric.host_paths, **fabric.daemon_host_paths}
    ]
    if fabric.daemon:
        mounts = _mounts(fabric.daemon_host_paths)
        spec["initContainers"] = [{**fabric.daemon, "volumeMounts": mounts}]
    interfaces = [{"interfaceName": i, "network": n} for i, n in fabric.interfaces.items()]
    annotations = {
        "networking.gke.io/default-interface": next(iter(fabric.interfaces)),
        "networking.gke.io/interfaces": json.dumps(interfaces),
        **fabric.annotations,
    }
    return {"metadata": {"annotations": annotations}, "spec": spec}


def on_host_network(job: Job) -> bool:
    """Whether pods use the node's network as it is: where gradients cross it by plain sockets.

    That is between slices, and between GPU nodes without RDMA. Others reported 58% MFU in place of
    50% on v5e-512 (apple/axlearn, pull request 641). The price: such a pod has the credentials of
    its node, not those of its service account.
    """
    if job.target.is_tpu:
        return job.slices > 1
    return job.hosts > 1 and job.target.machine.fabric is None


def _container(job: Job, fabric: Fabric | None) -> dict[str, Any]:
    target = job.target
    where = ["--place=jobset", f"--workdir={job.workdir}"]
    command = ["python", "-m", "launch", "host", *where, "--", *job.train]
    command = [word.replace("$", "$$") for word in command]  # else Kubernetes reads $(NAME)
    chips = {target.resource: str(target.chips_per_host)}
    container: dict[str, Any] = {
        "name": CONTAINER,
        "image": job.image,
        "command": command,
        "env": _environment(job),
        "ports": [{"containerPort": port} for port in _ports(job)],
        "resources": {
            "limits": chips,
            "requests": {
                **chips,
                # Of what a node has: the rest is for its system and Google's daemons.
                "memory": f"{target.memory_gib * 3 // 4}Gi",
                "ephemeral-storage": f"{job.disk_gb}G",
            },
        },
        "volumeMounts": [{"name": "cache", "mountPath": CACHE}],
    }
    if target.is_tpu:
        # The driver locks memory for DMA; a container that is not privileged may lock 64 KiB.
        container["securityContext"] = {"privileged": True}
    else:
        container["volumeMounts"].append({"name": "shm", "mountPath": "/dev/shm"})
        libraries = {"LD_LIBRARY_PATH": DRIVER} if fabric is None else fabric.environment
        container["env"] += [{"name": k, "value": v} for k, v in libraries.items()]
    if fabric is not None:
        script = f'source {fabric.setup} || exit {exits.ENVIRONMENT}; exec "$$@"'
        container["command"] = ["bash", "-c", script, "bash", *command]
        container["volumeMounts"] += _mounts(fabric.host_paths)
        if fabric.capabilities:
            container["securityContext"] = {"capabilities": {"add": list(fabric.capabilities)}}
    return container


def _environment(job: Job) -> list[dict[str, Any]]:
    """The first pod of the first Job is the coordinator."""
    label = f"metadata.labels['{JOB_INDEX_LABEL}']"
    return [
        {"name": "JAXLM_PROCESSES", "value": str(job.hosts)},
        {"name": "JAXLM_PODS_PER_JOB", "value": str(job.target.hosts)},
        {
            "name": "JAXLM_COORDINATOR",
            "value": f"{job.name}-{HOSTS}-0-0.{job.name}:{COORDINATOR_PORT}",
        },
        {"name": "JAXLM_JOB_INDEX", "valueFrom": {"fieldRef": {"fieldPath": label}}},
        {"name": "XDG_CACHE_HOME", "value": CACHE},
    ]


def _ports(job: Job) -> list[int]:
    of_tpu = TPU_PORTS if job.target.is_tpu else ()
    return [COORDINATOR_PORT, *of_tpu, *([SLICES_PORT] if job.slices > 1 else [])]


def _mounts(host_paths: Mapping[str, str]) -> list[dict[str, str]]:
    return [{"name": _volume(path), "mountPath": at} for path, at in host_paths.items()]


def _volume(path: str) -> str:
    """A name for a directory of the node."""
    return "host-" + path.strip("/").replace("/", "-").replace("_", "-")
