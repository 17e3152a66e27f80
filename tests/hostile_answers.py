"""Hand-ins that try to pass for right while they are called: by what they see, what they change and what they return.

Each is the body of `softmax_backward(y, dy)`. What it returns, where it comes to that, is wrong.
"""

import textwrap

from hostile_hand_ins import bodies

LOOKING = bodies("LOOKING")

CHANGING = bodies("CHANGING")

RETURNING = bodies("RETURNING")

_BODIES = LOOKING | CHANGING | RETURNING
ANSWERS = {
    name: "import numpy as np\n\ndef softmax_backward(y, dy):\n"
    + textwrap.indent(textwrap.dedent(body).strip() + "\nreturn y * dy", "    ")
    for name, body in _BODIES.items()
}
