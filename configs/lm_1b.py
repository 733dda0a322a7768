"""A Llama-like model of 1.3 billion parameters, trained on 20 tokens a parameter.

jaxlm plan --config=configs/lm_1b.py --target=h100:1x8
jaxlm train --config=configs/lm_1b.py:h100:1x8 --workdir=runs/lm_1b

Batch: 2M tokens, by accumulation. Corpus: a vocabulary of at most 65,536,
so that a token takes two bytes. `jaxlm train` runs on each host; its help says how they meet.

Tokens, and days and cost as planned (docs/plans.md):
  v5p:2x2x2   25B: 0.7 to 1.0 days, $553 to 772, spot $110 to 154
  v5e:4x4     25B: 0.8 to 1.2 days, $368 to 564, spot $75 to 115
  v6e:2x4     25B: 0.4 to 0.8 days, $224 to 416, spot $45 to 84
  7x:2x2x1    25B: 0.7 to 1.0 days, unknown, spot unknown
  a100:1x8    25B: 1.0 to 1.4 days, $513 to 704, spot $229 to 314
  h100:1x8    25B: 0.3 to 0.5 days, $369 to 626, spot $148 to 251
  h200:1x8    25B: 0.3 to 0.5 days, $378 to 553, spot $157 to 229
  b200:1x8    25B: 0.1 to 0.2 days, $227 to 372, spot $112 to 184
"""

from ml_collections import ConfigDict

from jaxlm import llama
from jaxlm.llama import Layout

TARGETS = {
    "v5p:2x2x2": Layout(mesh=(2, 4, 1), rows=4, remat="dots"),
    "v5e:4x4": Layout(mesh=(2, 8, 1), rows=2, remat="dots"),
    "v6e:2x4": Layout(mesh=(2, 4, 1), rows=4, remat="dots"),
    "7x:2x2x1": Layout(mesh=(2, 4, 1), rows=4, remat="dots"),
    "a100:1x8": Layout(mesh=(1, 8, 1), rows=4, remat="dots"),
    "h100:1x8": Layout(mesh=(1, 8, 1), rows=4, remat="dots"),
    "h200:1x8": Layout(mesh=(1, 8, 1), rows=8, remat="dots"),
    "b200:1x8": Layout(mesh=(1, 8, 1), rows=8, remat="dots"),
}
"""Target -> layout; the first is the default."""


def get_config(target: str = "v5p:2x2x2") -> ConfigDict:
    """See `jaxlm.config.Config` for the fields."""
    c = llama.shape(
        vocab_size=65_536,
        d_model=2048,
        n_layers=22,
        n_heads=16,
        n_kv_heads=4,
        d_ff=5632,
    )
    llama.pretrain(c, "lm_1b", batch_tokens=2**21, lr=6e-4)
    return llama.lay_out(c, TARGETS[target])
