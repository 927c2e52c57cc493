"""What the tasks banking77 and clinc150 share: a text, its intent as label, and all intents as candidates."""
