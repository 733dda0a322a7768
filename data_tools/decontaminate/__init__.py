"""Removal of documents that hold text of evaluation sets."""
