"""BANKING77 (Casanueva et al. 2020): which of 77 intents does a question to a bank have?

`-t polyagents.tasks.banking77`. An example:

    Can I track my card while it is in the process of delivery?
        -> card arrival

Valid is a fifth of the published training set. `:all` trains on all of it, to report what was chosen before; `:sample`
is a few made-up questions in the same files.
"""

from .agents import All, DefaultTeacher, Sample

__all__ = ["All", "DefaultTeacher", "Sample"]
