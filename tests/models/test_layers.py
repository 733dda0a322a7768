"""Layers in a loop, or each compiled: by the platform where the config leaves it open."""

from typing import Literal

import pytest

from jaxlm.config import ModelConfig
from jaxlm.models import layers


@pytest.mark.parametrize(
    ("setting", "platform", "scanned"),
    [
        ("auto", "cpu", False),
        ("auto", "cuda", True),
        ("auto", "tpu", True),
        ("auto", "", True),
        ("scan", "cpu", True),
        ("unroll", "tpu", False),
    ],
)
def test_by_the_platform_where_it_is_left_open(
    monkeypatch, setting: Literal["auto", "scan", "unroll"], platform, scanned
):
    monkeypatch.setattr(layers, "platform_in_force", lambda: platform)
    assert layers.scanned(ModelConfig(layers=setting)) == scanned
