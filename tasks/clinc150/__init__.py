"""CLINC150 (Larson et al. 2019): which of 150 intents does a request to an assistant have?

`-t polyagents.tasks.clinc150`. An example:

    how would i say thank you if i were italian
        -> translate

`:oos` has the requests that have none of these intents, too: their intent is `oos`. `:sample` is a few made-up requests
in the same file.
"""

from .agents import DefaultTeacher, Oos, Sample

__all__ = ["DefaultTeacher", "Oos", "Sample"]
