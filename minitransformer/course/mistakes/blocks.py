"""Mistakes in dropout, residual connections, checkpointing, and the layers and stacks made of them."""

from __future__ import annotations

from .variant import WrongVariant

_DROPOUT = "ops.dropout:dropout"
_POST, _PRE = "layers.residual:Residual._post", "layers.residual:Residual._pre"
_CHECKPOINT = "layers.residual:Checkpoint.__call__"
_ENCODER_LAYER, _DECODER_LAYER = "layers.blocks:EncoderLayer.__call__", "layers.blocks:DecoderLayer.__call__"
_ENCODER, _DECODER = "layers.blocks:Encoder.__call__", "layers.blocks:Decoder.__call__"

_POST_CASES = ("Residual in post-norm order",)
_PRE_CASES = ("Residual in pre-norm order",)
_REPLAY_CASES = ("Checkpoint around a layer with dropout",)
_ENCODER_LAYER_CASES = ("EncoderLayer with RMSNorm and a gated unit",)
_DECODER_LAYER_CASES = ("DecoderLayer",)
_ENCODER_CASES = ("Encoder in pre-norm order, checkpointed",)
_DECODER_CASES = ("Decoder in pre-norm order, checkpointed",)

VARIANTS = (
    WrongVariant(
        "dropout-mask-forgotten",
        _DROPOUT,
        "dx = dy * factor",
        "dx = dy",
        "The gradient passes everywhere, also where x was dropped.",
        ("dropout",),
    ),
    WrongVariant(
        "dropout-not-rescaled",
        _DROPOUT,
        "dx = dy * factor",
        "dx = dy * keep",
        "What was kept was multiplied by 1/(1 - rate), so its gradient must be as well.",
        ("dropout", "Residual in pre-norm order"),
    ),
    WrongVariant(
        "dropout-rescaled-by-inverse",
        _DROPOUT,
        "dx = dy * factor",
        "dx = dy * keep * (1.0 - rate)",
        "The gradient is multiplied by 1 - rate; the forward pass divided by it.",
        ("dropout",),
    ),
    WrongVariant(
        "dropout-mask-redrawn",
        _DROPOUT,
        "dx = dy * factor",
        "dx = dy * (uniform(rng, x.shape, like=x) >= rate) * (1.0 / (1.0 - rate))",
        "A new mask is drawn for the backward pass; it must be the one that dropped x.",
        ("dropout", "Residual in post-norm order"),
    ),
    WrongVariant(
        "dropout-changes-dy",
        _DROPOUT,
        "dx = dy * factor",
        "dy *= factor\n        dx = dy",
        "dx is right, but dy is changed in place: in a residual connection the residual path loses what was dropped.",
        ("dropout", "Residual in pre-norm order"),
    ),
    WrongVariant(
        "dropout-changes-its-mask",
        _DROPOUT,
        "dx = dy * factor",
        "dx = factor\n        dx *= dy",
        "dx is written over the mask that the pullback holds, so another call of it gives another gradient.",
        ("dropout", "InputEmbedding with dropout"),
    ),
    WrongVariant(
        "dropout-scales-gradient-at-inference",
        _DROPOUT,
        "lambda dy: dy",
        "lambda dy: dy * (1.0 - rate)",
        "Without dropout y is x, so dx is dy; nothing is to be rescaled.",
        ("dropout switched off",),
    ),
    WrongVariant(
        "post-norm-identity-dropped",
        _POST,
        "dx = dtotal + dthrough",
        "dx = dthrough",
        "The gradient of the residual path is dropped.",
        (*_POST_CASES, "EncoderLayer"),
    ),
    WrongVariant(
        "post-norm-identity-past-norm",
        _POST,
        "dx = dtotal + dthrough",
        "dx = dy + dthrough",
        "dy skips the norm; in post-norm order the norm comes after the sum, so the residual path goes through it.",
        _POST_CASES,
    ),
    WrongVariant(
        "post-norm-dropout-skipped",
        _POST,
        "dupdate = dropout_backward(dkept)",
        "dupdate = dkept",
        "The gradient does not pass back through dropout.",
        ("Residual in post-norm order",),
    ),
    WrongVariant(
        "post-norm-pullback-on-self",
        _POST,
        """
        kept, dropout_backward = ops.dropout(update, self.dropout, rng)
        total = x + kept
        y, norm_backward = self.norm(total)

        def backward(dy: Array) -> Any:
            dtotal = norm_backward(dy)
            dkept = dtotal
            dupdate = dropout_backward(dkept)
""",
        """
        kept, self.dropout_backward = ops.dropout(update, self.dropout, rng)
        total = x + kept
        y, norm_backward = self.norm(total)

        def backward(dy: Array) -> Any:
            dtotal = norm_backward(dy)
            dkept = dtotal
            dupdate = self.dropout_backward(dkept)
""",
        "Dropout's pullback is kept on the layer, so a second use of the layer overwrites that of the first.",
        ("EncoderLayer used twice, with dropout",),
    ),
    WrongVariant(
        "pre-norm-identity-dropped",
        _PRE,
        "dx = dy + norm_backward(dnormalized)",
        "dx = norm_backward(dnormalized)",
        "The gradient of the residual path is dropped.",
        (*_PRE_CASES, "EncoderLayer in pre-norm order, with dropout"),
    ),
    WrongVariant(
        "pre-norm-norm-skipped",
        _PRE,
        "dx = dy + norm_backward(dnormalized)",
        "dx = dy + dnormalized",
        "The gradient through the sub-layer does not pass back through the norm before it.",
        _PRE_CASES,
    ),
    WrongVariant(
        "pre-norm-identity-through-norm",
        _PRE,
        "dx = dy + norm_backward(dnormalized)",
        "dx = norm_backward(dy + dnormalized)",
        "The residual path is led through the norm; in pre-norm order it goes through no norm.",
        _PRE_CASES,
    ),
    WrongVariant(
        "pre-norm-dropout-skipped",
        _PRE,
        "dupdate = dropout_backward(dkept)",
        "dupdate = dkept",
        "The gradient does not pass back through dropout.",
        _PRE_CASES,
    ),
    WrongVariant(
        "pre-norm-memory-dropped",
        _PRE,
        "return (dx, *dothers) if dothers else dx",
        "return dx",
        "The gradient of the memory is not handed on, so the encoder is never trained.",
        ("Residual around cross-attention",),
    ),
    WrongVariant(
        "checkpoint-dropout-not-replayed",
        _CHECKPOINT,
        "**{name: _copied(option) for name, option in before.items()}",
        "**options",
        "The second forward pass goes on with the generator where the first one left it, and drops other elements.",
        _REPLAY_CASES,
    ),
    WrongVariant(
        "checkpoint-without-dropout",
        _CHECKPOINT,
        "**{name: _copied(option) for name, option in before.items()}",
        '**(before | {"rng": None})',
        "The second forward pass has no dropout, so its gradients are those of another function.",
        _REPLAY_CASES,
    ),
    WrongVariant(
        "checkpoint-state-not-copied",
        _CHECKPOINT,
        "before = {name: _copied(option) for name, option in options.items()}",
        "before = options",
        "The generator is remembered and not its state, which the first forward pass then changes.",
        _REPLAY_CASES,
    ),
    WrongVariant(
        "checkpoint-replays-once",
        _CHECKPOINT,
        "**{name: _copied(option) for name, option in before.items()}",
        "**before",
        "The remembered generator itself is used up, so another call of the pullback drops other elements.",
        _REPLAY_CASES,
    ),
    WrongVariant(
        "checkpoint-options-forgotten",
        _CHECKPOINT,
        "**{name: _copied(option) for name, option in before.items()}",
        'rng=_copied(before["rng"])',
        "The second forward pass runs without the mask.",
        ("Encoder in pre-norm order, checkpointed",),
    ),
    WrongVariant(
        "encoder-layer-wrong-order",
        _ENCODER_LAYER,
        """
            dattended = feed_forward_backward(dy)
            dx = attention_backward(dattended)""",
        """
            dattended = attention_backward(dy)
            dx = feed_forward_backward(dattended)""",
        "The sub-layers are gone back through in the order of the forward pass; the last one must come first.",
        _ENCODER_LAYER_CASES,
    ),
    WrongVariant(
        "encoder-layer-attention-skipped",
        _ENCODER_LAYER,
        "dx = attention_backward(dattended)",
        "dx = dattended",
        "The gradient stops short of self-attention, which is then never trained.",
        _ENCODER_LAYER_CASES,
    ),
    WrongVariant(
        "decoder-layer-dmemory-of-wrong-gradient",
        _DECODER_LAYER,
        "dattended, dmemory = cross_backward(dinformed)",
        "dattended, dmemory = cross_backward(dy)",
        "Cross-attention gets the gradient of the layer's output; it must get what the feed-forward network hands on.",
        _DECODER_LAYER_CASES,
    ),
    WrongVariant(
        "decoder-layer-cross-attention-skipped",
        _DECODER_LAYER,
        "dx = self_backward(dattended)",
        "dx = self_backward(dinformed)",
        "Self-attention gets the gradient that cross-attention got; the way back through cross-attention is left out.",
        _DECODER_LAYER_CASES,
    ),
    WrongVariant(
        "decoder-layer-self-attention-skipped",
        _DECODER_LAYER,
        "dx = self_backward(dattended)",
        "dx = dattended",
        "The gradient stops short of self-attention, which is then never trained.",
        _DECODER_LAYER_CASES,
    ),
    WrongVariant(
        "encoder-not-reversed",
        _ENCODER,
        "reversed(pullbacks)",
        "pullbacks",
        "The layers are gone back through from the first to the last; it must be from the last to the first.",
        _ENCODER_CASES,
    ),
    WrongVariant(
        "encoder-last-layer-only",
        _ENCODER,
        "for pullback in reversed(pullbacks):\n                dx = pullback(dx)",
        "for _ in reversed(pullbacks):\n                dx = pullback(dx)",
        "`pullback` is the last one of the forward loop: a closure holds the variable, not the value of each turn.",
        _ENCODER_CASES,
    ),
    WrongVariant(
        "encoder-final-norm-skipped",
        _ENCODER,
        "dx = finish_backward(dy)",
        "dx = dy",
        "The gradient does not pass back through the final norm.",
        _ENCODER_CASES,
    ),
    WrongVariant(
        "decoder-not-reversed",
        _DECODER,
        "reversed(pullbacks)",
        "pullbacks",
        "The layers are gone back through from the first to the last; it must be from the last to the first.",
        _DECODER_CASES,
    ),
    WrongVariant(
        "decoder-dmemory-overwritten",
        _DECODER,
        "dmemory = dmemory + dlayer_memory",
        "dmemory = dlayer_memory",
        "Each layer overwrites the gradient of the memory (= for +=); that of the first layer alone is left.",
        _DECODER_CASES,
    ),
    WrongVariant(
        "decoder-dmemory-of-last-layer",
        _DECODER,
        "dmemory = dmemory + dlayer_memory",
        "dmemory = dlayer_memory if pullback is pullbacks[-1] else dmemory",
        "Only the last layer trains the encoder, but every layer read its memory.",
        _DECODER_CASES,
    ),
    WrongVariant(
        "decoder-dmemory-mean",
        _DECODER,
        "dmemory = dmemory + dlayer_memory",
        "dmemory = dmemory + dlayer_memory / len(pullbacks)",
        "The gradients of the memory are averaged over the layers; every layer's counts in full.",
        _DECODER_CASES,
    ),
)
