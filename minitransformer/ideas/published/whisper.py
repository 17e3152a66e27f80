"""Whisper: Radford et al. 2022, "Robust Speech Recognition via Large-Scale Weak Supervision", section 2.2.

The paper's encoder-decoder in pre-norm order. It reads sound through two convolutions (speech.py); the encoder's
positions are sines and cosines, the decoder's are learned. The maps to keys have no bias.
"""

import numpy as np

from ...core.arrays.backend import Array
from .bart import READING
from .family import BODY, WORDS, Family, Found, Stored
from .fields import Fields
from .speech import SpeechConfig, sines

FIELDS = """
vocab_size                 size        target_vocabulary
num_mel_bins               size        pitches              80
max_source_positions       size        n_source_positions   1500
max_target_positions       size        n_positions          448
d_model                    size        d_model              384
encoder_attention_heads    size        n_heads              6
encoder_ffn_dim            size        d_ff                 1536
encoder_layers             size        n_encoder_layers     4
decoder_attention_heads    size        decoder_heads        6
decoder_ffn_dim            size        decoder_d_ff         1536
decoder_layers             size        n_decoder_layers     4
dropout                    rate        dropout
attention_dropout          rate        attention_dropout
activation_function        activation  activation           "gelu"
tie_word_embeddings        flag        tie_output           true
"""
_TABLE = "encoder.embed_positions.weight"


def _ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    """The table of the encoder's positions must be that which we compute."""
    fields.get("num_hidden_layers")  # of the encoder, once more
    if _TABLE in stored and hasattr(stored[_TABLE], "dtype"):
        shape = (found["n_source_positions"], found["d_model"])
        if stored[_TABLE].shape != shape:
            raise ValueError(f"{_TABLE} must have shape {shape}, got {stored[_TABLE].shape}")
        if abs(stored[_TABLE].read() - positions(SpeechConfig(**found))[_TABLE]).max() > 1e-2:
            raise ValueError(f"{_TABLE} does not hold Whisper's sines and cosines")
    return {}


def positions(config: SpeechConfig) -> dict[str, Array]:
    """The table of sines and cosines, which a Whisper has in its file."""
    n = config.n_source_positions
    like = np.zeros(1, np.float64)
    return {_TABLE: sines(config.d_model).rows(slice(0, n), n, like)}


def _theirs(config: SpeechConfig) -> Found:
    """The ids of a real tokenizer are given to save_pretrained."""
    last = config.target_vocabulary - 1
    ids = {"pad_token_id": last, "bos_token_id": last, "eos_token_id": last, "decoder_start_token_id": last}
    return {"is_encoder_decoder": True, "begin_suppress_tokens": None, "suppress_tokens": None, **ids}


NAMES = f"""{READING}
encoder.(conv1,conv2)    T  embed_source.(first,second)
encoder.embed_positions  -
decoder.embed_tokens     =  target_tokens
decoder.embed_positions  =  embed_target.positions
/proj_out                =  output
/proj_out                ~  target_tokens
"""

FAMILY = Family(
    "whisper", "model", SpeechConfig, {"WhisperModel": BODY, "WhisperForConditionalGeneration": WORDS}, FIELDS, NAMES,
    only={"scale_embedding": False, "is_encoder_decoder": True}, more_ours=_ours, more_theirs=_theirs,
    adds="sound as the source, through two convolutions over time; pre-norm order, keys without a bias",
    small={
        "vocab_size": 13, "num_mel_bins": 5, "d_model": 12, "encoder_layers": 1, "decoder_layers": 2,
        "encoder_attention_heads": 3, "decoder_attention_heads": 2, "encoder_ffn_dim": 8, "decoder_ffn_dim": 10,
        "max_source_positions": 7, "max_target_positions": 16, "pad_token_id": 1, "bos_token_id": 0,
        "eos_token_id": 2, "decoder_start_token_id": 3,
    },
    ignored="use_weighted_layer_sum classifier_proj_size apply_spec_augment mask_time_* mask_feature_* "
    "median_filter_width forced_decoder_ids",
    computed=positions,
    reads="sound",
)  # fmt: skip
