"""`python -m bench.privacy`: precision and recall on synthetic records, hits on real code and a
novel, and speed. `--code` lists every hit on the standard library, to be read."""
