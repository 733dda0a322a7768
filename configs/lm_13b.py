"""A Llama-like model of 13 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_13b.py --target=h100:8x8
jaxlm train --config=configs/lm_13b.py:h100:8x8 --workdir=runs/lm_13b

Batch: 4M tokens, by accumulation. Corpus: a vocabulary of at most 65,536,
so that a token takes two bytes. `jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:4x4x4   265B tokens: at least 9.0 days, $57,947, spot $11,534
  v5e:8x8     265B tokens: at least 25.4 days, $46,853, spot $9,566
  a100:8x8    265B tokens: at least 13.1 days, $54,352, spot $24,277
  h100:8x8    265B tokens: at least 4.1 days, $39,087, spot $15,648
  h200:8x8    265B tokens: at least 4.1 days, $40,040, spot $16,613
  b200:8x8    265B tokens: at least 1.8 days, $24,006, spot $11,903
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:4x4x4": Layout(mesh=(2, 32, 1), rows=2, remat="dots"),
    "v5e:8x8": Layout(mesh=(2, 32, 1), rows=1, remat="attention"),
    "v6e:8x8": Layout(mesh=(2, 32, 1), rows=1, remat="dots"),
    "7x:2x4x4": Layout(mesh=(2, 32, 1), rows=2, remat="dots"),
    "a100:8x8": Layout(mesh=(8, 8, 1), rows=1, remat="dots"),
    "h100:8x8": Layout(mesh=(8, 8, 1), rows=1, remat="dots"),
    "h200:8x8": Layout(mesh=(8, 8, 1), rows=2, remat="dots"),
    "b200:8x8": Layout(mesh=(8, 8, 1), rows=4, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:4x4x4") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=65_536,
        d_model=5120,
        n_layers=40,
        n_heads=40,
        n_kv_heads=8,
        d_ff=16384,
    )
    llama.pretrain(c, "lm_13b", batch_tokens=2**22, lr=3e-4)
    return llama.lay_out(c, TARGETS[target])
