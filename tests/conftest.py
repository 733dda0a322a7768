"""The world of the tests: 8 fake CPU devices, strict JAX, and in CI no skips."""

import os

import pytest

# Before anything imports JAX, and inherited by the processes that tests start.
os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("XLA_FLAGS", "--xla_force_host_platform_device_count=8")
os.environ["JAX_NUMPY_RANK_PROMOTION"] = "raise"


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
