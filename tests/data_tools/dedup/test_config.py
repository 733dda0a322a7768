"""The configuration refuses what means nothing, and says what to do."""

import pytest

from data_tools.dedup.config import NearConfig
from jaxlm.schema import ConfigError, parse


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"same": {"threshold": 0.0}}, "same: threshold=0.0 must be above 0 and at most 1"),
        ({"same": {"containment": 1.5}}, "containment=1.5 must be from 0 to 1; 0 looks at"),
        ({"shingles": {"words": 0}}, "config.shingles: words=0 must be at least 1"),
        ({"candidates": {"rows": 0}}, "rows=0 must be at least 1"),
        ({"candidates": {"seed": 1 << 32}}, "seed=4294967296 must be below 2**32"),
        ({"survivor": {"order": ("best",)}}, "must be one of 'quality', 'longest', 'source'"),
        ({"survivor": {"sources": ("a", "a")}}, "sources: 'a' is named twice; name it once"),
        ({"bucket_limit": 1}, "bucket_limit=1 must be at least 2"),
        (
            {"candidates": {"bands": 64, "rows": 65}},
            "bands=64 of rows=65 are 4160 permutations for each shingle, at most 4096 are allowed",
        ),
        ({"memory_bytes": (1 << 20) - 1}, "memory_bytes=1048575 must be at least 1048576: less"),
        ({"alarm_share": 0.0}, "alarm_share=0.0 must be above 0 and at most 1"),
    ],
)
def test_values_are_checked(values, message):
    with pytest.raises(ConfigError) as error:
        parse(NearConfig, values)
    assert message in str(error.value)
