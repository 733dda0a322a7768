"""A plan of programs that were really compiled, without their compilers."""

import math
from dataclasses import replace

import jax
import pytest

from jaxlm.hardware import CHIPS
from jaxlm.metrics import flops_per_token
from jaxlm.plan import program, report, target
from jaxlm.plan.figures import Plan
from jaxlm.plan.memory import Memory
from jaxlm.plan.program import Program
from jaxlm.plan.report import Options
from jaxlm.safety import CheckpointConfig
from tests.plan import make_texts
from tests.plan.make_texts import CONFIG, TARGETS

GIB = 2**30


@pytest.fixture(scope="module")
def lowered() -> program.Lowered:
    """For the fake devices: state and batch are those of any eight."""
    return program.lower(CONFIG, jax.devices())


def compiled(lowered: program.Lowered, name: str, **changes) -> Program:
    """The program of one of the texts."""
    return replace(
        Program(
            text=make_texts.read(name),
            memory=Memory(3 * GIB, host=0),
            mesh_shape=dict(lowered.mesh.shape),
            state=lowered.state,
            batch=lowered.batch,
            attention="reference",
            microbatches=2,
            digest=lowered.digest,
            versions={"jax": "1.2.3"},
            compile_s=1.0,
            log="",
        ),
        **changes,
    )


def planned(lowered: program.Lowered, name: str, options=report.DEFAULTS, cfg=CONFIG, **changes):
    """The plan of that program."""
    on = target.parse(TARGETS[name])
    return report.of_program(cfg, on, compiled(lowered, name, **changes), options)


@pytest.fixture(scope="module", params=["tpu", "gpu"])
def plan(request, lowered) -> Plan:
    return planned(lowered, request.param)


def test_flops_are_those_of_the_model_and_of_what_is_repeated(plan):
    tokens = CONFIG.batch_tokens / 8
    assert plan.flops is not None
    assert plan.flops.model == tokens * flops_per_token(CONFIG.model, 256)
    halved = 6 * 3 * 256 * 4 * 64 * tokens
    assert plan.flops.model_all_pairs == plan.flops.model + halved
    assert plan.flops.executed == plan.flops.expected
    assert 1.1 < plan.flops.ratio < 1.5


def test_each_kind_of_collective_stands_beside_its_minimum(plan):
    rows = {(row.kind, row.axes): row for row in plan.traffic}
    gathered = rows["all-gather", ("fsdp",)]
    assert 1.0 <= gathered.bytes / gathered.least < 1.1 and gathered.count > 0
    assert [row.bytes for row in plan.traffic[:3]] == sorted(
        (row.bytes for row in plan.traffic[:3]), reverse=True
    )
    assert ("reduce-scatter", ("fsdp",)) in rows  # the minimum has it, whatever the compiler does


def test_the_run_follows_from_the_roofline(plan):
    run, bound = plan.run, plan.roofline
    assert run is not None and bound is not None and plan.flops is not None
    chip = CHIPS[plan.target.partition(":")[0]]
    assert run.step_s == bound.step_s == max(bound.parts.values())
    fast = plan.flops.executed / (chip.bf16_tflops * 1e12)
    assert fast <= bound.compute < 2 * fast  # the reference has float32 products
    assert (bound.compute == fast) == (chip.platform == "tpu")
    assert math.isclose(run.mfu, plan.flops.model / (run.step_s * chip.bf16_tflops * 1e12))
    assert (run.steps, run.tokens) == (1, 8 * 256)
    assert math.isclose(run.days * 24 * 8, run.chip_hours)
    assert run.step_serial_s == bound.serial_s > run.step_s
    assert run.params == sum(math.prod(p.shape) for p in _params())


def _params():
    from jaxlm import models

    return jax.tree.leaves(models.build(CONFIG.model, "reference").abstract())


def test_the_all_reduce_of_gradients_that_tpu_chooses_is_told(lowered):
    said = "would do at half the bytes; a TPU's compiler chooses so"
    assert any(said in note for note in planned(lowered, "tpu").notes)
    assert not any(said in note for note in planned(lowered, "gpu").notes)


def test_memory_is_held_by_someone(plan):
    held = plan.memory
    assert held.parameters + held.optimizer + held.batch + held.rest == plan.fit.peak == 3 * GIB
    state = 12 * plan.run.params / 4  # three times float32, over fsdp x tensor
    assert 1.0 <= (held.parameters + held.optimizer) / state < 1.05  # norms are replicated
    assert plan.fits and plan.alive == () and plan.remedies == ()


def test_what_does_not_fit_says_who_holds_it_and_what_would_fit(lowered):
    memory = Memory(100 * GIB, host=0)
    over = planned(lowered, "gpu", memory=memory)
    assert not over.fits and over.fit.headroom < 0
    assert len(over.alive) == report.LARGEST and over.remedies
    assert over.alive[0][0] >= over.alive[-1][0] > 0


def test_a_host_that_is_full_has_remedies_of_its_own(lowered):
    """The device has room: what would leave it more is no help, what is alive there no cause."""
    offload = replace(CONFIG, model=replace(CONFIG.model, offload_activations=True))
    full = planned(lowered, "gpu", cfg=offload, memory=Memory(3 * GIB, host=289 * GIB))
    assert not full.fits and full.remedies == () and full.alive == ()
    assert any("config.model.offload_activations=false" in note for note in full.notes)


def test_a_refused_program_is_a_plan(lowered):
    refusal = "RESOURCE_EXHAUSTED: Ran out of memory"
    memory = Memory(19 * GIB, host=0)
    plan = planned(lowered, "tpu", text="", memory=memory, refusal=refusal)
    assert not plan.fits and plan.fit.capacity == CHIPS["v5e"].memory_bytes
    assert plan.flops is None and plan.roofline is None and plan.run is None
    assert plan.remedies and plan.traffic == ()


def test_spot_machines_go_by_the_checkpoints_of_the_config(lowered):
    """One host writes all of it, every 20 minutes, or every step if that comes first."""
    options = Options(preemptions_per_day=2, write_gbs=4, restart_minutes=5)
    timed = replace(CONFIG, checkpoint=CheckpointConfig(every=None, every_minutes=20.0))
    by_time = planned(lowered, "gpu", options, timed).preemption
    by_step = planned(
        lowered, "gpu", options, replace(timed, checkpoint=CheckpointConfig("1 steps", 20.0))
    )
    assert by_time is not None and by_step.preemption is not None and by_step.run is not None
    assert by_time.interval_s == 1200 and by_time.restart_s == 300
    assert by_step.preemption.interval_s == by_step.run.step_s
    assert by_time.checkpoint_bytes == pytest.approx(12 * by_step.run.params, rel=1e-3)
    assert by_time.commit_s == by_time.checkpoint_bytes / 4e9
    assert by_time.stall_s == by_time.checkpoint_bytes / (8 * CHIPS["h100"].host_bandwidth)
    assert planned(lowered, "gpu").preemption is None


def test_what_the_compiler_says_is_passed_on(lowered):
    log = "W spmd Involuntary full rematerialization. The compiler cannot go from ...\n"
    (note,) = [n for n in planned(lowered, "gpu", log=log).notes if "Involuntary" in n]
    assert "an array is gathered whole" in note
    log = "Can't reduce memory use below 60.54GiB (65003312640 bytes) by rematerialization"
    assert any("below its own limit" in n for n in planned(lowered, "gpu", log=log).notes)
    assert not any("xla_gpu" in n for n in planned(lowered, "tpu", log=log).notes)


def test_a_gpu_that_is_there_says_what_it_has(lowered):
    """Of one that is not, a setting does; with less memory the same program may not fit."""
    share = [n for n in planned(lowered, "gpu").notes if "XLA_CLIENT_MEM_FRACTION=0.92" in n]
    assert len(share) == 1 and not set(share) & set(planned(lowered, "tpu").notes)
    on, program = target.parse(TARGETS["gpu"]), compiled(lowered, "gpu")
    there = report.of_program(CONFIG, on, program, capacity=2 * GIB)
    assert not set(share) & set(there.notes)
    assert there.fit.capacity == 2 * GIB and not there.fits
    assert there.alive and there.remedies
