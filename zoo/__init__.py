"""ParlAI's pretrained rankers: what there is (`models`), and how it gets onto the disk (`archive`)."""
