"""What `bench.trainers` measured, compared and as a section of `docs/speed.md`."""

import statistics
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

BEGIN, END = "<!-- make bench-peers: begin -->", "<!-- make bench-peers: end -->"
WARM_UP = 2
"""First steps of a process that are not timed: they compile, and allocate."""
AGREE_STEPS = 3
TOLERANCE = {"float32": 1e-5, "bfloat16": 1e-3}
"""Of a loss, in shares of it: what sums in another order may differ."""
OURS = "jaxlm"


class Disagreement(Exception):
    """Two trainers do not compute the same thing, so their speeds mean nothing."""


class Result(NamedTuple):
    """One process; see `bench.step_peers.Ran`."""

    trainer: str
    dtype: str
    settings: bool
    """With those of the allocator."""
    round: int
    losses: list[float]
    seconds: list[float]
    first_step_s: float
    peak_bytes: int
    peak_flops: float
    versions: dict[str, str]

    @property
    def step_s(self) -> float:
        """The median of those that are timed."""
        return statistics.median(self.seconds[WARM_UP:])


class Ratio(NamedTuple):
    """Our speed to another's, over rounds."""

    median: float
    low: float
    high: float


def check(ours: Result, theirs: Result) -> None:
    """Raises `Disagreement` unless the first losses are the same but for rounding."""
    pairs = zip(ours.losses[:AGREE_STEPS], theirs.losses[:AGREE_STEPS], strict=True)
    for number, (our, their) in enumerate(pairs, start=1):
        if not abs(our - their) <= TOLERANCE[ours.dtype] * abs(their):
            raise Disagreement(
                f"step {number}: loss {our:.6f} of {ours.trainer}, {their:.6f} of "
                f"{theirs.trainer}, in {ours.dtype}: further apart than rounding "
                f"({TOLERANCE[ours.dtype]:g} of it); one of them is wrong"
            )


def ratio(ours: Sequence[Result], theirs: Sequence[Result]) -> Ratio:
    """Of the rounds that both have."""
    by_round = {r.round: r.step_s for r in ours}
    found = [r.step_s / by_round[r.round] for r in theirs if r.round in by_round]
    return Ratio(statistics.median(found), min(found), max(found))


class Table(NamedTuple):
    """All results of one type of numbers."""

    results: Sequence[Result]
    batch_tokens: int
    flops_per_token: float
    skipped: Mapping[str, str]
    """Trainer -> why it did not run."""

    def of(self, trainer: str, settings: bool = True) -> list[Result]:
        """A trainer's, in order."""
        return [r for r in self.results if r.trainer == trainer and r.settings == settings]

    @property
    def has_bare(self) -> bool:
        """Whether anything ran without the allocator's settings."""
        return not all(r.settings for r in self.results)

    def rows(self, goals: Mapping[str, float]) -> Iterator[str]:
        """A line for each trainer."""
        bare = self.has_bare
        more = " allocator as it is: tokens/s | GB | jaxlm / it |" if bare else ""
        yield (
            "| | tokens/s | share of its own matrix peak (TFLOP/s) | start-up, s | peak memory, GB "
            f"| jaxlm / it (rounds) | goal |{more}"
        )
        yield "|---|---:|---:|---:|---:|---|---|" + "---:|---:|---|" * bare
        for trainer in goals:
            if trainer in self.skipped:
                empty = " |" * (5 + 3 * bare)
                yield f"| {trainer} | not run: {self.skipped[trainer]} |{empty}"
            elif self.of(trainer):
                yield self._row(trainer, goals[trainer])

    def _row(self, trainer: str, goal: float) -> str:
        runs, bare = self.of(trainer), self.of(trainer, settings=False)
        peak = max(r.peak_flops for r in runs)
        share = self.speed(runs) * self.flops_per_token / peak
        ours, ours_bare = self.of(OURS), self.of(OURS, settings=False)
        cells = [
            trainer,
            f"{self.speed(runs):,.0f}",
            f"{share:.0%} ({peak / 1e12:.2f})",
            f"{statistics.median(r.first_step_s for r in runs):.1f}",
            f"{statistics.median(r.peak_bytes for r in runs) / 1e9:.1f}",
        ]
        if trainer == OURS:
            cells += ["", ""]
        else:
            r = ratio(ours, runs)
            reached = "reached" if r.median >= goal else "**not reached**"
            cells += [f"{r.median:.2f} ({r.low:.2f} to {r.high:.2f})", f"{goal:g}: {reached}"]
        if bare:
            cells += [
                f"{self.speed(bare):,.0f}",
                f"{statistics.median(r.peak_bytes for r in bare) / 1e9:.1f}",
                "" if trainer == OURS or not ours_bare else f"{ratio(ours_bare, bare).median:.2f}",
            ]
        elif self.has_bare:
            cells += [""] * 3
        return f"| {' | '.join(cells)} |"

    def speed(self, runs: Sequence[Result]) -> float:
        """Tokens a second, the median over rounds."""
        return self.batch_tokens / statistics.median(r.step_s for r in runs)

    def missed(self, goals: Mapping[str, float]) -> Iterator[str]:
        """The goals that are not reached."""
        for trainer, goal in goals.items():
            if trainer != OURS and (runs := self.of(trainer)):
                r = ratio(self.of(OURS), runs)
                if r.median < goal:
                    dtype = runs[0].dtype
                    yield f"{dtype}: jaxlm / {trainer} is {r.median:.2f}, below {goal:g}"


PROSE = """\
`make bench-peers` on {machine}: whole training steps of the model above (forward, backward,
clipping, AdamW with float32 weights and moments), each trainer in processes of its own that take
turns: {rounds}. All have these settings of glibc's allocator: `{settings}`{bare}.

A process's speed is that of its median step, a trainer's that of its median process; a ratio is
that of a round, given as the median and from the least to the most. The matrix peak is the best
that the framework itself reaches with large square matrices of the type; the share counts model
FLOPs. Start-up is from the start of the process to the end of its first step, with nothing
compiled before. Memory is the largest resident set of the process.

jaxlm is what `make bench` times. PyTorch runs Hugging Face's Llama (SDPA, fused AdamW, a thread a
core) from the same weights on the same batches, no document of which starts inside a row: its
first {agree} losses are jaxlm's within rounding, or there would be no table. In bfloat16 it runs
with bfloat16 copies of the weights, which is as jaxlm computes, and under `torch.autocast`, where
the residual stream is float32. MaxText runs its own command on its own synthetic rows, from its
own weights of the same shapes, without scan and remat; its losses cannot be compared.
"""
PROSE_WIDTH = 140


def section(
    tables: Mapping[str, Table],
    goals: Mapping[str, float],
    machine: str,
    rounds: str,
    settings: str,
) -> str:
    """The section between its markers."""
    has_bare = any(table.has_bare for table in tables.values())
    bare = "; the last three columns are without them" if has_bare else ""
    prose = PROSE.format(
        machine=machine, rounds=rounds, settings=settings, bare=bare, agree=AGREE_STEPS
    )
    lines = [BEGIN, "", "## Beside other trainers"]
    for paragraph in prose.split("\n\n"):
        lines += ["", *_filled(paragraph)]
    for dtype, table in tables.items():
        lines += ["", f"### {dtype}", "", *table.rows(goals)]
    results = [r for table in tables.values() for r in table.results]
    return "\n".join([*lines, "", *_filled(f"Versions: {versions(results)}."), "", END])


def _filled(paragraph: str) -> list[str]:
    return textwrap.wrap(paragraph, PROSE_WIDTH, break_long_words=False, break_on_hyphens=False)


def versions(results: Sequence[Result]) -> str:
    """Every package that was measured."""
    found: dict[str, Any] = {}
    for r in results:
        found |= {f"{name} {version} ({r.trainer})": None for name, version in r.versions.items()}
    names: dict[str, list[str]] = {}
    for line in found:
        package, _, trainer = line.rpartition(" (")
        names.setdefault(package, []).append(trainer.rstrip(")"))
    return "; ".join(f"{package} ({', '.join(users)})" for package, users in names.items())


def replace(page: str, text: str) -> str:
    """The page with the section in place of the old one, or at its end."""
    before, begin, rest = page.partition(BEGIN)
    if not begin:
        return f"{page.rstrip()}\n\n{text}\n"
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"the page has {BEGIN} without {END}: put it back, or remove both")
    return f"{before}{text}{after}"
