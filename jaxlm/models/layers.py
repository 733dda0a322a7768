"""How the layers of a model are compiled."""

from jaxlm.config import ModelConfig
from jaxlm.mesh import platform_in_force


def scanned(cfg: ModelConfig) -> bool:
    """Whether they are one layer, compiled once and run in a loop; if not, each is compiled.

    By default each is on a CPU alone, where a loop copies what a layer leaves for the backward pass
    into arrays of all layers, and out of them again (docs/speed.md has both times).
    """
    if cfg.layers == "auto":
        return platform_in_force() != "cpu"
    return cfg.layers == "scan"
