"""kubectl: what its refusals mean."""

from launch import jobset
from launch.tool import Tool

REQUEST = "--request-timeout=30s"

_UNREACHABLE = "|".join(
    (
        "Unable to connect|was refused|no such host|i/o timeout|deadline exceeded",
        "handshake timeout|Client.Timeout|context was not found|context .* does not exist",
        "no configuration has been provided|current-context",
    )
)
_REMEDIES = (
    (
        r"doesn't have a resource type \"?jobsets?\b|no matches for kind \"JobSet\"",
        f"install JobSet {jobset.OLDEST} or later in the cluster",
    ),
    ("doesn't have a resource type \"localqueues", "install Kueue in it, or leave out --queue"),
    ("serviceaccounts .* not found", "make it with `kubectl create serviceaccount`"),
    (
        "unknown field",
        f"the cluster's JobSet is older than {jobset.OLDEST}: install a later one",
    ),
    (
        _UNREACHABLE,
        "choose the cluster with `gcloud container clusters get-credentials` or --context, and "
        "see that it can be reached from here",
    ),
    ("denied the request", "that is a rule of the cluster, not of Kubernetes: ask who runs it"),
    (
        "[Ff]orbidden|[Uu]nauthorized|must be logged in|gke-gcloud-auth-plugin",
        "log in with `gcloud auth login`; who submits needs the role "
        "roles/container.developer in the cluster's project",
    ),
    ('namespaces ".*" not found', "make it with `kubectl create namespace`, or leave it out"),
    ("AlreadyExists|already exists", "somebody else has just submitted it"),
)
"""What kubectl says -> what helps."""

KUBECTL = Tool(
    missing="`gcloud components install kubectl gke-gcloud-auth-plugin` brings it "
    "(docs/clusters.md)",
    remedies=_REMEDIES,
    noise=r"[EWI]\d{4} \d\d:",
)
