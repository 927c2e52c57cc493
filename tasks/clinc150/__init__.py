"""CLINC150 (Larson et al. 2019): which of 150 intents does a request to an assistant have?

`-t polyagents.tasks.clinc150`. An example:

    how would i say thank you if i were italian
        -> translate

`:oos` has the requests that have none of these intents, too: their intent is `oos`. In `:outside` no candidate of
theirs is right, for `polyagents calibrate`. `:sample` is a few made-up requests in the same file.
"""

from .agents import DefaultTeacher, Oos, Outside, Sample

__all__ = ["DefaultTeacher", "Oos", "Outside", "Sample"]
