"""A build of a few MB, killed at 20 random moments, parent and workers: it ends in the same bytes,
and nothing that was committed runs again."""

import json
import os
import random
import re
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest

from data_tools.boilerplate.config import BoilerplateConfig
from data_tools.source import SourceConfig
from jaxlm.data.manifest import sha256
from jaxlm.schema import to_dict
from tests.data_tools import small
from tests.data_tools.test_kill import children, finish, start, wait_for

pytestmark = pytest.mark.system

MOMENTS = 20
FILES, PAGES = 20, 40


def page(n: int) -> dict[str, str]:
    """A page with boilerplate and a telephone number; some are copies, some nearly so."""
    rng = random.Random(f"page {n}")
    copied = n - n % 10 if n % 10 in (3, 7) else n
    lines = [small.chinese(1_000 * copied + k, rng.randrange(100, 200)) for k in range(6)]
    if n % 10 == 7:
        lines[0] = small.chinese(n, 20)
    body = "".join(lines) + f"联系电话：1380013{copied % 10_000:04d}\n"
    return {
        "text": f"首页 | 新闻 | 站内导航\n{body}版权所有 转载须知 第 {n} 页\n",
        "url": f"https://site{n % 9}.cn/{n}",
    }


def prepare(workdir: Path) -> None:
    """Raw files and the recipe; what decides about one partition depends on others."""
    small.write_raw(workdir, files=8, texts=10)
    for f in range(FILES):
        pages = [page(n) for n in range(f * PAGES, (f + 1) * PAGES)]
        small.write_jsonl(workdir / f"raw/web/{f:02d}.jsonl", pages)
    base = small.recipe()
    web = SourceConfig("web", "web", "jsonl", "raw/web", ("*.jsonl",), meta_fields=("url",))
    recipe = replace(
        base,
        sources=(*base.sources, web),
        boilerplate=BoilerplateConfig(buckets=4),
        pack=replace(base.pack, shard_bytes=2_000 * 64),
        workers=2,
    )
    (workdir / "recipe.json").write_text(json.dumps(to_dict(recipe)))


def commits(workdir: Path) -> dict[str, int]:
    """Committed partition -> inode of its commit: another one when it is run again."""
    found = {}
    for path in workdir.glob("*/**/commit.json"):
        if not path.parent.name.endswith(".tmp"):
            found[str(path.parent.relative_to(workdir))] = path.stat().st_ino
    return found


def contents(workdir: Path) -> dict[str, str]:
    """File -> sha256, of all that a build writes; commits have times in them."""
    places = [*workdir.glob("stages/**/*"), *workdir.glob("shards/**/*")]
    places += [*workdir.glob("dropped/**/*"), workdir / "tokenizer.model"]
    files = [p for p in places if p.is_file() and p.name != "commit.json"]
    return {str(p.relative_to(workdir)): sha256(p) for p in files}


def workers(build: subprocess.Popen[str]) -> list[int]:
    """The worker processes, without Python's own helper."""
    found = []
    for pid in children(build.pid) if build.poll() is None else ():
        if b"spawn_main" in Path(f"/proc/{pid}/cmdline").read_bytes():
            found.append(pid)
    return found


def wait_until(build: subprocess.Popen[str], workdir: Path, moment: int) -> None:
    """Until so many partitions are committed, and workers are there."""
    while len(commits(workdir)) < moment or not workers(build):
        assert build.poll() is None, f"ended before {moment} partitions were committed"
        time.sleep(0.02)


def strike(build: subprocess.Popen[str], whom: str, rng: random.Random) -> None:
    """SIGKILL to the parent, to a worker, or to all of them at once."""
    theirs = workers(build)
    targets = {"parent": [build.pid], "worker": theirs[:1], "both": [build.pid, *theirs]}[whom]
    rng.shuffle(targets)
    for pid in targets:
        os.kill(pid, signal.SIGKILL)
    if whom != "worker":
        build.communicate()
        # a worker that outlived the build could commit under the next one
        wait_for(lambda: not any(Path(f"/proc/{w}").exists() for w in theirs))


@pytest.mark.parametrize("seed", [0])
def test_killed_at_random_moments(tmp_path, seed):
    whole, workdir = tmp_path / "whole", tmp_path / "killed"
    for root in (whole, workdir):
        root.mkdir()
        prepare(root)
    finish(whole)
    total = len(commits(whole))
    rng = random.Random(seed)
    moments = sorted(rng.sample(range(1, total - 5), MOMENTS))
    build, before, struck = start(workdir), {}, []
    for moment in moments:
        wait_until(build, workdir, moment)
        time.sleep(rng.random() * 0.05)
        struck.append(rng.choice(("parent", "worker", "both")))
        strike(build, struck[-1], rng)
        after = commits(workdir)
        assert before.items() <= after.items(), "what was committed has run again"
        before = after
        if struck[-1] != "worker":
            build = start(workdir)
    output, _ = build.communicate()
    assert build.returncode == 0, output
    assert before.items() <= commits(workdir).items(), "what was committed has run again"
    assert {"parent", "worker", "both"} == set(struck)
    assert contents(workdir) == contents(whole)
    assert commits(workdir).keys() == commits(whole).keys()
    assert set(re.findall(r": (\d+) run, ", finish(workdir))) == {"0"}
    assert not list(workdir.glob("**/*.tmp"))
