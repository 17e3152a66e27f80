"""CLIP: Radford et al. 2021, "Learning Transferable Visual Models From Natural Language Supervision".

Two encoders, one of pictures (a ViT with a norm before its layers) and one of texts (causal), and one loss that brings
a picture and its text together (section 2.3). Its feed-forward networks have the quick GELU.
"""

from __future__ import annotations

from typing import Any

from .family import BODY, Family, Found
from .fields import ACTIVATIONS, Fields, their_activation, written
from .image_text import ImageTextConfig

TEXT = """
vocab_size                 size      vocabulary          49408
max_position_embeddings    size      max_length          77
hidden_size                size      d_model             512
num_attention_heads        size      n_heads             8
intermediate_size          size      d_ff                2048
num_hidden_layers          size      n_layers            12
layer_norm_eps             positive  norm_eps            1e-5
attention_dropout          rate      attention_dropout
"""
IMAGE = """
image_size                 size      image_size          224
patch_size                 size      patch_size          32
num_channels               size      channels            3
hidden_size                size      image_d_model       768
num_attention_heads        size      image_n_heads       12
intermediate_size          size      image_d_ff          3072
num_hidden_layers          size      n_image_layers      12
layer_norm_eps             positive  image_norm_eps      1e-5
attention_dropout          rate      image_attention_dropout
"""
_KNOWN = ACTIVATIONS | {"quick_gelu": "quick_gelu"}
_HIGHEST = 2  # what older files have as eos_token_id; it means the token with the largest id


def _ours(fields: Fields, *_: Any) -> Found:
    """The config.json holds one for the texts and one for the pictures."""
    text, image = (_inner(fields, name) for name in ("text_config", "vision_config"))
    end = 49407 if text.get("eos_token_id") is None else text.get("eos_token_id")
    if type(end) is not int or end < 0:
        raise ValueError(f"text_config: eos_token_id must be the id of the token that ends a text, got {str(end)[:60]}")
    found = dict(
        **text.read(TEXT),
        **image.read(IMAGE),
        end=None if end == _HIGHEST else end,
        activation=text.choice("hidden_act", _KNOWN, "quick_gelu"),
        image_activation=image.choice("hidden_act", _KNOWN, "quick_gelu"),
        d_shared=fields.size("projection_dim", 512),
        log_scale=float(fields.positive("logit_scale_init_value", 2.6592)),
    )
    for each, place in ((text, "text_config"), (image, "vision_config")):
        each.nothing_else("initializer_factor projection_dim", place)
    return found


def _inner(fields: Fields, name: str) -> Fields:
    inner = fields.get(name) or {}
    if not isinstance(inner, dict):
        raise ValueError(f"{name} must be an object, got {str(inner)[:60]}")
    return Fields(inner)


def _theirs(config: ImageTextConfig) -> Found:

    def named(activation: str) -> str:
        return activation if activation == "quick_gelu" else their_activation(activation)

    kept = {"projection_dim": config.d_shared}
    text = {"hidden_act": named(config.activation), "eos_token_id": _HIGHEST if config.end is None else config.end}
    image = {"hidden_act": named(config.image_activation)}
    return {
        **kept,
        "text_config": {"model_type": "clip_text_model", **written(config, TEXT), **text, **kept},
        "vision_config": {"model_type": "clip_vision_model", **written(config, IMAGE), **image, **kept},
        "logit_scale_init_value": config.log_scale,
    }


NAMES = """
text_model.embeddings.token_embedding     =  texts.embed.tokens
text_model.final_layer_norm               =  texts.encoder.final_norm
text_projection                           T  texts.projection
vision_model.embeddings.class_embedding   =  images.embed.class_token
vision_model.embeddings.patch_embedding   T  images.embed
vision_model.pre_layrnorm                 =  images.embed.norm
vision_model.post_layernorm               =  images.norm
visual_projection                         T  images.projection
logit_scale                               =  log_scale
SIDE.embeddings.position_embedding        =  OUR.embed.positions
SIDE.embeddings.position_ids              -
SIDE.encoder.layers.*.self_attn.(q,k,v,out)_proj T OUR.encoder.layers.*.self_attention.sublayer.(query,key,value,output)
SIDE.encoder.layers.*.mlp.(fc1,fc2)       T  OUR.encoder.layers.*.feed_forward.sublayer.(inner,output)
SIDE.encoder.layers.*.(layer_norm1,layer_norm2)  =  OUR.encoder.layers.*.(self_attention,feed_forward).norm
""".replace("SIDE", "(text_model,vision_model)").replace("OUR", "(texts,images)")

FAMILY = Family(
    "clip", "", ImageTextConfig, {"CLIPModel": BODY}, "", NAMES,
    more_ours=_ours, more_theirs=_theirs,
    adds="two encoders, of pictures and of texts, and a contrastive loss; a quick GELU",
    small={
        "text_config": {
            "vocab_size": 13, "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8,
            "num_hidden_layers": 1, "max_position_embeddings": 9, "eos_token_id": 5,
        },
        "vision_config": {
            "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10, "num_hidden_layers": 2,
            "image_size": 7, "patch_size": 3, "num_channels": 2,
        },
        "projection_dim": 6,
    },
    ignored="initializer_factor text_config_dict vision_config_dict",
    reads="pictures and texts",
)  # fmt: skip
