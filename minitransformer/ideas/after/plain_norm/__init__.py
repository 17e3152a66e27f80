"""RMSNorm without a gain, an idea in one folder."""

from .layer import PlainRMSNorm

__all__ = ["PlainRMSNorm"]
