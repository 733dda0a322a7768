"""The comparison with other trainers: what a peer is given, and what is made of its figures."""

import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import environments, step_ours, step_peers, trainers, trainers_page
from bench.trainers_page import BEGIN, END, OURS, Disagreement, Result, Table
from jaxlm.data.synthetic import BOS_ID
from tests.bench.test_plain import tiny

GOALS = {OURS: 1.0, "A": 1.1, "B": 5.0}


def result(trainer: str, number: int, step_s: float, settings: bool = True) -> Result:
    seconds = [90.0, 9.0, step_s, step_s / 2, 2 * step_s]
    versions = {"jax": "1.2"} if trainer != "A" else {"torch": "3.4"}
    losses = [10.0, 9.9, 9.8, 9.7, 9.6]
    return Result(
        trainer, "float32", settings, number, losses, seconds, 99.5, 2 * 10**9, 2e12, versions
    )


def table(skipped: dict[str, str] | None = None) -> Table:
    ours = [result(OURS, n, s) for n, s in enumerate((1.0, 2.0, 1.0))]
    theirs = [result("A", n, s) for n, s in enumerate((1.5, 2.0, 1.3))]
    bare = [result(OURS, 0, 2.0, settings=False), result("A", 0, 5.0, settings=False)]
    return Table([*ours, *theirs, *bare], 4000, 250e6, skipped or {})


def test_a_ratio_is_of_the_same_round_and_warm_up_steps_do_not_count():
    found = trainers_page.ratio(table().of(OURS), table().of("A"))
    assert found == pytest.approx((1.3, 1.0, 1.5))
    assert result("A", 0, 1.5).step_s == 1.5


def test_a_table_tells_what_is_reached_what_is_not_and_what_did_not_run():
    head, rule, ours, theirs, skipped = table({"B": "no wheel"}).rows(GOALS)
    assert len({line.count("|") for line in (head, rule, ours, theirs, skipped)}) == 1
    # 4,000 tokens a second are 1 TFLOP/s, half of the peak
    assert ours == "| jaxlm | 4,000 | 50% (2.00) | 99.5 | 2.0 |  |  | 2,000 | 2.0 |  |"
    assert "| 1.30 (1.00 to 1.50) | 1.1: reached | 800 | 2.0 | 2.50 |" in theirs
    assert skipped.startswith("| B | not run: no wheel |")
    assert list(table().missed(GOALS)) == []
    higher = GOALS | {"A": 1.4}
    assert "1.4: **not reached**" in list(table().rows(higher))[3]
    assert list(table().missed(higher)) == ["float32: jaxlm / A is 1.30, below 1.4"]


def test_columns_that_nothing_was_measured_for_are_left_out():
    measured = table({"B": "no wheel"})
    measured = measured._replace(results=[r for r in measured.results if r.settings])
    lines = list(measured.rows(GOALS))
    assert {line.count("|") for line in lines} == {8}
    assert lines[2] == "| jaxlm | 4,000 | 50% (2.00) | 99.5 | 2.0 |  |  |"
    texts = [
        trainers_page.section({"float32": t}, GOALS, "4 cores", "3 rounds", "X=1")
        for t in (measured, table())
    ]
    assert ["columns are without" in " ".join(text.split()) for text in texts] == [False, True]


def test_losses_that_differ_by_more_than_rounding_end_the_comparison():
    ours, theirs = result(OURS, 0, 1.0), result("A", 0, 1.0)
    trainers_page.check(ours, theirs)
    theirs.losses[2] += 1e-3
    message = r"step 3: loss 9\.800000 of jaxlm, 9\.801000 of A, in float32: further apart"
    with pytest.raises(Disagreement, match=message):
        trainers_page.check(ours, theirs)
    trainers_page.check(ours._replace(dtype="bfloat16"), theirs)
    theirs.losses[0] = float("nan")
    with pytest.raises(Disagreement, match="step 1"):
        trainers_page.check(ours._replace(dtype="bfloat16"), theirs)


def test_a_section_takes_the_place_of_the_old_one():
    text = trainers_page.section({"float32": table()}, GOALS, "4 cores", "3 rounds", "X=1")
    assert text.startswith(BEGIN) and text.endswith(END)
    assert "Versions: jax 1.2 (jaxlm); torch 3.4 (A)." in text
    assert "on 4 cores:" in text and "`X=1`" in text
    first = trainers_page.replace("# Speed\n\nold\n", text)
    assert first == f"# Speed\n\nold\n\n{text}\n"
    below = f"{first}\n## More\n"
    again = trainers_page.replace(below, f"{BEGIN}\nnew\n{END}")
    assert again == f"# Speed\n\nold\n\n{BEGIN}\nnew\n{END}\n\n## More\n"
    with pytest.raises(ValueError, match="without"):
        trainers_page.replace(f"a {BEGIN} b", text)


def test_peers_get_our_weights_in_their_names_and_rows_of_one_document(tmp_path: Path):
    cfg = tiny("float32", "unroll")
    step_ours.export(cfg, tmp_path, 2)
    shape = json.loads((tmp_path / "case.json").read_text())
    rows = np.load(tmp_path / "rows.npy")
    assert rows.shape == (2, cfg.train.batch_size, cfg.data.seq_len + 1)
    assert (rows != BOS_ID).all() and rows.max() < cfg.model.vocab_size
    with np.load(tmp_path / "weights.npz") as weights:
        found = {name: weights[name] for name in weights}
    assert found["lm_head.weight"].shape == (250, 32)  # without our padding of the vocabulary
    assert found["model.layers.1.self_attn.k_proj.weight"].shape == (2 * 8, 32)
    assert found["model.layers.1.mlp.down_proj.weight"].shape == (32, 48)
    assert len(found) == 3 + 9 * cfg.model.n_layers
    loss = llama_loss(found, shape["llama"], rows[0])
    ran = step_ours.run(tmp_path, "float32", 2)
    assert ran.losses[0] == pytest.approx(loss, rel=1e-5)
    assert len(ran.losses) == len(ran.seconds) == 2
    assert ran.first_step_s > ran.seconds[0] and ran.peak_bytes > 100e6


def llama_loss(weights: dict[str, np.ndarray], shape: dict, rows: np.ndarray) -> float:
    """Llama's forward pass with the names and orientations of Hugging Face, in NumPy."""
    heads, groups = shape["num_attention_heads"], shape["num_key_value_heads"]
    tokens, targets = rows[:, :-1], rows[:, 1:]
    batch, length = tokens.shape

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        scale = weights[f"{name}.weight"]
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + shape["rms_norm_eps"]) * scale

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ weights[f"{name}.weight"].T

    def turned(x: np.ndarray) -> np.ndarray:
        half = x.shape[-1] // 2
        frequency = shape["rope_parameters"]["rope_theta"] ** (-np.arange(half) / half)
        angle = np.tile(np.arange(length)[:, None] * frequency, 2)
        swapped = np.concatenate([-x[..., half:], x[..., :half]], axis=-1)
        return x * np.cos(angle) + swapped * np.sin(angle)

    def split(x: np.ndarray, count: int) -> np.ndarray:
        parts = x.reshape(batch, length, count, -1).transpose(0, 2, 1, 3)
        return parts.repeat(heads // count, axis=1)

    x = weights["model.embed_tokens.weight"][tokens].astype(np.float64)
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}"
        y = norm(x, f"{at}.input_layernorm")
        q = turned(split(linear(y, f"{at}.self_attn.q_proj"), heads))
        k = turned(split(linear(y, f"{at}.self_attn.k_proj"), groups))
        v = split(linear(y, f"{at}.self_attn.v_proj"), groups)
        s = q @ k.transpose(0, 1, 3, 2) / np.sqrt(q.shape[-1])
        s = np.where(np.tri(length, dtype=bool), s, -np.inf)
        s = np.exp(s - s.max(-1, keepdims=True))
        o = (s / s.sum(-1, keepdims=True)) @ v
        x = x + linear(o.transpose(0, 2, 1, 3).reshape(x.shape), f"{at}.self_attn.o_proj")
        y = norm(x, f"{at}.post_attention_layernorm")
        gate = linear(y, f"{at}.mlp.gate_proj")
        up = linear(y, f"{at}.mlp.up_proj")
        x = x + linear(gate / (1 + np.exp(-gate)) * up, f"{at}.mlp.down_proj")
    logits = linear(norm(x, "model.norm"), "lm_head")
    logits = logits - logits.max(-1, keepdims=True)
    log_z = np.log(np.exp(logits).sum(-1))
    return float((log_z - np.take_along_axis(logits, targets[..., None], -1)[..., 0]).mean())


def test_a_peer_runs_without_the_project_and_its_modules_hide_no_others(tmp_path: Path):
    # Beside the script lies bench/tokenize.py, which the standard library would import.
    script = str(Path(step_peers.__file__))
    code = "import sys; sys.argv[1:] = []; import runpy, inspect; "
    code += f"found = runpy.run_path({script!r}); "
    code += "assert not {'jaxlm', 'data_tools', 'jax', 'numpy'} & set(sys.modules); "
    code += "print(found['since_start'](), found['peak_bytes']())"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    seconds, peak = map(float, done.stdout.split())
    assert 0 < seconds < 60 and 1e6 < peak < 500e6


def test_maxtext_is_given_the_model_of_the_case_and_its_lines_are_read(tmp_path: Path):
    shape = step_ours.shape(tiny("float32", "unroll"))
    options = step_peers.maxtext_options(shape, "bfloat16", 17, tmp_path)
    wanted = {"base_emb_dim=32", "base_num_kv_heads=2", "head_dim=8", "vocab_size=250"}
    wanted |= {"rope_max_timescale=500000", "max_target_length=192", "steps=17", "dtype=bfloat16"}
    wanted |= {"adam_b2=0.95", "gradient_clipping_threshold=0.5", "learning_rate=0.01"}
    assert wanted <= set(options)
    line = "I1202 metric_logger.py:265] completed step: 3, seconds: 0.135, TFLOP/s/device: 7.678, "
    line += "total_weights: 4096, loss: 10.844, lm_loss: 10.9, perplexity: 51244.039"
    found = step_peers.MAXTEXT_STEP.search(line)
    assert found is not None and found.groups() == ("3", "10.844")


def test_the_matrix_peak_is_of_the_fastest_product(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(step_peers, "SIZES", (64, 128))
    nap = {64: 0.05, 128: 0.002}
    found = step_peers.best_flops(lambda size: lambda: time.sleep(nap[size]))
    assert 2 * 64**3 / 0.05 < found <= 2 * 128**3 / 0.002
    assert step_peers.jax_flops("float32") > 1e6


def test_who_cannot_be_installed_is_told_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    nothing = environments.Environment((str(tmp_path / "no-such-package.whl"),))
    monkeypatch.setitem(environments.ENVIRONMENTS, "nothing", nothing)
    with pytest.raises(environments.Missing, match=r"not installed: ERROR: .*no-such-package"):
        environments.make("nothing", tmp_path)
    empty = environments.Environment(("pip",))
    monkeypatch.setitem(environments.ENVIRONMENTS, "empty", empty)
    python = environments.make("empty", tmp_path)
    assert subprocess.run([python, "-c", "import pip"]).returncode == 0
    (tmp_path / "empty" / "kept").touch()
    assert environments.make("empty", tmp_path) == python
    assert (tmp_path / "empty" / "kept").is_file(), "made anew though it was there"


def test_processes_take_turns_with_the_settings_and_a_peer_that_fails_is_skipped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr(trainers, "DTYPES", ("float32",))
    step_ours.export(tiny("float32", "unroll"), tmp_path / "case", 5)
    peer = trainers.Trainer("no-such-kind", "torch", 1.0, ("float32",))
    bench = trainers.Bench(tmp_path, tmp_path / "case", 5, [], {"peer": peer})
    bench.pythons["peer"] = Path(sys.executable)
    bench.round(1, settings=True)
    (kept,) = trainers._kept(tmp_path, 5)
    assert bench.results == [kept] and trainers._kept(tmp_path, 6) == []
    assert kept[:4] == (OURS, "float32", True, 1)
    assert len(kept.seconds) == 5 and kept.losses[4] < kept.losses[0]
    assert 0 < kept.seconds[4] < kept.seconds[0] < kept.first_step_s
    # the project's environment has no PyTorch
    assert "exit code 1 in float32: ModuleNotFoundError: No module named" in bench.skipped["peer"]
    assert "SKIPPED peer" in capsys.readouterr().err
    _, _, ours, theirs = bench.table_of("float32").rows({OURS: 1.0, "peer": 1.0})
    assert ours.startswith("| jaxlm | ") and theirs.startswith("| peer | not run: exit code 1")
    bench.round(1, settings=True)
    assert len(bench.results) == 1, "measured again what was there"


def test_the_command_line_refuses_runs_too_short_to_compare():
    assert trainers.parser().parse_args([]).steps == 17
    with pytest.raises(SystemExit):
        trainers.parser().parse_args(["--steps=4"])
    assert set(trainers.GOALS) == {OURS, *trainers.TRAINERS}
    assert {t.environment for t in trainers.TRAINERS.values()} == set(environments.ENVIRONMENTS)
