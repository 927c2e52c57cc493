"""Everything that needs a GPU, in stages that can be called again: what is done stays done.

    python -m polyagents.benchmarks.gpu --out DIR

One stage is a process of its own, and may be stopped where the time of a call is up; the next call continues.
`stages.py` says what there is to do, most valuable first, `carry_out.py` does it, `search.py` and `encoding.py` measure
what no other benchmark does, and `report.py` writes tables and a picture.
"""
