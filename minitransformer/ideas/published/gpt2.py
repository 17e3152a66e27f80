"""GPT-2: Radford et al. 2019, "Language Models are Unsupervised Multitask Learners", section 2.3.

A causal stack alone; norms before the sub-layers, and one more after the last; learned positions, GELU.
"""

from ...core.models.language_model import LanguageModelConfig
from .family import BODY, CLASSES, READERS, WORDS, Family, InGguf, classes
from .fields import small
from .heads import TOKENS

FIELDS = """
vocab_size             size        vocabulary
n_positions            size        max_length
n_embd                 size        d_model
n_head                 size        n_heads
n_layer                size        n_layers
resid_pdrop            rate        dropout
attn_pdrop             rate        attention_dropout
activation_function    activation  activation           "gelu_new"
layer_norm_epsilon     positive    norm_eps             1e-5
tie_word_embeddings    flag        tie_output           true
"""
NAMES = """
wte                =  tokens
wpe                =  embed.positions
h.*.(ln_1,ln_2)    =  stack.layers.*.(self_attention,feed_forward).norm
h.*.attn.c_attn    =  stack.layers.*.self_attention.sublayer.query|key|value
h.*.attn.c_proj    =  stack.layers.*.self_attention.sublayer.output
h.*.mlp.(c_fc,c_proj)  =  stack.layers.*.feed_forward.sublayer.(inner,output)
ln_f               =  stack.final_norm
h.*.attn.(bias,masked_bias)  -
/lm_head           =  output
/lm_head           ~  tokens
"""
# llama.cpp, convert_hf_to_gguf.py, GPT2Model: its maps are stored (out, in), as those of other families.
GGUF = """
blk.*.attn_(qkv,output)  T  h.*.attn.(c_attn,c_proj)
blk.*.ffn_(up,down)      T  h.*.mlp.(c_fc,c_proj)
"""
_ENDS = {"Model": BODY, "LMHeadModel": WORDS, "ForSequenceClassification": CLASSES, **READERS}
FAMILY = Family(
    "gpt2", "transformer", LanguageModelConfig, classes("GPT2", _ENDS), FIELDS, NAMES,
    only={"scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False},
    more_ours=lambda fields, found, head, stored: {"d_ff": fields.size("n_inner", 4 * found["d_model"])},
    more_theirs=lambda config: {"n_inner": config.d_ff, "embd_pdrop": config.dropout},
    adds="pre-norm order, a causal stack alone",
    heads={TOKENS: "classifier"},
    in_gguf=InGguf(GGUF, fields="n_inner = intermediate_size"),
    small=small(FIELDS, bos_token_id=None, eos_token_id=None),
    ignored="n_ctx n_special predict_special_tokens summary_* reorder_and_upcast_attn",
)  # fmt: skip
