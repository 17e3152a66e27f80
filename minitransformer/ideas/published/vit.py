"""ViT: Dosovitskiy et al. 2020, "An Image is Worth 16x16 Words: Transformers for Image Recognition at Scale".

The encoder of a Transformer whose words are patches of a picture (section 3.1): a linear map of the pixels of each, a
class token before them, learned positions, pre-norm order. A field image_size of two numbers is (height, width).
"""

from .family import BODY, CLASSES, Family, Found, Stored
from .fields import Fields
from .images import ImageEncoderConfig, pair

FIELDS = """
num_channels                    size        channels             3
hidden_size                     size        d_model              768
num_attention_heads             size        n_heads              12
intermediate_size               size        d_ff                 3072
num_hidden_layers               size        n_layers             12
hidden_dropout_prob             rate        dropout
attention_probs_dropout_prob    rate        attention_dropout
hidden_act                      activation  activation           "gelu"
layer_norm_eps                  positive    norm_eps             1e-12
qkv_bias                        flag        bias                 true
"""


def _ours(fields: Fields, found: Found, head: str, stored: Stored) -> Found:
    """The file shows whether there is a pooled vector, and how many classes."""
    fields.only(pooler_output_size=found["d_model"])
    (height, width), patch = pair(fields, "image_size", 224), pair(fields, "patch_size", 16)
    n_classes = None
    if head == CLASSES:
        if "classifier.weight" not in stored or len(stored["classifier.weight"].shape) != 2:
            raise ValueError("classifier.weight must be the matrix (classes, width) of the head")
        n_classes = stored["classifier.weight"].shape[0]
    return {
        "image_height": height, "image_width": width, "patch_height": patch[0], "patch_width": patch[1],
        "pooled": head == CLASSES or not stored or "pooler.dense.weight" in stored, "n_classes": n_classes,
    }  # fmt: skip


def _theirs(config: ImageEncoderConfig) -> Found:
    sizes = [config.image_height, config.image_width], [config.patch_height, config.patch_width]
    image, patch = (size[0] if size[0] == size[1] else size for size in sizes)
    return {"image_size": image, "patch_size": patch}


NAMES = """
embeddings.cls_token                                   1x1  embed.class_token
embeddings.position_embeddings                         row  embed.positions.table
embeddings.patch_embeddings.projection                 T    embed
encoder.layer.*.attention.attention.(query,key,value)  T    encoder.layers.*.self_attention.sublayer.(query,key,value)
encoder.layer.*.attention.output.dense                 T    encoder.layers.*.self_attention.sublayer.output
encoder.layer.*.layernorm_(before,after)               =    encoder.layers.*.(self_attention,feed_forward).norm
encoder.layer.*.(intermediate,output).dense            T    encoder.layers.*.feed_forward.sublayer.(inner,output)
layernorm                                              =    encoder.final_norm
pooler.dense                                           T    pool.dense
/classifier                                            T    head
embeddings.mask_token                                  -
"""

FAMILY = Family(
    "vit", "vit", ImageEncoderConfig, {"ViTModel": BODY, "ViTForImageClassification": CLASSES}, FIELDS, NAMES,
    only={"pooler_act": "tanh"}, more_ours=_ours, more_theirs=_theirs,
    adds="patches of a picture in place of tokens, a class token, pre-norm order",
    small={
        "hidden_size": 12, "num_attention_heads": 3, "intermediate_size": 8, "num_hidden_layers": 2,
        "image_size": [6, 9], "patch_size": [3, 2], "num_channels": 2,
    },
    ignored="encoder_stride",
    reads="pictures",
)  # fmt: skip
