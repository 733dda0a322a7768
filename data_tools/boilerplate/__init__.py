"""Boilerplate: lines that recur over documents and sites, found by counting and removed."""
