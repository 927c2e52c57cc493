"""The paths of the secret links; kept apart, so that printing a link loads no web library."""

ANNOTATE_PATH = "/annotate/"  # of an annotator's page; the token follows
PROGRESS_PATH = "/progress/"  # of the organiser's page; the token follows
