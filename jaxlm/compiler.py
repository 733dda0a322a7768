"""Options for the compilers of TPU and GPU, a reason beside each; a plan compiles with the same."""

from typing import Any, NamedTuple

import jax


class Option(NamedTuple):
    """An option of XLA's, and why it is set."""

    value: Any
    reason: str


OPTIONS: dict[str, dict[str, Option]] = {}
"""By chip, as in `jaxlm.hardware.CHIPS`."""


def options(device: jax.Device) -> dict[str, Any]:
    """`compiler_options` for programs on such a device."""
    return {}
