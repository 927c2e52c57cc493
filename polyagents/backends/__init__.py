"""Encoders that another runtime than torch computes: exported once, beside the model, and then in torch's place."""
