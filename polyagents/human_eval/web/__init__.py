"""The annotation page, and the organiser's page of how far everybody is."""
