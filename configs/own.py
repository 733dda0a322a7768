"""A model of 0.1 billion parameters to start from, on a corpus of your own.

jaxlm train --config=configs/own.py --workdir=runs/own

Hardware: one GPU or TPU with 16 GB. Data: 655M tokens are drawn, so 160M at least; with less,
lower train.end. To try it on a CPU with a few million tokens, add
  --config.model.d_model=128 --config.model.n_layers=4 --config.model.n_heads=4
  --config.model.n_kv_heads=2 --config.model.d_ff=352 --config.model.compute_dtype=float32
  --config.data.seq_len=512 --config.train.batch_size=4 --config.train.rows_per_device=4
  --config.train.end="1000 steps" --config.optim.warmup="50 steps" --config.optim.lr=3e-3
"""

from ml_collections import ConfigDict

from jaxlm.config import schema


def get_config() -> ConfigDict:
    """See `jaxlm.config.Config` for the fields, or `jaxlm config`."""
    c = schema()
    c.model.vocab_size = 32_000  # as configs/data/own.py
    c.model.d_model = 768
    c.model.n_layers = 12
    c.model.n_heads = 12
    c.model.n_kv_heads = 4
    c.model.d_ff = 2048
    c.model.qk_norm = True

    c.data.manifest = "runs/own/data/manifest.json"
    c.data.seq_len = 1024

    c.train.batch_size = 64
    c.train.rows_per_device = 8
    c.train.end = "10000 steps"
    c.optim.lr = 6e-4
    c.optim.warmup = "500 steps"
    c.loss.z_loss = 1e-4
    c.checkpoint.every_minutes = 30.0
    return c
