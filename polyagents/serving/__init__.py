"""`polyagents serve`: a chat page and JSON endpoints for one model (docs/serving.md)."""
