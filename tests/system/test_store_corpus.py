"""A run whose corpus lies in an object store that fails now and then."""

import pytest

from bench import runs
from bench.stores import SECRET, Fault, put_tree


@pytest.mark.system
def test_a_run_from_a_failing_store_ends_in_the_same_bits(tmp_path, config, whole, store):
    url = put_tree(store, "run", config.parent / "data")
    shards = store.media("run/shards/")
    for kind in ("503", "reset", "truncated", "flipped", "slow"):
        store.faults.append(Fault(kind, shards))
    workdir, cache = tmp_path / "run", tmp_path / "cache"
    overrides = (f"data.manifest={url}/manifest.json", f"cache.directory={cache}")
    code, output = runs.finish(runs.train(config, workdir, *overrides), tmp_path / "log")
    assert code == 0, output
    assert [fault.times for fault in store.faults] == [0] * 5
    runs.assert_same(runs.state(workdir), runs.state(whole))
    saved = (workdir / "config.json").read_text()
    assert url in saved and SECRET not in saved + output
