"""Where human evaluation keeps conversations, pairs, answers and chats: SQLite or PostgreSQL, through SQLAlchemy."""
