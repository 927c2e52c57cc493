"""Our own commands, one file each; the tables of `names.py` list them with ParlAI's."""
