"""One recorder of running code: calls, lines, local variables, and the pairing of `name` with `dname`."""
