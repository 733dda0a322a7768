"""The golden file of shardings: what changes in rules, meshes or pins is a diff of some lines."""

import difflib
from unittest import mock

from jaxlm import mesh
from tests import shardings


def diff(found: str) -> list[str]:
    """Lines that are not as in the golden file."""
    golden = shardings.GOLDEN.read_text(encoding="utf-8")
    return list(difflib.unified_diff(golden.splitlines(), found.splitlines(), "golden", "now", n=0))


def test_shardings_are_those_of_the_golden_file():
    lines = diff(shardings.text())
    assert not lines, (
        "shardings have changed. If that is meant: python -m tests.shardings\n" + "\n".join(lines)
    )


def test_a_rule_that_changes_shows_in_the_diff():
    name = "lm_1b:v5p:2x2x2"
    rules = {**mesh.RULES, "mlp": ()}
    with (
        mock.patch.object(shardings, "_names", lambda: [name]),
        mock.patch.object(mesh, "RULES", rules),
    ):
        lines = [line for line in diff(shardings.text()) if line.startswith("+")]
    assert "+    blocks.mlp.up.kernel             float32[22, 2048/fsdp, 5632]" in lines
    assert "+    MLP                              bfloat16[16/fsdp, 4096, 5632]" in lines
