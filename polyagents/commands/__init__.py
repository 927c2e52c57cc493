"""Our own commands, one file each; ParlAI's `register_script` puts them beside ParlAI's."""
