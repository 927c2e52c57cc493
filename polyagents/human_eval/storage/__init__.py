"""The storage of conversations, pairs, answers and chats: SQLite or PostgreSQL, through SQLAlchemy."""
