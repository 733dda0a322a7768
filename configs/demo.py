"""A small model of Chinese, English and code, trained on the demo's corpus.

python -m jaxlm demo                 # gathers and builds the corpus, then runs this
jaxlm train --config=configs/demo.py --workdir=runs/demo --config.data.manifest=MANIFEST

Hardware: 2 CPU cores, 2 GB of memory.
"""

from ml_collections import ConfigDict

from jaxlm.config import schema


def get_config() -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = schema()
    c.model.vocab_size = 8192
    c.model.d_model = 128
    c.model.n_layers = 4
    c.model.n_heads = 4
    c.model.n_kv_heads = 2
    c.model.d_ff = 352
    c.model.qk_norm = True
    c.model.tied_embeddings = True
    c.model.compute_dtype = "float32"  # faster than bfloat16 on most CPUs

    c.data.manifest = "runs/demo/data/manifest.json"
    c.data.seq_len = 256

    c.train.batch_size = 4
    c.train.end = "1700 steps"
    c.optim.lr = 8e-3
    c.optim.warmup = "100 steps"
    c.optim.b2 = 0.99
    c.optim.final_lr = 0.05
    c.loss.z_loss = 1e-4

    c.checkpoint.every = "200 steps"
    c.evaluate.every = "850 steps"
    c.evaluate.rows = 64
    c.log.every = "25 steps"
    return c
