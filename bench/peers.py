"""What `bench.data` measures itself against, run by the Python of an environment of their own.

    python bench/peers.py signatures INPUT        datasketch: MinHash.update() for each shingle
    python bench/peers.py lsh INPUT               datasketch: the same, then MinHashLSH over all
    python bench/peers.py pipeline INPUT WORKDIR  datatrove: the four stages of its example
    python bench/peers.py split INPUT WORKDIR     datatrove: the same, words cut at white space

INPUT is a directory of jsonl files; each is used as its documentation shows. Prints one line of
JSON. It imports nothing of the project, whose packages this environment does not have.
"""

# pyright: reportMissingImports=false
import gzip
import json
import re
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

UNITS = 5
PERMUTATIONS = 112
"""14 bands of 8 rows, as datatrove's default and ours."""
THRESHOLD = 0.8
WARM_UP = 20
"""Documents that are not timed."""
WORKERS = 2
HAN = "\u2e80-\ua4cf\uf900-\ufaff"
WORD = re.compile(rf"[{HAN}]|[^\W{HAN}]+")


def texts_of(directory: Path) -> Iterator[str]:
    """The texts of all files, in order."""
    for path in sorted(directory.glob("*.jsonl")):
        with path.open(encoding="utf-8") as lines:
            for line in lines:
                yield json.loads(line)["text"]


def shingles(text: str) -> set[bytes]:
    """Runs of 5 Chinese characters or words of others: datasketch leaves the choice to its user."""
    words = WORD.findall(text.lower())
    runs = range(max(1, len(words) - UNITS + 1))
    return {" ".join(words[i : i + UNITS]).encode() for i in runs}


def signatures(directory: Path) -> dict[str, float]:
    """Seconds for signatures alone, and for the shingles that they are made of."""
    from datasketch import MinHash

    shingling = updating = 0.0
    for number, text in enumerate(texts_of(directory)):
        start = time.perf_counter()
        found = shingles(text)
        middle = time.perf_counter()
        signature = MinHash(num_perm=PERMUTATIONS)
        for shingle in found:
            signature.update(shingle)
        end = time.perf_counter()
        if number >= WARM_UP:
            shingling, updating = shingling + middle - start, updating + end - middle
    return {"shingles_s": shingling, "update_s": updating}


def lsh(directory: Path) -> dict[str, float]:
    """Seconds for the whole: each document is looked up, and kept if nothing is found."""
    from datasketch import MinHash, MinHashLSH

    start = time.perf_counter()
    index = MinHashLSH(threshold=THRESHOLD, num_perm=PERMUTATIONS)
    kept = total = 0
    for number, text in enumerate(texts_of(directory)):
        signature = MinHash(num_perm=PERMUTATIONS)
        for shingle in shingles(text):
            signature.update(shingle)
        total += 1
        if not index.query(signature):
            index.insert(str(number), signature)
            kept += 1
    return {"seconds": time.perf_counter() - start, "kept": kept, "documents": total}


def pipeline(directory: Path, workdir: Path) -> dict[str, float]:
    """The example as it is, with the words of its English tokenizer (spaCy)."""
    from datatrove.utils.typeshelper import Languages

    return four_stages(directory, workdir, Languages.english)


def split(directory: Path, workdir: Path) -> dict[str, float]:
    """The cheapest words there are, for which a Chinese clause is one word."""
    from datatrove.utils.word_tokenizers import WordTokenizer

    class Split(WordTokenizer):
        def word_tokenize(self, text: str) -> list[str]:
            return text.split()

        def sent_tokenize(self, text: str) -> list[str]:
            return text.splitlines()

        def span_tokenize(self, text: str) -> list[tuple[int, int]]:
            return [(0, len(text))]

    return four_stages(directory, workdir, Split())


def four_stages(directory: Path, workdir: Path, words: object) -> dict[str, float]:
    """Seconds of the stages; the token counter of the example, which costs more, is left out."""
    from datatrove.executor import LocalPipelineExecutor
    from datatrove.pipeline.dedup import MinhashDedupSignature
    from datatrove.pipeline.dedup.minhash import (
        MinhashConfig,
        MinhashDedupBuckets,
        MinhashDedupCluster,
        MinhashDedupFilter,
    )
    from datatrove.pipeline.readers import JsonlReader
    from datatrove.pipeline.writers.jsonl import JsonlWriter
    from datatrove.utils.hashing import HashConfig

    shutil.rmtree(workdir, ignore_errors=True)
    config = MinhashConfig(
        hash_config=HashConfig(precision=64), num_buckets=14, hashes_per_bucket=8
    )
    tasks = len(list(directory.glob("*.jsonl")))
    reader = JsonlReader(str(directory))
    at = {name: str(workdir / name) for name in ("signatures", "buckets", "remove", "removed")}
    stages = [
        (tasks, [reader, MinhashDedupSignature(at["signatures"], config, words)]),
        (14, [MinhashDedupBuckets(at["signatures"], at["buckets"], config=config)]),
        (1, [MinhashDedupCluster(at["buckets"], at["remove"], config=config)]),
        (
            tasks,
            [
                reader,
                MinhashDedupFilter(at["remove"], exclusion_writer=JsonlWriter(at["removed"])),
                JsonlWriter(str(workdir / "kept")),
            ],
        ),
    ]
    seconds: dict[str, float] = {}
    for number, (count, steps) in enumerate(stages, start=1):
        start = time.perf_counter()
        logs = str(workdir / f"logs-{number}")
        LocalPipelineExecutor(steps, tasks=count, workers=WORKERS, logging_dir=logs).run()
        seconds[f"stage_{number}_s"] = time.perf_counter() - start
    kept = (gzip.decompress(p.read_bytes()) for p in (workdir / "kept").glob("*.jsonl.gz"))
    return seconds | {"kept": sum(data.count(b"\n") for data in kept)}


if __name__ == "__main__":
    call = {"signatures": signatures, "lsh": lsh, "pipeline": pipeline, "split": split}[sys.argv[1]]
    print(json.dumps(call(*map(Path, sys.argv[2:]))))
