"""gcloud: what its refusals mean."""

from launch.tool import Tool

_REMEDIES = (
    (
        r"attribute \[project\]|property \[project\]|core/project",
        "choose one with `gcloud config set project PROJECT` or --project",
    ),
    (
        "active account|auth login|[Rr]eauthentication|invalid_grant|UNAUTHENTICATED",
        "log in with `gcloud auth login`",
    ),
    (
        "SERVICE_DISABLED|has not been used in project",
        "enable it with `gcloud services enable tpu.googleapis.com`",
    ),
    (
        "RESOURCE_EXHAUSTED|[Qq]uota",
        "ask for quota, where spot machines have their own, or use another zone or size",
    ),
    (
        "PERMISSION_DENIED",
        "who runs this needs roles/tpu.admin and roles/iam.serviceAccountUser in the project",
    ),
    ("ALREADY_EXISTS", "somebody else has just made it: choose another --name"),
    (
        "INVALID_ARGUMENT|not available in|not found in",
        "see what there is with `gcloud compute tpus accelerator-types list --zone=ZONE`",
    ),
    ("not present in the SSH agent", "add it with `ssh-add ~/.ssh/google_compute_engine`"),
)
"""What gcloud says -> what helps."""

GCLOUD = Tool(
    missing="install the Google Cloud CLI (docs/clusters.md)",
    remedies=_REMEDIES,
)
