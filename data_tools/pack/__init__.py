"""Tokenized documents to shards: which stay, which source and shard they go to, how they lie."""
