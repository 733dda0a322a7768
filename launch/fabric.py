"""The networks of Google's GPU machines, and what a pod must have so that NCCL uses them.

Both fail closed: `NCCL_NET` names the plugin, without which NCCL would fall back to sockets, at a
tenth of the speed, and say nothing.

Sources: Google's NCCL tests for A4 and A3 Ultra (cloud.google.com/ai-hypercomputer/docs/nccl/test),
GoogleCloudPlatform/container-engine-accelerators, gpudirect-rdma and gpudirect-tcpxo (the release
notes of 2025-11-19), and xpk 1.16 (core/workload_decorators). The objects `Network` of these names
are made with the node pool (docs/clusters.md). Not tried on such machines.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

_DEVICES = (*(f"nvidia{i}" for i in range(8)), "nvidiactl", "nvidia-uvm", "dmabuf_import_helper")


@dataclass(frozen=True, eq=False)
class Fabric:
    """Of one kind of machine."""

    name: str
    interfaces: Mapping[str, str]
    """Interface in the pod -> the cluster's object `Network`. The first is the pod's own."""
    environment: Mapping[str, str]
    setup: str
    """A script of the node's, to be sourced: it sets what NCCL needs, as its version says."""
    host_paths: Mapping[str, str]
    """Directory of the node -> where the program sees it."""
    capabilities: tuple[str, ...] = ()
    daemon: Mapping[str, Any] = field(default_factory=dict)
    """A container that runs beside the program; empty: none."""
    daemon_host_paths: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)


GIB = Fabric(
    name="gIB",
    interfaces={"eth0": "default", **{f"eth{i + 2}": f"rdma-{i}" for i in range(8)}},
    environment={
        "NCCL_NET": "gIB",
        "LD_LIBRARY_PATH": "/usr/local/gib/lib64:/usr/local/nvidia/lib64",
    },
    setup="/usr/local/gib/scripts/set_nccl_env.sh",
    host_paths={
        "/home/kubernetes/bin/nvidia": "/usr/local/nvidia",
        "/home/kubernetes/bin/gib": "/usr/local/gib",
    },
    capabilities=("IPC_LOCK",),
)
"""GPUDirect RDMA over eight ConnectX-7 (RoCE)."""

TCPXO = Fabric(
    name="TCPXO",
    interfaces={"eth0": "default", **{f"eth{i}": f"vpc{i}" for i in range(1, 9)}},
    environment={
        "NCCL_NET": "FasTrak",
        "NCCL_LIB_DIR": "/usr/local/nvidia/lib64",
        "NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY": "/dev/aperture_devices",
        "LD_LIBRARY_PATH": "/usr/local/nvidia/lib64",
    },
    setup="/usr/local/nvidia/lib64/nccl-env-profile.sh",
    host_paths={
        "/home/kubernetes/bin/nvidia": "/usr/local/nvidia",
        "/dev/aperture_devices": "/dev/aperture_devices",
    },
    daemon={
        "name": "tcpxo-daemon",
        "image": "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.20",
        "restartPolicy": "Always",  # which makes an init container one that runs along
        "command": ["/bin/sh", "-c"],
        "args": [
            "chmod 755 /fts/entrypoint_rxdm_container.sh && exec /fts/entrypoint_rxdm_container.sh"
            " --num_hops=2 --num_nics=8 --uid= --alsologtostderr"
        ],
        "securityContext": {"capabilities": {"add": ["NET_ADMIN", "NET_BIND_SERVICE"]}},
        "env": [{"name": "LD_LIBRARY_PATH", "value": "/usr/local/nvidia/lib64"}],
    },
    daemon_host_paths={
        "/home/kubernetes/bin/nvidia": "/usr/local/nvidia",
        "/sys": "/hostsysfs",
        "/proc/sys": "/hostprocsysfs",
    },
    annotations={
        "devices.gke.io/container.tcpxo-daemon": "".join(f"- path: /dev/{d}\n" for d in _DEVICES)
    },
)
"""GPUDirect-TCPXO over eight gVNICs. The daemon's version goes with that of the NCCL plugin's
installer, nccl-plugin-gpudirecttcpx-dev:v1.0.14, which is a DaemonSet of the cluster."""
