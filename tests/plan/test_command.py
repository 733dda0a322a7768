"""`jaxlm plan`: which config it takes for a target, and its exit codes."""

import json
from pathlib import Path

import pytest

from jaxlm.cli import main
from jaxlm.plan import report
from jaxlm.plan.figures import Plan
from tests.plan.made_up import PLAN, plan

FILE = """\
from jaxlm.config import schema

{targets}

def get_config({argument}):
    c = schema()
    c.data.source = "synthetic"
    c.train.batch_size = 8
    c.train.end = "10 steps"
    {body}
    return c
"""


@pytest.fixture
def plain(tmp_path) -> Path:
    path = tmp_path / "plain.py"
    path.write_text(FILE.format(targets="", argument="", body=""))
    return path


@pytest.fixture
def named(tmp_path) -> Path:
    path = tmp_path / "named.py"
    targets = 'TARGETS = {"h100:1x8": (1, 8), "v5e:4x4": (4, 4)}'
    body = "c.mesh.data, c.mesh.fsdp = TARGETS[target]"
    path.write_text(FILE.format(targets=targets, argument='target="h100:1x8"', body=body))
    return path


@pytest.fixture
def planned(monkeypatch) -> list[tuple]:
    """What `report.plan` is asked for; it answers with a made-up plan."""
    asked: list[tuple] = []

    def answer(cfg, target, options) -> Plan:
        asked.append((cfg, str(target), options))
        return plan(peak_gib=100.0) if cfg.train.seed == 13 else PLAN

    monkeypatch.setattr(report, "plan", answer)
    return asked


def test_a_file_with_targets_gives_its_layout(named, planned, capsys):
    assert main(["plan", f"--config={named}", "--target=v5e:4x4"]) == 0
    ((cfg, target, options),) = planned
    assert (cfg.mesh.data, cfg.mesh.fsdp, target) == (4, 4, "v5e:4x4")
    assert options.name == str(named)
    assert "no layout" not in capsys.readouterr().err


def test_a_target_without_a_layout_is_told(named, planned, capsys):
    assert main(["plan", f"--config={named}", "--target=h100:2x8", "--config.mesh.data=2"]) == 0
    assert planned[0][0].mesh.data == 2 and planned[0][0].mesh.fsdp == 8
    said = capsys.readouterr().err
    assert "named.py has no layout for h100:2x8, only for h100:1x8, v5e:4x4: planned with" in said


def test_a_target_takes_the_layout_of_its_own_chip(named, planned, capsys):
    assert main(["plan", f"--config={named}", "--target=v5e:2x4"]) == 0
    assert planned[0][0].mesh.data == 4
    assert "planned with that of v5e:4x4; set --config.mesh.data" in capsys.readouterr().err


def test_a_layout_may_be_chosen_by_hand(named, planned, capsys):
    assert main(["plan", f"--config={named}:v5e:4x4", "--target=h100:2x8"]) == 0
    assert planned[0][0].mesh.data == 4
    assert "no layout" not in capsys.readouterr().err


def test_a_plan_that_fits_is_zero_and_one_that_does_not_is_two(plain, planned, capsys):
    arguments = ["plan", f"--config={plain}", "--target=h100:1x8"]
    assert main(arguments) == 0
    assert "fits, 89% free" in capsys.readouterr().out
    assert main([*arguments, "--config.train.seed=13"]) == 2
    assert "DOES NOT FIT" in capsys.readouterr().out


def test_json_is_all_of_standard_output(plain, planned, capsys):
    arguments = [f"--config={plain}", "--target=h100:1x8", "--price=2", "--preemptions-per-day=3"]
    assert main(["plan", *arguments, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["digest"] == PLAN.digest and data["fit"]["fits"] is True
    options = planned[0][2]
    assert (options.price, options.spot_price, options.preemptions_per_day) == (2.0, None, 3.0)


def test_a_search_prints_its_winner(plain, planned, capsys):
    arguments = ["plan", f"--config={plain}", "--target=h100:1x8", "--search", "--compiles=2"]
    assert main(arguments) == 0
    assert "the best of them: --config.mesh.data=" in capsys.readouterr().out
    assert main([*arguments, "--json", "--config.train.seed=13"]) == 2
    found = json.loads(capsys.readouterr().out)["search"]
    assert found["best"] is None and len(found["tried"]) == len(planned) - 2
    assert found["tried"][0]["plan"]["fit"]["fits"] is False


def test_ablations_follow_the_plan(plain, planned, capsys):
    assert main(["plan", f"--config={plain}", "--target=h100:1x8", "--ablate", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [a["textbook"] for a in data["ablations"]][:4] == ["40%", "60%", "50%", "30%"]
    assert data["ablations"][0]["without"]["digest"] == PLAN.digest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--target=v9:2x2"], "target 'v9:2x2': no chip 'v9'; known are v4, v5e, v5p"),
        (["--target=v5p:2x2"], "a slice of v5p has 3 dimensions"),
        (["--target=h100:1x8", "--compiles=0"], "--compiles=0: must be at least 1"),
        (["--target=h100:1x8", "--compiles=3"], "--compiles=3: is about a search; give --search"),
        (["--target=h100:1x8", "--price=-1"], "--price=-1: dollars per chip and hour"),
        (["--target=h100:1x8", "--preemptions-per-day=0"], "--preemptions-per-day=0: must be"),
        (["--target=h100:1x8", "--write-gbs=0"], "--write-gbs=0: must be above 0"),
        (
            ["--target=h100:1x8", "--write-gbs=2"],
            "--write-gbs=2: is about preemptions; give --pree",
        ),
        (["--target=h100:1x8", "--restart-minutes=10"], "--restart-minutes=10: is about preempti"),
        (
            ["--target=h100:1x8", "--preemptions-per-day=2", "--restart-minutes=-5"],
            "--restart-minutes=-5: must be 0 or more",
        ),
        (["--target=h100:1x8", "--search", "--ablate"], "--search --ablate: one at a time; ablate"),
        (["--target=h100:1x8", "--config.mesh.data=3"], "does not make 8 devices"),
    ],
)
def test_mistakes_are_told_in_a_line(plain, capsys, arguments, message):
    assert main(["plan", f"--config={plain}", *arguments]) == 2
    said = capsys.readouterr().err.strip().splitlines()[-1]
    assert said.startswith("jaxlm plan: ") and message in said


def test_a_compiler_that_is_not_there_is_an_environment(plain, monkeypatch, capsys):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["plan", f"--config={plain}", "--target=v5e:4x4"]) == 78
    assert "pip install 'jaxlm[plan]'" in capsys.readouterr().err
