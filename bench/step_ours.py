"""The trainer's side of `bench.trainers`, in processes of its own.

python -m bench.step_ours export CASE STEPS       shape, weights and batches for the others
python -m bench.step_ours run CASE DTYPE STEPS    steps on these batches; a line of JSON
"""

import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from bench.step_peers import Ran, jax_flops, peak_bytes, report, since_start
from jaxlm import config, platforms
from jaxlm.config import Config
from jaxlm.schema import to_dict
from jaxlm.workdir import write_json


def shape(cfg: Config) -> dict[str, Any]:
    """Model and optimizer, the model in the words of Hugging Face's `LlamaConfig`."""
    from jaxlm.metrics import flops_per_token

    model, optim = cfg.model, cfg.optim
    return {
        "llama": {
            "vocab_size": model.vocab_size,
            "hidden_size": model.d_model,
            "intermediate_size": model.d_ff,
            "num_hidden_layers": model.n_layers,
            "num_attention_heads": model.n_heads,
            "num_key_value_heads": model.n_kv_heads,
            "max_position_embeddings": cfg.data.seq_len,
            "rms_norm_eps": model.norm_eps,
            "rope_parameters": {"rope_type": "default", "rope_theta": model.rope_theta},
            "tie_word_embeddings": model.tied_embeddings,
        },
        "optim": {
            "lr": cfg.peak_lr,
            "b1": optim.b1,
            "b2": optim.b2,
            "eps": optim.eps,
            "weight_decay": optim.weight_decay,
            "clip_norm": optim.clip_norm,
        },
        "batch_size": cfg.train.batch_size,
        "seq_len": cfg.data.seq_len,
        "flops_per_token": flops_per_token(model, cfg.data.seq_len),
    }


def weights(plain: Any, vocab_size: int) -> dict[str, np.ndarray]:
    """`bench.step.as_plain`'s parameters in Hugging Face's names: kernels are [out, in]."""
    found = {
        "model.embed_tokens.weight": plain["table"][:vocab_size],
        "model.norm.weight": plain["norm"],
        "lm_head.weight": plain["head"][:, :vocab_size].T,
    }
    for number, layer in enumerate(plain["layers"]):
        d_model = len(layer["attention_norm"])
        named = {
            "self_attn.q_proj": layer["query"].reshape(d_model, -1).T,
            "self_attn.k_proj": layer["key"].reshape(d_model, -1).T,
            "self_attn.v_proj": layer["value"].reshape(d_model, -1).T,
            "self_attn.o_proj": layer["out"].reshape(-1, d_model).T,
            "mlp.gate_proj": layer["gate"].T,
            "mlp.up_proj": layer["up"].T,
            "mlp.down_proj": layer["down"].T,
            "input_layernorm": layer["attention_norm"],
            "post_attention_layernorm": layer["mlp_norm"],
        }
        found |= {f"model.layers.{number}.{name}.weight": a for name, a in named.items()}
    return {name: np.ascontiguousarray(a) for name, a in found.items()}


def export(cfg: Config, case: Path, steps: int) -> None:
    """Writes a case: `config.json` for us, and for all `case.json`, `weights.npz`, `rows.npy`.

    Rows are ids [steps, B, T + 1], int64. No document starts inside one, so that plain causal
    attention is the same mathematics.
    """
    import jax

    from bench import step
    from jaxlm.data.synthetic import BOS_ID, FIRST_ID

    case.mkdir(parents=True, exist_ok=True)
    with step.trainer(cfg) as ours, ours.loader() as loader:
        plain = step.as_plain(jax.device_get(ours.state.params))
        rows = np.stack([np.asarray(next(loader).rows_BT) for _ in range(steps)]).astype(np.int64)
    named = weights(plain, cfg.model.vocab_size)
    np.savez(case / "weights.npz", allow_pickle=False, **named)
    np.save(case / "rows.npy", np.where(rows == BOS_ID, FIRST_ID, rows))
    write_json(case / "config.json", to_dict(cfg))
    write_json(case / "case.json", shape(cfg))


def run(case: Path, dtype: str, steps: int) -> Ran:
    """Steps from the initial parameters on the case's batches."""
    import jax

    from bench import step

    cfg = config.load(case / "config.json", (f"model.compute_dtype={dtype}",))
    rows = np.load(case / "rows.npy")[:steps]
    ran = Ran([], [], 0.0, 0)
    with step.trainer(cfg) as ours, ours.loader() as loader:
        for ids_BT, batch in zip(rows, loader, strict=False):
            theirs = batch.rows_BT
            same = jax.device_put(ids_BT.astype(theirs.dtype), theirs.sharding)
            start = time.perf_counter()
            ran.losses.append(ours.timed(batch._replace(rows_BT=same)).loss)
            ran.seconds.append(time.perf_counter() - start)
            if len(ran.losses) == 1:
                ran = ran._replace(first_step_s=since_start())
    return ran._replace(peak_bytes=peak_bytes())


def main() -> None:
    """Runs what is asked for."""
    platforms.choose()
    match sys.argv[1:]:
        case "export", directory, steps:
            from bench import step

            export(step.config("float32", "unroll"), Path(directory), int(steps))
        case "run", directory, dtype, steps:
            ran = run(Path(directory), dtype, int(steps))
            print(report(ran, jax_flops(dtype), ["jax", "jaxlib"]))
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    main()
