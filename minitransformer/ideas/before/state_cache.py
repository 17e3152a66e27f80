"""What a layer carries from token to token, where its size is constant: a recurrent state, sums, or the last inputs."""

from ...core.arrays.backend import Array
from ...core.arrays.boundary import check_ids


class StateCache:
    """The cache of a layer whose state has a constant size.

    state: an array whose leading axes are those of the input, or None before the first token.
    """

    def __init__(self) -> None:
        self.state: Array | None = None
        self.length = 0  # tokens read

    def keep(self, state: Array, n_new: int) -> None:
        """Replace the state by the one after n_new more tokens."""
        self.state, self.length = state, self.length + n_new

    def select(self, rows: Array, memory: Array | None = None) -> None:
        """Replace the batch by these of its rows, as in KeyValueCache; a state belongs to no memory."""
        if self.state is None:
            raise ValueError("the cache is empty; no tokens were read yet, so there are no rows to select")
        check_ids("StateCache", "rows", rows, self.state.shape[0], like=self.state)
        self.state = self.state[rows]
