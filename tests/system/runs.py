from bench.runs import *  # noqa: F403
