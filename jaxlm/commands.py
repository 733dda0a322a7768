"""The commands that look at a run: held-out scores, text."""

import sys
from collections.abc import Sequence

import jax

from jaxlm import run, workdir
from jaxlm import sample as sample_lib
from jaxlm.config import Config
from jaxlm.errors import UserError
from jaxlm.evaluate import Evaluator, table
from jaxlm.sample import Sampling
from jaxlm.site import Workdir, send


def evaluate(cfg: Config, directory: Workdir) -> int:
    """Scores the newest checkpoint on `evaluate.rows` held-out rows of each type, 0 on all.

    Writes `evaluation-<step>.json` into the work directory.
    """
    opened, params, step = run.open_trained(cfg, directory)
    if not opened.corpus.heldout:
        raise UserError(
            "this run's data has no held-out rows; there is nothing to evaluate on: raise "
            "config.heldout.fraction in the recipe, and build the corpus again"
        )
    with jax.set_mesh(opened.mesh):
        scorer = Evaluator(
            opened.step, opened.corpus, opened.mesh, cfg.train.batch_size, cfg.evaluate.rows
        )
        scores = scorer(params)
    print(f"step {step} of {directory}\n{table(scores)}")
    data = {"step": step, "scores": {name: s._asdict() for name, s in scores.items()}}
    name = f"evaluation-{step}.json"
    workdir.write_json(directory / name, data)
    send(directory, [name])
    return 0


def sample(cfg: Config, directory: Workdir, prompts: Sequence[str], how: Sampling) -> int:
    """Prints a text for each prompt, the prompt itself included."""
    for text in texts(cfg, directory, prompts, how):
        print(text, end="\n\n", flush=True)
    return 0


def texts(cfg: Config, directory: Workdir, prompts: Sequence[str], how: Sampling) -> list[str]:
    """A text for each prompt from the newest checkpoint, the prompt itself included."""
    opened, params, _ = run.open_trained(cfg, directory)
    tokenizer = opened.corpus.tokenizer
    if tokenizer is None:
        raise UserError("this run was trained on synthetic rows; it has no tokenizer to speak with")
    ids = [[tokenizer.bos_id, *tokenizer.encode(prompt)] for prompt in prompts]
    longest = max(map(len, ids), default=0) + how.max_tokens
    if longest > cfg.data.seq_len:
        print(
            f"up to {longest} tokens, but the model was trained on rows of {cfg.data.seq_len}: "
            "expect nonsense beyond; --max-tokens sets the length",
            file=sys.stderr,
        )
    stops = [i for i in (tokenizer.bos_id, tokenizer.eos_id, tokenizer.pad_id) if i >= 0]
    with jax.set_mesh(opened.mesh):
        found = sample_lib.generate(opened.step.model, params, ids, how, stops)
    return [prompt + tokenizer.decode(new) for prompt, new in zip(prompts, found, strict=True)]
