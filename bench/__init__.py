"""What the trainer costs on this machine: `python -m bench`."""
