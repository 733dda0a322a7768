"""How the layers of a model are compiled."""

from jaxlm.config import ModelConfig
from jaxlm.mesh import platform_in_force


def scanned(cfg: ModelConfig) -> bool:
    """Whether they are one layer, compiled once and run in a loop; if not, each is compiled.

    By default each is on a CPU alone. There a loop writes to memory what a layer leaves for the
    backward pass, and reads it again: steps take longer than what compiling once would save.
    """
    if cfg.layers == "auto":
        return platform_in_force() != "cpu"
    return cfg.layers == "scan"
