"""The fault campaign: real runs, killed, starved and deceived in every way; `make faults`."""
