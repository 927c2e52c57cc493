"""Candidates in a vector database that others run: what we ask of one, Milvus, PostgreSQL with pgvector."""
