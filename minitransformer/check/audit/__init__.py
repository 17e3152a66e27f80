"""Replace the function that a test suite tests by known mistakes, and see which ones the suite lets pass.

A TOML file describes a suite; `suite.py` explains its entries. `worker.py` runs the tests in separate processes,
`running.py` starts it, and `outcomes.py` shows the results.
"""

from .outcomes import picture, table
from .running import Outcome, Result, audit
from .suite import Suite, read

__all__ = ["Outcome", "Result", "Suite", "audit", "picture", "read", "table"]
