"""Mistakes in what softmax, attention, masks and heads compute: wrong forward and backward alike.

Finite differences find no fault in them: they prove that backward belongs to forward, not that forward is right.
"""

from __future__ import annotations

from .variant import WrongVariant

_ATTENTION, _MULTI_HEAD = "ops.attention:attention", "layers.attention:MultiHeadAttention.__call__"
_DECODER_LAYER = "layers.blocks:DecoderLayer.__call__"

_ATTENTION_CASES = ("attention", "attention with heads")
_ACROSS = "MultiHeadAttention across to a memory"

VARIANTS = (
    WrongVariant(
        "softmax-overflows",
        "ops.softmax:softmax",
        "xp.exp((x - shift) / temperature)",
        "xp.exp(x / temperature)",
        "The largest score is not subtracted first, so a score of 1000 overflows.",
        ("softmax", "attention"),
        "values",
    ),
    WrongVariant(
        "softmax-temperature-multiplies",
        "ops.softmax:softmax",
        """ / temperature)  # a shift cancels in y, and exp of 0 or less cannot overflow
    total = exponentials.sum(axis=axis, keepdims=True)
    y = exponentials / xp.where(total == 0.0, 1.0, total)

    def backward(dy: Array) -> Array:
        dx = y * (dy - (dy * y).sum(axis=axis, keepdims=True)) / temperature""",
        """ * temperature)
    total = exponentials.sum(axis=axis, keepdims=True)
    y = exponentials / xp.where(total == 0.0, 1.0, total)

    def backward(dy: Array) -> Array:
        dx = y * (dy - (dy * y).sum(axis=axis, keepdims=True)) * temperature""",
        "The scores are multiplied by the temperature; they must be divided by it.",
        ("softmax along another axis, with temperature",),
        "values",
    ),
    WrongVariant(
        "attention-not-scaled",
        _ATTENTION,
        "1.0 / math.sqrt(d_k)",
        "1.0",
        "The scores are not divided by √d_k, so wide heads saturate the softmax.",
        _ATTENTION_CASES,
        "values",
    ),
    WrongVariant(
        "attention-scaled-by-length",
        _ATTENTION,
        "1.0 / math.sqrt(d_k)",
        "1.0 / math.sqrt(t_k)",
        "The scores are divided by √T_k; the width d_k is what their variance grows with.",
        _ATTENTION_CASES,
        "values",
    ),
    WrongVariant(
        "attention-scaled-by-model-width",
        _MULTI_HEAD,
        "dropout=self.dropout, rng=rng)",
        "scale=self.d_model**-0.5, dropout=self.dropout, rng=rng)",
        "The scores are divided by √d_model; each head is only d_k wide.",
        (_ACROSS,),
        "values",
    ),
    WrongVariant(
        "attention-scaled-after-softmax",
        _ATTENTION,
        """
    scores = (q @ k.swapaxes(-1, -2)) * factor
    visible = scores if allowed is None else xp.where(allowed, biased, -xp.inf)
    weights, softmax_backward = softmax(visible)
    kept, dropout_backward = drop(weights, dropout, rng)
    output = kept @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dkept = doutput @ v.swapaxes(-1, -2)
        dv = kept.swapaxes(-1, -2) @ doutput
        dweights = dropout_backward(dkept)
        dscores = softmax_backward(dweights)  # zero wherever the mask hid the score
        dq = (dscores @ k) * factor
        dk = (dscores.swapaxes(-1, -2) @ q) * factor
""",
        """
    scores = q @ k.swapaxes(-1, -2)
    visible = scores if allowed is None else xp.where(allowed, biased, -xp.inf)
    weights, softmax_backward = softmax(visible)
    kept, dropout_backward = drop(weights * factor, dropout, rng)
    output = kept @ v

    def backward(doutput: Array) -> tuple[Array, Array, Array]:
        dkept = doutput @ v.swapaxes(-1, -2)
        dv = kept.swapaxes(-1, -2) @ doutput
        dweights = dropout_backward(dkept) * factor
        dscores = softmax_backward(dweights)
        dq = dscores @ k
        dk = dscores.swapaxes(-1, -2) @ q
""",
        "Softmax comes before the scaling: the weights of a query then sum to 1/√d_k.",
        _ATTENTION_CASES,
        "values",
    ),
    WrongVariant(
        "attention-mask-ignored",
        _ATTENTION,
        "allowed = mask\n",
        "allowed = None\n",
        "The mask is accepted and never used.",
        ("attention with mask and scale", "EncoderLayer"),
        "values",
    ),
    WrongVariant(
        "attention-mask-inverted",
        _ATTENTION,
        "xp.where(allowed, biased, -xp.inf)",
        "xp.where(allowed, -xp.inf, scores)",
        "True is taken to mean 'hidden'; here it means 'may attend'.",
        ("attention with mask and scale", "attention with heads"),
        "values",
    ),
    WrongVariant(
        "attention-mask-added",
        _ATTENTION,
        "xp.where(allowed, biased, -xp.inf)",
        "scores + xp.where(allowed, 0.0, -10000.0)",
        "-10000 is added where the mask hides: a query that may attend to nothing attends as if there were no mask.",
        ("attention with mask and scale",),
        "values",
    ),
    WrongVariant(
        "causal-mask-sees-one-ahead",
        "masks:causal_mask",
        ">= 0",
        ">= -1",
        "Each position sees the next one, which is just what it shall predict.",
        ("attention with causal mask and dropout", "LanguageModel in post-norm order, checkpointed"),
        "values",
    ),
    WrongVariant(
        "causal-mask-hides-self",
        "masks:causal_mask",
        ">= 0",
        "> 0",
        "A position may not attend to itself; the first one is then left with nothing.",
        ("attention with causal mask and dropout",),
        "values",
    ),
    WrongVariant(
        "mask-forgets-earlier-keys",
        "masks:_distance",
        "(xp.arange(t_q) + (t_k - t_q))",
        "xp.arange(t_q)",
        "With fewer queries than keys, as with a cache, query 0 is taken for position 0; it is position T_k - T_q.",
        ("attention with causal mask and dropout",),
        "values",
    ),
    WrongVariant(
        "split-heads-by-reshape",
        "ops.heads:split_heads",
        """
    heads = _split(x, n_heads)

    def backward(dheads: Array) -> Array:
        dx = _merge(dheads)
""",
        """
    heads = x.reshape(*x.shape[:-2], n_heads, x.shape[-2], -1)

    def backward(dheads: Array) -> Array:
        dx = dheads.reshape(x.shape)
""",
        "Heads are split by a reshape with no swap of axes: each gets a piece of the sequence, not of the width.",
        ("split_heads", _ACROSS),
        "values",
    ),
    WrongVariant(
        "merge-heads-by-reshape",
        "ops.heads:merge_heads",
        """
    x = _merge(heads)

    def backward(dx: Array) -> Array:
        dheads = _split(dx, n_heads)
""",
        """
    x = heads.reshape(*heads.shape[:-3], heads.shape[-2], -1)

    def backward(dx: Array) -> Array:
        dheads = dx.reshape(heads.shape)
""",
        "Heads are merged by a reshape with no swap of axes: the rows of one head become neighbours in the width.",
        ("merge_heads", _ACROSS),
        "values",
    ),
    WrongVariant(
        "multi-head-keys-and-values-swapped",
        _MULTI_HEAD,
        """
        k, k_backward = self._heads(self.key, x if memory is None else memory)
        v, v_backward = self._heads(self.value, x if memory is None else memory)
""",
        """
        k, k_backward = self._heads(self.value, x if memory is None else memory)
        v, v_backward = self._heads(self.key, x if memory is None else memory)
""",
        "The projection of the values makes the keys, and that of the keys the values.",
        (_ACROSS,),
        "values",
    ),
    WrongVariant(
        "decoder-layer-memory-asks",
        _DECODER_LAYER,
        """
        informed, cross_backward = self.cross_attention(attended, memory, mask=memory_mask, cache=cross_cache, rng=rng)
        y, feed_forward_backward = self.feed_forward(informed, rng=rng)

        def backward(dy: Array) -> tuple[Array, Array]:
            dinformed = feed_forward_backward(dy)
            dattended, dmemory = cross_backward(dinformed)
""",
        """
        informed, cross_backward = self.cross_attention(memory, attended, cache=cross_cache, rng=rng)
        y, feed_forward_backward = self.feed_forward(informed, rng=rng)

        def backward(dy: Array) -> tuple[Array, Array]:
            dinformed = feed_forward_backward(dy)
            dmemory, dattended = cross_backward(dinformed)
""",
        "Queries come from the memory and keys from the target: each output then sees the whole target, a causal leak.",
        (),
        "values",
    ),
    WrongVariant(
        "decoder-layer-not-causal",
        _DECODER_LAYER,
        "causal=True",
        "causal=False",
        "The decoder's self-attention is not causal: it reads the tokens that it shall predict.",
        ("DecoderLayer",),
        "values",
    ),
    WrongVariant(
        "decoder-layer-memory-mask-dropped",
        _DECODER_LAYER,
        "mask=memory_mask, ",
        "",
        "memory_mask is accepted and not handed on: the decoder attends to the padding of the source.",
        ("DecoderLayer",),
        "values",
    ),
)
