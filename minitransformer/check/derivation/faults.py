"""What stops the check of a line."""


class Unreadable(Exception):
    """The line cannot be read or computed: neither right nor wrong."""


class Fault(Exception):
    """The line is wrong, whatever the numbers: an index, or shapes."""


class Inexact(Exception):
    """Fractions cannot express this."""


class OutOfTime(Exception):
    """The whole check may take two seconds."""
