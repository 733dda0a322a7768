"""The build that the tests of the report and of `explain` look at."""

from pathlib import Path

import pytest

from tests.data_tools import eventful, small


@pytest.fixture(scope="session")
def eventful_build(tmp_path_factory) -> Path:
    """Work directory of a finished build of `eventful`; only to be read."""
    workdir = tmp_path_factory.mktemp("eventful")
    small.run(eventful.write(workdir), workdir)
    return workdir
