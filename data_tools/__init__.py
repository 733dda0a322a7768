"""Raw text to tokenized shards: `python -m data_tools build --config=... --workdir=...`."""
