"""The pages: annotation of pairs, chats with models, and the organiser's page of how far everybody is."""
