"""Files of conversations: ParlAI's and ACUTE-Eval's formats, read and written, and CSV."""
