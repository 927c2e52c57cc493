"""The pages: annotation of pairs, chats with models, and the organiser's page of everybody's progress."""
