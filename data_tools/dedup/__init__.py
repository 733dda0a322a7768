"""Removal of documents that say the same."""
