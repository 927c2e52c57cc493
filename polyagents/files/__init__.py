"""Files: written whole or not at all, locked, told apart, read without running code."""
