"""The paths of endpoints in other companies' shapes, whose clients read answers and errors in that shape."""

RERANK_V1, RERANK_V2 = "/v1/rerank", "/v2/rerank"  # Cohere's
EMBEDDINGS = "/v1/embeddings"  # OpenAI's
