"""A Llama-like model of 7.5 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_7b.py --target=h100:4x8
jaxlm train --config=configs/lm_7b.py:h100:4x8 --workdir=runs/lm_7b

Batch: 4M tokens, by accumulation. Corpus: a vocabulary of at most 65,536,
so that a token takes two bytes. `jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:2x4x4   150B tokens: at least 5.8 days, $18,693, spot $3,721
  v5e:4x8     150B tokens: at least 16.3 days, $15,038, spot $3,070
  a100:4x8    150B tokens: at least 8.4 days, $17,515, spot $7,823
  h100:4x8    150B tokens: at least 2.7 days, $12,596, spot $5,042
  h200:4x8    150B tokens: at least 2.7 days, $12,903, spot $5,353
  b200:4x8    150B tokens: at least 1.2 days, $7,736, spot $3,836
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:2x4x4": Layout(mesh=(2, 16, 1), rows=4, remat="dots"),
    "v5e:4x8": Layout(mesh=(2, 16, 1), rows=1, remat="attention"),
    "v6e:4x8": Layout(mesh=(2, 16, 1), rows=1, remat="dots"),
    "7x:2x2x4": Layout(mesh=(2, 16, 1), rows=4, remat="dots"),
    "a100:4x8": Layout(mesh=(4, 8, 1), rows=2, remat="dots"),
    "h100:4x8": Layout(mesh=(4, 8, 1), rows=2, remat="dots"),
    "h200:4x8": Layout(mesh=(4, 8, 1), rows=4, remat="dots"),
    "b200:4x8": Layout(mesh=(4, 8, 1), rows=4, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:2x4x4") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=65_536,
        d_model=4096,
        n_layers=32,
        n_heads=32,
        n_kv_heads=8,
        d_ff=14336,
    )
    llama.pretrain(c, "lm_7b", batch_tokens=2**22, lr=3e-4)
    return llama.lay_out(c, TARGETS[target])
