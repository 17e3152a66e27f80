"""The gated delta rule in chunks, an idea in one folder: ops, cases, mistakes, exercise, example and page."""

from .op import chunked_delta, delta_chunk, in_chunks

__all__ = ["chunked_delta", "delta_chunk", "in_chunks"]
