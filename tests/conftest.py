"""The world of the tests: 8 fake CPU devices, strict JAX, and in CI no skips."""

import os
import signal
import tempfile
from collections.abc import Iterator

import pytest

from bench import stores

# Before anything imports JAX, and inherited by the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"
# Runs find what others of the same call of pytest have compiled, as a user's do, and nothing else.
if "PYTEST_XDIST_WORKER" not in os.environ:
    _cache = tempfile.TemporaryDirectory(prefix="jaxlm-tests-")
    os.environ["XDG_CACHE_HOME"] = _cache.name
# Under nohup, or in the background of a script, they would be told not to hear these.
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport():
    return _no_skips_in_ci((yield))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report():
    return _no_skips_in_ci((yield))


def _no_skips_in_ci(
    report: pytest.TestReport | pytest.CollectReport,
) -> pytest.TestReport | pytest.CollectReport:
    if os.environ.get("CI") == "true" and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"in CI every test must run, this one would not: {reason}"
    return report


@pytest.fixture(scope="session")
def s3() -> Iterator[stores.Proxy]:
    """An S3 server on loopback, with a bucket."""
    with stores.s3() as found:
        yield found


@pytest.fixture(scope="session")
def gcs() -> Iterator[stores.Proxy]:
    """A server of Google Cloud Storage on loopback, with a bucket."""
    with stores.gcs() as found:
        yield found


@pytest.fixture(params=["s3", "gcs"])
def store(request: pytest.FixtureRequest) -> Iterator[stores.Proxy]:
    """Each of them in turn, without faults and with no requests counted."""
    found = request.getfixturevalue(request.param)
    found.faults.clear()
    found.requests.clear()
    yield found
    found.faults.clear()
