"""The steps of `polyagents human_eval`, one file each: flags, and the calls that they stand for."""
