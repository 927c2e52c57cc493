"""A table of (flags x seeds), trained and measured at equal examples and at equal training seconds.

    python -m polyagents.benchmarks.study FILE --work DIR      run what is missing, then report
    python -m polyagents.benchmarks.study FILE --report        report what is there

plan.py reads the file, schedule.py decides which run is next, run_row.py is one run in a process of its own, records.py
has the files of results, statistics.py the intervals and tests, report.py and pictures.py the report.
docs/studies.md explains how to write one.
"""
