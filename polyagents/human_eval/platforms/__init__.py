"""The interfaces of crowd platforms: what is asked of them, and what is sent."""
