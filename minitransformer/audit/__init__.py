"""Put known mistakes in the place of the function that a test suite tests, and see which it lets pass.

A TOML file describes a suite; `suite.py` says what it holds. `worker.py` runs the tests in processes of their own,
`running.py` starts it, and `report.py` shows what came out.
"""

from .report import picture, table
from .running import Outcome, Result, audit
from .suite import Suite, read

__all__ = ["Outcome", "Result", "Suite", "audit", "picture", "read", "table"]
