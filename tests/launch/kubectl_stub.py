"""A kubectl for tests: refuses flags that the real one has not, and answers from a file.

`KUBECTL_STUB` names a directory: `answers.json`, a list of {"of": COMMAND, "out", "err", "code"},
of which each is given once, in order; `calls.jsonl`, what it was asked, with its standard input.
"""

import json
import os
import sys
from pathlib import Path

from tests.launch import flags


def main() -> int:
    """Does as the next answer says."""
    wrong = list(flags.problems(["kubectl", *sys.argv[1:]]))
    if wrong:
        print("\n".join(wrong), file=sys.stderr)
        return 1
    place = Path(os.environ["KUBECTL_STUB"])
    stdin = sys.stdin.read() if "--filename=-" in sys.argv else ""
    with (place / "calls.jsonl").open("a") as calls:
        print(json.dumps({"line": sys.argv[1:], "stdin": stdin}), file=calls)
    answers = json.loads((place / "answers.json").read_text())
    answer = answers.pop(0) if answers else {"of": "nothing more"}
    (place / "answers.json").write_text(json.dumps(answers))
    if answer["of"] != sys.argv[1]:
        print(f"the test expected {answer['of']}", file=sys.stderr)
        return 1
    print(answer.get("out", ""), end="")
    print(answer.get("err", ""), end="", file=sys.stderr)
    return answer.get("code", 0)


if __name__ == "__main__":
    sys.exit(main())
