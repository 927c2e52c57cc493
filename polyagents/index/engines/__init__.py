"""Candidates in a vector database: the interface, Milvus, PostgreSQL with pgvector."""
