"""Paths whose clients are other people's, and read answers and errors in their own shape."""

RERANK_V1, RERANK_V2 = "/v1/rerank", "/v2/rerank"  # Cohere's
EMBEDDINGS = "/v1/embeddings"  # OpenAI's
