"""The tokenizer: what it is trained on, and its training."""
