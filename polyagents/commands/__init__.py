"""Our own commands, one file each; the tables of `names.py` list them beside ParlAI's."""
