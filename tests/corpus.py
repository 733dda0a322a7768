from bench.small_corpus import *  # noqa: F403
