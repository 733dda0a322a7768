"""Networks. A new kind of layer is a file with its module, and a line in `BLOCKS`."""

from jaxlm.config import ModelConfig
from jaxlm.models import remat
from jaxlm.models.block import Block
from jaxlm.models.transformer import ModelDef
from jaxlm.schema import ConfigError

BLOCKS = {"transformer": Block}


def build(cfg: ModelConfig, attention: str = "reference") -> ModelDef:
    """The model of a config, with an attention kernel; no arrays yet."""
    if cfg.block not in BLOCKS:
        raise ConfigError(f"config.model.block={cfg.block!r}: must be one of {', '.join(BLOCKS)}")
    remat.check(cfg)
    return ModelDef(cfg, BLOCKS[cfg.block], attention)
