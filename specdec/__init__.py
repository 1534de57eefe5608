"""Speculative decoding in JAX: exact, batched, reproducible."""
