"""ParlAI's pretrained rankers: which models exist (`models`), and how they are downloaded (`archive`)."""
