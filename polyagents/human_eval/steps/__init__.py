"""The steps of `polyagents human_eval`, one file each: `parser()` declares its flags, `run(opt)` does it.

A step imports the libraries that it needs when it runs, so that its flags and errors in them are shown at once.
"""
