"""Replace the function that a test suite tests by known mistakes, and see which ones the suite lets pass.

A TOML file describes a suite; `suite.py` explains its entries. `worker.py` runs the tests in separate processes,
and `running.py` starts it and shows the results.
"""

from .running import Outcome, Result, audit, picture, table
from .suite import Suite, read

__all__ = ["Outcome", "Result", "Suite", "audit", "picture", "read", "table"]
