"""What a run refuses, and how it says so: before anything is compiled, nothing touched."""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

import jax
import pytest

from bench import runs
from bench.small_corpus import make_corpus
from jaxlm import cli
from jaxlm import workdir as workdirs
from jaxlm.data import manifest as manifests
from jaxlm.integrity import CHECKSUMS

SHORT = ("train.batch_size=8", "train.end=20 steps", "model.dropout=()")
"""A batch that splits over the 8 fake devices of this process, and less than an epoch."""

_compiled: list[str] = []


def _note(event: str, _seconds: float, fun_name: str = "", **_facts: object) -> None:
    # A restored scalar is converted by a program of one operation.
    if event.endswith("/backend_compile_duration") and fun_name != "jit(convert_element_type)":
        _compiled.append(fun_name)


jax.monitoring.register_event_duration_secs_listener(_note)


@pytest.fixture(scope="module")
def pristine(tmp_path_factory) -> Path:
    """A corpus that tests copy."""
    return runs.corpus(tmp_path_factory.mktemp("corpus") / "data").parent


@pytest.fixture(scope="module")
def trained(pristine, tmp_path_factory) -> Path:
    """A run of two steps on one device, which tests copy."""
    workdir = tmp_path_factory.mktemp("trained") / "run"
    config = runs.config_file(workdir.with_suffix(".json"), pristine / "manifest.json")
    command = runs.train(config, workdir, *SHORT, "train.end=2 steps")
    code, output = runs.finish(command, workdir.with_suffix(".log"))
    assert code == 0, output
    return workdir


@pytest.fixture
def corpus(tmp_path, pristine) -> Path:
    """A corpus of this test's own."""
    return Path(shutil.copytree(pristine, tmp_path / "corpus"))


class Attempt:
    """`jaxlm train` in this process, on a corpus and a work directory of the test's own."""

    def __init__(self, tmp_path: Path, capsys: pytest.CaptureFixture[str], corpus: Path):
        self.workdir = tmp_path / "run"
        self._config = runs.config_file(tmp_path / "run.json", corpus / "manifest.json")
        self._capsys = capsys

    def __call__(self, *overrides: str) -> tuple[int, str]:
        """Exit code and standard error."""
        code = cli.main(self.command(*overrides)[3:])
        self.said, message = self._capsys.readouterr()
        return code, message

    def as_process(self, *overrides: str) -> tuple[int, str]:
        """Exit code and output of the same on one device: for what has to compile."""
        return runs.finish(self.command(*overrides), self.workdir.with_suffix(".log"))

    def command(self, *overrides: str) -> list[str]:
        """The command line."""
        return runs.train(self._config, self.workdir, *SHORT, *overrides)

    def refused(self, *overrides: str) -> str:
        """The message of a refusal with exit code 2 that compiled and changed nothing."""
        before = files(self.workdir)
        _compiled.clear()
        code, message = self(*overrides)
        assert code == 2, message
        assert _compiled == []
        assert files(self.workdir) == before
        assert "written to" not in self.said and "resuming" not in self.said
        assert message.startswith("jaxlm train: ")
        assert "Traceback" not in message
        return message


@pytest.fixture
def attempt(tmp_path, capsys, corpus) -> Attempt:
    return Attempt(tmp_path, capsys, corpus)


@pytest.fixture
def again(attempt, trained) -> Attempt:
    """An attempt where `trained` has been."""
    shutil.copytree(trained, attempt.workdir)
    return attempt


def files(workdir: Path) -> dict[str, bytes]:
    """Every file of a run but its lock."""
    return {
        str(path.relative_to(workdir)): path.read_bytes()
        for path in workdir.rglob("*")
        if path.is_file() and path.name != "lock"
    }


# ---- configuration and mesh ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("modle.d_model=64", "config.modle: unknown field; did you mean model?"),
        ("model.d_modle=64", "config.model.d_modle: unknown field; did you mean d_model?"),
        ("model.d_model=wide", "config.model.d_model='wide': must be int"),
        ("train.end=3 fortnights", "config.train.end='3 fortnights': write a number and steps,"),
        ("train.end=12 rows", 'use "1 steps" or "2 steps"'),
        ("data.manifest=nowhere.json", "nowhere.json: no such manifest; build the corpus first"),
        ("model.vocab_size=321", "set config.model.vocab_size=320"),
        (
            "data.seq_len=48",
            "seq_len=48 is not a multiple of the corpus's chunk_tokens=32; use 32 or 64",
        ),
        ("train.end=900 steps", "max_epochs"),
        ("optim.schedule=linear", "config.optim.schedule='linear': must be one of cosine, wsd, co"),
        (
            "data.mixture=[{'weights': [('en', 1), ('zh', 2), ('en', 3)]}]",
            "config.data.mixture[0]: weights=(('en', 1.0), ('zh', 2.0), ('en', 3.0)): 'en' has 2;",
        ),
        ("train.batch_size=12", "config.train.batch_size=12 cannot be split over data x fsdp = 8"),
        ("train.rows_per_device=3", "each device has 1 rows of the batch of 8; use a divisor of 1"),
        ("mesh.tensor=3", "does not make 8 devices; change one, or set one to -1"),
        ("mesh.tensor=8", "axis 'heads' of size 4"),
    ],
)
def test_configuration(attempt, override, message):
    assert message in attempt.refused(override)


# ---- corpus --------------------------------------------------------------------------------------


def test_another_tokenizer(tmp_path, attempt, corpus):
    other = make_corpus(tmp_path / "other", {"zh": [4]}, vocab_size=330, tokenizer=True).parent
    shutil.copy(other / "tokenizer.model", corpus)
    made_with = manifests.load(corpus / "manifest.json").tokenizer_hash
    found = manifests.load(other / "manifest.json").tokenizer_hash
    assert (
        f"{corpus}/tokenizer.model: tokenizer hash {found}, but the shards were made with "
        f"{made_with}; restore that tokenizer or build the corpus again"
    ) in attempt.refused()


def test_a_boundary_token_that_is_not_the_tokenizers(attempt, corpus):
    path = corpus / "manifest.json"
    manifest = json.loads(path.read_text())
    path.write_text(json.dumps(manifest | {"bos_id": 5}))
    assert f"{path}: bos_id=5 and pad_id={manifest['pad_id']}, but the tokenizer has " in (
        attempt.refused()
    )


def test_no_tokenizer(attempt, corpus):
    (corpus / "tokenizer.model").unlink()
    assert f"{corpus}/tokenizer.model: no such tokenizer" in attempt.refused()


@pytest.mark.parametrize("split", ["train", "heldout"])
def test_a_missing_shard(attempt, corpus, split):
    shard = corpus / f"shards/en-{split}-00000.array_record"
    shard.unlink()
    assert f"{shard}: shard is missing; restore it" in attempt.refused()


@pytest.mark.parametrize("change", [-100, 1])
def test_a_shard_of_another_size(attempt, corpus, change):
    shard = corpus / "shards/zh-train-00001.array_record"
    data = shard.read_bytes()
    shard.write_bytes(data[:change] if change < 0 else data + b"x" * change)
    message = f"{shard}: {len(data) + change} bytes, the manifest says {len(data)}"
    assert message in attempt.refused()


def test_a_shard_that_cannot_be_read(corpus):
    """It is there and of its size. No file can be opened here meanwhile, whoever is asking."""
    found, limits = corpus / "manifest.json", resource.getrlimit(resource.RLIMIT_NOFILE)
    manifest = manifests.load(found)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
    try:
        with pytest.raises(manifests.ManifestError) as e:
            manifests.check_files(manifest, corpus)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert "array_record: cannot be read (Too many open files); let this user" in str(e.value)


def test_a_flipped_bit_in_a_shard(attempt, corpus):
    shard = corpus / "shards/zh-train-00001.array_record"
    data = bytearray(shard.read_bytes())
    data[2000] ^= 4  # among the records: the file is mostly empty blocks behind them
    shard.write_bytes(data)  # neither its size nor its count of records tells
    code, message = attempt.as_process("train.end=37 steps")  # an epoch: each record is read
    assert code == 2, message
    assert f"jaxlm train: {shard}: record " in message
    assert " is damaged: " in message
    assert "Traceback" not in message


# ---- resume --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("override", "change"),
    [
        ("train.seed=1", "config.train.seed: 0 -> 1"),
        ("data.seed=1", "config.data.seed: 0 -> 1"),
        ("data.seq_len=64", "config.data.seq_len: 32 -> 64"),
        ("data.mixture=({'weights': (('zh', 1.0), ('en', 1.0))},)", "config.data.mixture: [] -> "),
        ("model.d_ff=128", "config.model.d_ff: 64 -> 128"),
    ],
)
def test_a_fixed_field_changed(again, override, change):
    message = again.refused(override)
    assert "these fields may not change:\n  " + change in message
    assert "Give the old values, or start a new run in another --workdir" in message


def test_a_changed_manifest(tmp_path, again):
    grown = make_corpus(tmp_path / "grown", {"zh": [60], "en": [80]}, tokenizer=True)
    message = again.refused(f"data.manifest={grown}")
    assert "the data is not that of the checkpoint: manifest: was " in message
    assert "; sources: " in message or "Resume with the data and settings of the run" in message


def test_an_end_that_has_passed(again):
    message = again.refused("train.end=1 steps")
    assert "config.train.end='1 steps' is row 8, before the checkpoint's row 16" in message


def test_a_batch_that_does_not_fit_what_is_done(again):
    message = again.refused("train.batch_size=24")
    assert (
        "batch_size=24: from row 16 to the end, row 480, there are 464 rows, which is not whole "
        "batches. Use a batch size that divides 464, or skip 8 more rows in skips.json"
    ) in message


@pytest.mark.parametrize(
    ("windows", "message"),
    [
        ("[[8, 9], ", "skips.json: cannot be read (Expecting value"),
        ("[[8, 9], [2, 3]]", "skips.json: window [2, 3) starts before row 9, where the one before"),
        ("[[8, 16]]", "before the checkpoint's row 16 it skips [8, 16), but the checkpoint was "),
        ("[[15, 24]]", "before the checkpoint's row 16 it skips [15, 16), but the checkpoint was "),
        (
            "[[16, 20]]",
            "from row 16 to the end, row 160, there are 140 rows, without the 4 that skips.json "
            "skips, which is not whole batches. Use a batch size that divides 140, or skip 4 more",
        ),
        ("[[16, 999]]", "skips all rows from row 16, where the run is, to its end, row 160: noth"),
    ],
)
def test_skipped_rows_that_do_not_fit_the_run(again, windows, message):
    (again.workdir / "skips.json").write_text(windows)
    assert message in again.refused()


def test_a_complete_run_says_so_again(again):
    """Also when it was killed between its last save and saying so."""
    workdirs.write_status(again.workdir, "training", 1, 8, 16, saved=None)
    assert again("train.end=2 steps") == (0, "")
    found = workdirs.status(again.workdir)
    assert (found["state"], found["step"], found["position"]) == ("done", 2, 16)


def test_a_run_that_nobody_watches_is_done(again):
    """`jaxlm train | true`."""
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(again.command("train.end=4 steps"), stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert done.returncode == 0 and b"Traceback" not in done.stderr
    assert workdirs.status(again.workdir)["step"] == 4


# ---- checkpoints ---------------------------------------------------------------------------------


def largest(directory: Path) -> Path:
    return max((p for p in directory.rglob("*") if p.is_file()), key=lambda p: p.stat().st_size)


def test_a_flipped_bit_in_a_checkpoint(again):
    directory = runs.checkpoint(again.workdir, 2)
    victim = largest(directory)
    data = bytearray(victim.read_bytes())
    data[len(data) // 2] ^= 1
    victim.write_bytes(data)
    message = again.refused()
    assert f"{directory}: the checkpoint is damaged and will not be used:" in message
    assert f"{victim.relative_to(directory)}: does not match its checksum" in message
    assert "or use the one before it (to go on with its run: jaxlm train --fallback)" in message


@pytest.mark.parametrize("name", [CHECKSUMS, "notes/metadata", "the largest"])
def test_a_checkpoint_with_a_file_missing(again, name):
    directory = runs.checkpoint(again.workdir, 2)
    victim = largest(directory) if name == "the largest" else directory / name
    victim.unlink()
    message = again.refused()
    assert f"{directory}: the checkpoint is damaged and will not be used:" in message
    assert str(victim.relative_to(directory)) in message


def unreadable(again: Attempt, *overrides: str) -> str:
    """The refusal of a process of its own: Orbax leaves coroutines behind when it cannot read."""
    before = files(again.workdir)
    code, message = again.as_process(*overrides)
    assert code == 2, message
    assert "compiling" not in message
    assert files(again.workdir) == before
    return message


def test_a_checkpoint_that_cannot_be_read(again):
    directory = runs.checkpoint(again.workdir, 2)
    victim = largest(directory)
    victim.write_bytes(b"not an array")
    sums = json.loads((directory / CHECKSUMS).read_text())
    sums[str(victim.relative_to(directory))] = [12, zlib.crc32(b"not an array")]
    (directory / CHECKSUMS).write_text(json.dumps(sums))
    message = unreadable(again)
    assert f"{directory}: the checkpoint exists but cannot be read (" in message
    assert "The run stops rather than start anew beside it" in message


@contextlib.contextmanager
def notes_of(directory: Path) -> Iterator[dict]:
    """A checkpoint's notes, to be changed as if they had been saved so."""
    path = directory / "notes/metadata"
    saved = json.loads(path.read_text())
    yield saved
    path.write_text(json.dumps(saved))
    data = path.read_bytes()
    sums = json.loads((directory / CHECKSUMS).read_text())
    sums["notes/metadata"] = [len(data), zlib.crc32(data)]
    (directory / CHECKSUMS).write_text(json.dumps(sums))


def test_a_checkpoint_of_another_shape(again):
    """As if the notes were not there to compare: the arrays themselves do not fit."""
    directory = runs.checkpoint(again.workdir, 2)
    with notes_of(directory) as saved:
        saved["config"]["model"]["d_ff"] = 128
    message = unreadable(again, "model.d_ff=128")
    assert f"{directory}: the checkpoint exists but cannot be read (" in message


@pytest.mark.parametrize("command", ["evaluate", "sample"])
def test_a_checkpoint_of_another_model_is_not_looked_at(again, capsys, command):
    """The arrays fit, and would be taken for what they are not."""
    with notes_of(runs.checkpoint(again.workdir, 2)) as saved:
        ours, saved["tokenizer"] = saved["tokenizer"], "another"
    place = f"--workdir={again.workdir}"
    assert cli.main([command, place, "--config.model.rope_theta=1e4"]) == 2
    assert (
        "the checkpoint is of another model:\n  config.model.rope_theta: 500000.0 -> 10000.0\n"
        f"  tokenizer: another -> {ours}\n"
    ) in capsys.readouterr().err


# ---- the loss ------------------------------------------------------------------------------------


def test_a_loss_that_is_not_finite(again):
    code, message = again.as_process("checkpoint.every=1 steps", "optim.lr=1e30")
    assert code == 2, message
    left_out = [int(step) for step in re.findall(r"^step (\d+) is not finite: ", message, re.M)]
    assert len(left_out) == 11
    last = message.splitlines()[-1]
    assert f"jaxlm train: step {left_out[-1]} has loss " in last
    assert (
        "11 of the last 128 batches were not learned from, and config.guard.max_skipped=10" in last
    )
    assert not {*runs.committed(again.workdir)} & {*left_out}  # nothing is saved after them
    for step in runs.committed(again.workdir)[1:]:  # of parameters that had grown absurd already
        shutil.rmtree(runs.checkpoint(again.workdir, step))
    message = again.refused()
    assert "this run has saved step" in message and "jaxlm train --fallback" in message
    code, message = again.as_process("--fallback")
    assert code == 0, message


def test_a_directory_that_cannot_be(attempt):
    attempt.workdir.touch()
    code, message = attempt()
    assert code == 78
    assert f"jaxlm train: --workdir={attempt.workdir}: cannot be written (it is a file" in message
