"""SIGTERM: the run saves, says 75, and goes on from there; asked twice, it ends at once."""

import signal
import time

import pytest

from jaxlm import status
from jaxlm import workdir as workdirs
from tests.system import runs

pytestmark = pytest.mark.system


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_asked_to_stop(tmp_path, config, whole, number):
    log = tmp_path / "log"
    command = runs.train(config, tmp_path, runs.SLOWLY, "checkpoint.every=None")
    with runs.running(command, log) as process:
        runs.wait_until(runs.says(log, "step     12/"), process)
        process.send_signal(number)
        assert process.wait(runs.PATIENCE_S) == 75
    (step,) = runs.committed(tmp_path)  # saved because of the signal alone
    assert 12 <= step < runs.STEPS
    assert f"stopped as asked: step {step} is saved; the same command goes on" in log.read_text()
    said = workdirs.status(tmp_path)
    assert (said["state"], said["step"], said["position"]) == ("stopped", step, 4 * step)
    assert (status.of(tmp_path).state, status.of(tmp_path).step) == ("stopped", step)
    code, output = runs.finish(command, tmp_path / "second.log")
    assert code == 0, output
    assert f"resuming at step {step}" in output
    runs.assert_same(runs.state(tmp_path), runs.state(whole))
    assert runs.time_spent(tmp_path).lost_steps == 0


def test_asked_twice(tmp_path, config):
    """While it compiles, when Python's own handlers would have to wait."""
    log = tmp_path / "log"
    with runs.running(runs.train(config, tmp_path), log) as process:
        runs.wait_until(runs.says(log, "compiling"), process)
        process.terminate()
        time.sleep(0.2)
        assert process.poll() is None
        start = time.monotonic()
        process.terminate()
        assert process.wait(runs.PATIENCE_S) == -signal.SIGKILL
        assert time.monotonic() - start < 1
    assert runs.committed(tmp_path) == []
