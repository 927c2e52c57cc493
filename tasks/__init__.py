"""ParlAI tasks, one folder each; installed as `polyagents.tasks`. They import ParlAI only."""
