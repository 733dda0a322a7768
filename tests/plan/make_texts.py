"""Makes the compiled programs in `texts` anew: `.venv/bin/python -m tests.plan.make_texts`.

One step, compiled for a TPU and for a GPU: nested loops, every axis of the mesh, recomputation, a
loss in blocks. What the walker does not read is cut out. When a new compiler prints another form,
make them anew and look at what moved: the FLOPs may not.
"""

import lzma
import re
from pathlib import Path

from jaxlm.config import (
    Config,
    DataConfig,
    LossConfig,
    MeshConfig,
    ModelConfig,
    OptimConfig,
    TrainConfig,
)

TEXTS = Path(__file__).parent / "texts"

CONFIG = Config(
    model=ModelConfig(
        vocab_size=2048,
        d_model=256,
        n_layers=3,
        n_heads=4,
        n_kv_heads=2,
        d_ff=640,
        attention="reference",
        remat="full",
    ),
    data=DataConfig(source="synthetic", seq_len=256),
    loss=LossConfig(vocab_blocks=2),
    optim=OptimConfig(),
    train=TrainConfig(batch_size=8, rows_per_device=1, end="8 rows"),
    mesh=MeshConfig(data=2, fsdp=2, tensor=2),
)
"""Two microbatches of a row a device."""

TARGETS = {"tpu": "v5e:2x4", "gpu": "h100:1x8"}


def read(name: str) -> str:
    """A program by the name of its compiler."""
    return lzma.decompress((TEXTS / f"{name}.txt.xz").read_bytes()).decode()


def write(name: str, text: str) -> None:
    """Keeps a program, without what the walker does not read."""
    head, _, rest = text.partition("\n")
    body = rest[re.search(r"^%", rest, re.MULTILINE).start() :]
    body = re.sub(
        r", backend_config=(?!.*(known_trip_count|dot_dimension)).*$", "", body, flags=re.M
    )
    body = re.sub(r' (scheduling_name="[^"]*"|stack_frame_id=\d+)', "", body)
    packed = lzma.compress(f"{head}\n\n{body}".encode(), preset=9 | lzma.PRESET_EXTREME)
    (TEXTS / f"{name}.txt.xz").write_bytes(packed)


def main() -> None:
    """Compiles and writes all."""
    from jaxlm.plan import program, target

    TEXTS.mkdir(exist_ok=True)
    for name, where in TARGETS.items():
        compiled = program.compile(CONFIG, target.parse(where))
        write(name, compiled.text)
        print(name, where, len(compiled.text), compiled.memory)


if __name__ == "__main__":
    main()
