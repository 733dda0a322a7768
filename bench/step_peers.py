"""Training steps of other frameworks, run by the Python of an environment of their own.

    python -P bench/step_peers.py KIND CASE DTYPE STEPS

    eager, compile                      Hugging Face's Llama on PyTorch; in bfloat16 with bfloat16
                                        copies of float32 weights
    eager-autocast, compile-autocast    the same under torch.autocast, weights in float32
    maxtext                             MaxText's own trainer and synthetic data

CASE is what `bench.step_ours` exported: shape, weights and batches. Prints one line of JSON: losses
and seconds of all steps, seconds from the start of the process to the end of the first step, peak
resident memory, FLOP/s of the framework's best large matrix product, versions. It imports nothing
of the project, whose packages these environments do not have.
"""

# pyright: reportMissingImports=false
import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

SIZES, TRIES = (1024, 2048, 4096), 4
"""Of the square products whose best is a framework's matrix peak."""
MAXTEXT_STEP = re.compile(r"completed step: (\d+), .*\bloss: ([\d.]+|nan)")


class Ran(NamedTuple):
    """Training steps of one process."""

    losses: list[float]
    seconds: list[float]
    """Of each step, the first with all that is compiled in it."""
    first_step_s: float
    """From the start of the process to the end of the first step."""
    peak_bytes: int
    """Largest resident memory of the process."""


def since_start() -> float:
    """Seconds since this process started, to a hundredth."""
    ticks = float(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")


def peak_bytes(pid: int | str = "self") -> int:
    """Largest resident memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def report(ran: Ran, peak_flops: float, packages: list[str]) -> str:
    """The line of JSON."""
    versions = {name: metadata.version(name) for name in packages}
    return json.dumps({**ran._asdict(), "peak_flops": peak_flops, "versions": versions})


def best_flops(product: Callable[[int], Callable[[], object]]) -> float:
    """FLOP/s of the fastest; `product(n)` gives a call that multiplies two n x n matrices."""
    best = 0.0
    for size in SIZES:
        multiply = product(size)
        multiply()
        for _ in range(TRIES):
            start = time.perf_counter()
            multiply()
            best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


# ---- PyTorch -------------------------------------------------------------------------------------


class Torch:
    """Llama and AdamW as their users write them on a CPU, from the weights of a case."""

    def __init__(self, case: Path, kind: str, dtype: str):
        import numpy as np
        import torch
        from transformers import LlamaConfig, LlamaForCausalLM

        torch.set_num_threads(os.cpu_count() or 1)
        self.torch, self.shape = torch, json.loads((case / "case.json").read_text())
        autocast = kind.endswith("autocast")
        self.cast = torch.autocast("cpu", torch.bfloat16) if autocast else contextlib.nullcontext()
        compiled = kind.startswith("compile")
        attention = causal_attention() if compiled else "sdpa"
        config = LlamaConfig(**self.shape["llama"], attn_implementation=attention, use_cache=False)
        self.model = LlamaForCausalLM(config)
        with np.load(case / "weights.npz") as weights:
            state = {name: torch.from_numpy(weights[name]) for name in weights}
        self.model.load_state_dict(state, strict=True)
        self.weights = list(self.model.parameters())
        """Float32, which AdamW updates."""
        if dtype == "bfloat16" and not autocast:
            self.weights = [p.detach().clone() for p in self.weights]
            self.model.to(torch.bfloat16)
        self.copies = list(self.model.parameters())
        self.optimizer = self._adamw()
        self.loss = torch.compile(self._loss) if compiled else self._loss

    def _adamw(self) -> Any:
        optim = self.shape["optim"]
        named = zip(self.model.named_parameters(), self.weights, strict=True)
        groups: dict[bool, list[Any]] = {True: [], False: []}
        for (name, _), weight in named:
            groups["norm" not in name and "embed" not in name].append(weight)
        return self.torch.optim.AdamW(
            [
                {"params": groups[True], "weight_decay": optim["weight_decay"]},
                {"params": groups[False], "weight_decay": 0.0},
            ],
            lr=optim["lr"],
            betas=(optim["b1"], optim["b2"]),
            eps=optim["eps"],
            fused=True,
        )

    def _loss(self, tokens: Any, targets: Any) -> Any:
        logits = self.model(input_ids=tokens).logits.float()
        return self.torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())

    def step(self, tokens: Any, targets: Any) -> float:
        """One update; the mean loss before it."""
        with self.cast:
            loss = self.loss(tokens, targets)
        loss.backward()
        if self.copies[0] is not self.weights[0]:
            for weight, copy in zip(self.weights, self.copies, strict=True):
                weight.grad = copy.grad.float()
                copy.grad = None
        self.torch.nn.utils.clip_grad_norm_(self.weights, self.shape["optim"]["clip_norm"])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        if self.copies[0] is not self.weights[0]:
            with self.torch.no_grad():
                self.torch._foreach_copy_(self.copies, self.weights)
        return loss.item()


def causal_attention() -> str:
    """The name of SDPA without a mask, as "sdpa" is where nothing is compiled.

    Under `torch.compile` Hugging Face's own hands SDPA the causal mask as an array, and the keys
    repeated for every query head, which is slower by 3 to 5%.
    """
    from torch.nn.functional import scaled_dot_product_attention as sdpa
    from transformers import AttentionInterface

    def causal(q: Any, k: Any, v: Any, scale: float) -> tuple[Any, None]:
        o = sdpa(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
        return o.transpose(1, 2).contiguous(), None

    # It is called with whatever a model has, of which the mask, None here, and the rest are unused.
    AttentionInterface.register(
        "causal", lambda _, q, k, v, mask, scaling, **rest: causal(q, k, v, scaling)
    )
    return "causal"


def run_torch(case: Path, kind: str, dtype: str, steps: int) -> str:
    """Steps on the case's batches."""
    import numpy as np
    import torch

    trainer = Torch(case, kind, dtype)
    ran = Ran([], [], 0.0, 0)
    for rows in torch.from_numpy(np.load(case / "rows.npy")[:steps]):
        tokens, targets = rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
        start = time.perf_counter()
        ran.losses.append(trainer.step(tokens, targets))
        ran.seconds.append(time.perf_counter() - start)
        if len(ran.losses) == 1:
            ran = ran._replace(first_step_s=since_start())
    ran = ran._replace(peak_bytes=peak_bytes())

    def product(size: int) -> Callable[[], object]:
        a = torch.full((size, size), 0.5, dtype=getattr(torch, dtype))
        return lambda: torch.mm(a, a)

    return report(ran, best_flops(product), ["torch", "transformers"])


# ---- JAX -----------------------------------------------------------------------------------------


def jax_flops(dtype: str) -> float:
    """The matrix peak of the JAX of this environment."""
    import jax
    from jax import numpy as jnp

    multiply = jax.jit(lambda a, b: a @ b)

    def product(size: int) -> Callable[[], object]:
        a = jnp.full((size, size), 0.5, jnp.dtype(dtype))
        return lambda: multiply(a, a).block_until_ready()

    return best_flops(product)


def maxtext_options(shape: dict[str, Any], dtype: str, steps: int, out: Path) -> list[str]:
    """The case's model in MaxText's words, and what is fastest there on a CPU."""
    llama, optim = shape["llama"], shape["optim"]
    options = {
        "base_emb_dim": llama["hidden_size"],
        "base_mlp_dim": llama["intermediate_size"],
        "base_num_decoder_layers": llama["num_hidden_layers"],
        "base_num_query_heads": llama["num_attention_heads"],
        "base_num_kv_heads": llama["num_key_value_heads"],
        "head_dim": llama["hidden_size"] // llama["num_attention_heads"],
        "vocab_size": llama["vocab_size"],
        "normalization_layer_epsilon": llama["rms_norm_eps"],
        "rope_max_timescale": int(llama["rope_parameters"]["rope_theta"]),
        "per_device_batch_size": shape["batch_size"],
        "max_target_length": shape["seq_len"],
        "learning_rate": optim["lr"],
        "adam_b1": optim["b1"],
        "adam_b2": optim["b2"],
        "adam_eps": optim["eps"],
        "adam_weight_decay": optim["weight_decay"],
        "gradient_clipping_threshold": optim["clip_norm"],
        "dtype": dtype,
        "steps": steps,
        "scan_layers": False,
        "remat_policy": "none",
        "attention": "dot_product",
        "dataset_type": "synthetic",
        "hardware": "cpu",
        "skip_jax_distributed_system": True,
        "enable_checkpointing": False,
        "enable_goodput_recording": False,
        "run_name": "peer",
        "base_output_directory": out,
    }
    return [f"{name}={value}" for name, value in options.items()]


def run_maxtext(case: Path, dtype: str, steps: int) -> str:
    """MaxText's command; its steps are timed here, by when their lines come.

    The times that it prints are of the dispatch, not of the step.
    """
    shape = json.loads((case / "case.json").read_text())
    spec = find_spec("maxtext")
    assert spec is not None and spec.origin is not None
    config = Path(spec.origin).parent / "configs" / "base.yml"
    options = maxtext_options(shape, dtype, steps, case / "maxtext")
    command = [sys.executable, "-u", "-m", "maxtext.trainers.pre_train.train", str(config)]
    environment = {**os.environ, "DECOUPLE_GCLOUD": "TRUE", "JAX_PLATFORMS": "cpu"}
    ran, before = Ran([], [], 0.0, 0), time.perf_counter()
    tail: list[str] = []
    with subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            tail = [*tail[-20:], line]
            found = MAXTEXT_STEP.search(line)
            if found is None:
                continue
            now = time.perf_counter()
            ran.losses.append(float(found[2]))
            ran.seconds.append(now - before)
            before = now
            first = since_start() if len(ran.losses) == 1 else ran.first_step_s
            with contextlib.suppress(FileNotFoundError, ValueError, IndexError):  # it ended
                ran = ran._replace(first_step_s=first, peak_bytes=peak_bytes(process.pid))
    if process.returncode or len(ran.losses) != steps:
        sys.exit(f"{''.join(tail)}MaxText ended with {process.returncode}, {len(ran.losses)} steps")
    os.environ["JAX_PLATFORMS"] = "cpu"
    return report(ran, jax_flops(dtype), ["maxtext", "jax"])


def main(kind: str, case: str, dtype: str, steps: str) -> None:
    """Runs what is asked for."""
    if kind == "maxtext":
        print(run_maxtext(Path(case), dtype, int(steps)))
    else:
        print(run_torch(Path(case), kind, dtype, int(steps)))


if __name__ == "__main__":
    main(*sys.argv[1:])
