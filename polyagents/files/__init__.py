"""Files: atomic writes, locks, digests, and formats that are read without running code."""
