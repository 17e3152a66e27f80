"""Mistakes in whole models: a part that gets no gradient, or a wrong one."""

from __future__ import annotations

from .variant import WrongVariant

_ENCODE, _DECODE = "models.transformer:Transformer.encode", "models.transformer:Transformer.decode"
_CALL, _LOSS = "models.transformer:Transformer.__call__", "models.transformer:Transformer.loss"
_LANGUAGE_MODEL = "models.language_model:LanguageModel.__call__"
_LANGUAGE_MODEL_LOSS = "models.language_model:LanguageModel.loss"
_CLASSIFIER, _CLASSIFIER_LOSS = "models.classifier:Classifier.__call__", "models.classifier:Classifier.loss"

_TRANSFORMER_CASES = ("Transformer checkpointed",)
_LANGUAGE_MODEL_CASES = ("LanguageModel in post-norm order, checkpointed",)
_CLASSIFIER_CASES = ("Classifier",)

_UPSTREAM = "dloss is ignored: right only while the loss is the last thing computed, and not scaled."
_DIVIDED = "The gradient is divided by the number of sequences; the mean within the loss has done that."

VARIANTS = (
    WrongVariant(
        "transformer-source-embedding-untrained",
        _ENCODE,
        "embed_backward(dembedded)",
        "del dembedded",
        "The gradient stops at the encoder's input: source tokens are never trained.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-encoder-skipped",
        _ENCODE,
        "dembedded = encoder_backward(dmemory)",
        "dembedded = dmemory",
        "The gradient goes to the source's embedding without passing back through the encoder.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-target-embedding-untrained",
        _DECODE,
        "            embed_backward(dembedded)\n",
        "",
        "The gradient stops at the decoder's input; of the tied table only the output's half is trained.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-decoder-input-gets-wrong-gradient",
        _DECODE,
        "embed_backward(dembedded)",
        "embed_backward(dhidden)",
        "The target's embedding gets the gradient of the decoder's output; it must get that of its input.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-encoder-untrained",
        _CALL,
        "encode_backward(dmemory)",
        "del dmemory",
        "The gradient of the memory is dropped, so the encoder is never trained.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-decoder-gradient-counted-twice",
        _CALL,
        "encode_backward(dmemory)",
        "encode_backward(decode_backward(dlogits))",
        "The decoder's pullback is called twice, and each call adds to the gradients of its parameters.",
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-loss-upstream-forgotten",
        _LOSS,
        "loss_backward(dloss)",
        "loss_backward()",
        _UPSTREAM,
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "transformer-loss-divided-again",
        _LOSS,
        "loss_backward(dloss)",
        "loss_backward(dloss) / len(wanted)",
        _DIVIDED,
        _TRANSFORMER_CASES,
    ),
    WrongVariant(
        "language-model-embedding-untrained",
        _LANGUAGE_MODEL,
        "embed_backward(dembedded)",
        "del dembedded",
        "The gradient stops at the stack's input: of the tied table only the output's half is trained.",
        _LANGUAGE_MODEL_CASES,
    ),
    WrongVariant(
        "language-model-stack-skipped",
        _LANGUAGE_MODEL,
        "dembedded = stack_backward(dhidden)",
        "dembedded = dhidden",
        "The gradient goes from the logits straight to the embedding; the layers between are never trained.",
        _LANGUAGE_MODEL_CASES,
    ),
    WrongVariant(
        "language-model-loss-upstream-forgotten",
        _LANGUAGE_MODEL_LOSS,
        "loss_backward(dloss)",
        "loss_backward()",
        _UPSTREAM,
        _LANGUAGE_MODEL_CASES,
    ),
    WrongVariant(
        "language-model-loss-divided-again",
        _LANGUAGE_MODEL_LOSS,
        "loss_backward(dloss)",
        "loss_backward(dloss) / len(wanted)",
        _DIVIDED,
        _LANGUAGE_MODEL_CASES,
    ),
    WrongVariant(
        "classifier-embedding-untrained",
        _CLASSIFIER,
        "embed_backward(dembedded)",
        "del dembedded",
        "The gradient stops at the encoder's input: tokens are never trained.",
        _CLASSIFIER_CASES,
    ),
    WrongVariant(
        "classifier-pool-repeats-gradient",
        _CLASSIFIER,
        "dhidden = pool_backward(dpooled)",
        "dhidden = dpooled[:, None, :].repeat(hidden.shape[1], axis=1)",
        "Every position gets the whole gradient, padding too; the mean gave each real token a share of 1/N.",
        _CLASSIFIER_CASES,
    ),
    WrongVariant(
        "classifier-encoder-skipped",
        _CLASSIFIER,
        "dembedded = encoder_backward(dhidden)",
        "dembedded = dhidden",
        "The gradient goes from the pooled vector straight to the embedding; the encoder is never trained.",
        _CLASSIFIER_CASES,
    ),
    WrongVariant(
        "classifier-loss-upstream-forgotten",
        _CLASSIFIER_LOSS,
        "loss_backward(dloss)",
        "loss_backward()",
        _UPSTREAM,
        _CLASSIFIER_CASES,
    ),
    WrongVariant(
        "classifier-loss-divided-again",
        _CLASSIFIER_LOSS,
        "loss_backward(dloss)",
        "loss_backward(dloss) / len(labels)",
        _DIVIDED,
        _CLASSIFIER_CASES,
    ),
)
