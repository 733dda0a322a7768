"""`python -m bench.checksums`: what it costs to compare the copies of a state, beside a step.

The model of `bench.step` in float32 on two fake devices of this CPU, each with a whole copy.
"""

import os
import statistics
import sys
import time
from dataclasses import replace

from jaxlm import platforms

DEVICES, ROUNDS = 2, 7


def main() -> int:
    """Prints the table."""
    platforms.choose()
    os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={DEVICES}"
    import jax

    from bench import step
    from jaxlm.config import MeshConfig
    from jaxlm.corruption import compile_checksums

    cfg = replace(step.config("float32", "scan"), mesh=MeshConfig(data=DEVICES, fsdp=1))
    steps, comparisons = [], []
    with step.trainer(cfg) as ours, ours.loader() as loader:
        copies = compile_checksums(ours.run)
        for number, batch in zip(range(ROUNDS + 1), loader, strict=False):
            timed = ours.timed(batch)
            start = time.perf_counter()
            assert not copies.differences(ours.state)
            taken = time.perf_counter() - start
            if number:  # the first compiles
                steps.append(timed.seconds)
                comparisons.append(taken)
        size = copies.share.comparable_bytes
    step_s, comparison_s = statistics.median(steps), statistics.median(comparisons)
    print(f"{os.cpu_count()} CPUs, JAX {jax.__version__}; medians of {ROUNDS}")
    print(f"  a step                        {step_s:8.3f} s")
    print(f"  comparing {size * DEVICES / 1e9:.2f} GB of copies    {comparison_s:8.3f} s")
    print(f"  share of a step               {comparison_s / step_s:8.2%}")
    print(f"  of the time, every 100 steps  {comparison_s / step_s / 100:8.3%}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
