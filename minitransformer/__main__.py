"""`python -m minitransformer` is the same as the command `minitransformer`."""

import sys

from .cli import main

if __name__ == "__main__":
    sys.exit(main())
