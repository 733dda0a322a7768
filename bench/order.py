"""Speed of the order: microseconds an index, by how many positions are planned at once.

python -m bench.order
"""

import time

import numpy as np

from jaxlm.data.order import Order, Source, Stage


def main() -> None:
    """Prints one line for each size of plan; the best of 5."""
    sources = {f"s{i}": Source((4_000,) * 40, 16_000) for i in range(5)}
    order = Order(sources, [Stage(None, tuple((name, 1.0) for name in sources))], seed=0)
    print("5 sources of 40 shards, windows of 16,000 rows; microseconds an index")
    print(f"{'rows':>8} {'locate':>8} {'inverse':>8}")
    for rows in (8, 512, 4_096, 65_536):
        positions = np.arange(2**40, 2**40 + rows)
        where = order.locate(positions)
        locate = min(_seconds(lambda at=positions: order.locate(at)) for _ in range(5))
        inverse = min(_seconds(lambda at=where: order.position_of(at)) for _ in range(5))
        print(f"{rows:>8} {locate / rows * 1e6:>8.2f} {inverse / rows * 1e6:>8.2f}")


def _seconds(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
