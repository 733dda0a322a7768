"""Privacy: finds private data in text, and keeps, tags, masks, hashes or drops it by type.

`detectors.py` has the table of what finds it.
"""
