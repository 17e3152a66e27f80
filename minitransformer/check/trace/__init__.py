"""Record running code: calls, lines, local variables, and the pairs of `name` and `dname`."""
