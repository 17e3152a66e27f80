"""The stepper's example of a convolution with a stride."""

from ....school.show.stepper.examples import ALSO_CALLED, EXAMPLES, Example, op
from .op import strided_convolution

EXAMPLES["strided-convolution"] = Example(
    "5 frames of 2 numbers become 3: windows of 3 frames, every second one",
    op(strided_convolution, (5, 2), (3, 2, 2), (2,), stride=2),
)
ALSO_CALLED |= {"front-end": "strided-convolution", "whisper": "strided-convolution", "stride": "strided-convolution"}
