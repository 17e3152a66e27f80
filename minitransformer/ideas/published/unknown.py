"""Families that cannot be opened, and what is missing here: a part of their mathematics, or a file of theirs alone.

A line is not read any more once a file here is the family's. Of a family without a line, the fields of its config.json
may say something.
"""

from collections.abc import Mapping
from typing import Any

_FILE = "a file in published/, though every part is here: {}"
_BETWEEN = _FILE.format("rotary positions that turn neighbouring numbers of a head")
_BESIDE = "attention and feed-forward network side by side"
_MAMBA = "Mamba's selective state space, where each number of the state fades at its own rate"
_STATES = "layers of a state space, in a stack that is not here"
_DELTA = "layers of the gated delta rule with a short convolution, in a stack that is not here"
_IMAGES = "images, and positions of three coordinates: time, height and width"
_DEEP = f"{_IMAGES}; vectors of the images that are added to the first layers"
_PER_LAYER = "embeddings of tokens for each layer, and layers that share keys and values"
_BY_POSITION = "queries scaled by their position"
_CHUNKS = f"attention in chunks, {_BY_POSITION}, experts whose gates scale what they read"
_SPARSE = "sparse attention: an indexer chooses the keys that each query sees"
_LIMITS = "limits on the numbers of queries, keys and values"
_SIGMOIDS = "experts chosen by sigmoids as in DeepSeek-V3"
_SCALED = "a factor for each layer, norms of values, keys that serve as values in some layers"
_SINES = _FILE.format("a decoder in pre-norm order with sines as positions, whose embedding is scaled")
_QK = "norms of queries and keys"
_QK_AFTER = "norms of queries and keys after the rotation, whose base a factor stretches"

UNKNOWN = {
    "afmoe": _FILE.format(f"an output gate, norms before and after each sub-layer, {_QK}, {_SIGMOIDS}"),
    "apertus": "xIELU, an activation that is quadratic above 0 and learns two numbers in each layer",
    "arcee": _FILE.format("a Llama whose feed-forward network has ReLU² and no gate"),
    "arctic": "a feed-forward network beside the experts, each with a residual connection of its own",
    "bamba": _FILE.format("Mamba-2 and attention with rotary positions in a part of each head, layer by layer"),
    "biogpt": _FILE.format("a decoder with learned positions, in pre-norm order, whose embedding is scaled"),
    "bitnet": "weights of three values, and a norm inside each sub-layer, before its last map",
    "codegen": f"{_BETWEEN}, {_BESIDE}",
    "cohere": f"{_BETWEEN}, {_BESIDE}, scaled logits, LayerNorm without β",
    "cohere2": f"{_BETWEEN}, {_BESIDE}, scaled logits, LayerNorm without β, windows in most layers",
    "cohere2_moe": f"{_BETWEEN}, {_BESIDE}, scaled logits, experts beside one that all tokens use",
    "ctrl": _SINES,
    "cwm": _FILE.format("a Llama with a window in three of four layers"),
    "dbrx": _LIMITS,
    "deberta": "separate scores for content and position",
    "deberta-v2": "separate scores for content and position",
    "deepseek_v32": _SPARSE,
    "deepseek_v4": "compressed keys and values, several residual streams that mix",
    "diffllama": _FILE.format("differential attention in a Llama"),
    "doge": "a mask that the values make, which chooses keys for each query",
    "dots1": _FILE.format(f"a Qwen3 with windows and {_SIGMOIDS}"),
    "ernie4_5": _BETWEEN,
    "ernie4_5_moe": f"{_BETWEEN}, experts chosen by a softmax plus a bias, beside those that all tokens use",
    "exaone": _FILE.format("a Llama, whose tensors have other names"),
    "exaone4": _FILE.format("norms after each sub-layer and of queries and keys, layers without positions"),
    "exaone_moe": _FILE.format(f"an EXAONE 4 with {_SIGMOIDS}"),
    "falcon": _FILE.format(f"{_BESIDE}, shared key heads in one matrix"),
    "falcon_h1": "attention and Mamba-2 side by side in each layer, and a factor for each of their parts",
    "falcon_mamba": f"{_MAMBA}, with norms of what it is made of",
    "flex_olmo": _FILE.format("an OLMo 2 with OLMoE's experts"),
    "fnet": "a Fourier transform in place of attention",
    "gemma3n": _PER_LAYER,
    "gemma3n_text": _PER_LAYER,
    "gemma4": _PER_LAYER,
    "gemma4_text": _PER_LAYER,
    "gemma4_unified": f"images and sound before the text; {_SCALED}",
    "gemma4_unified_text": _SCALED,
    "glm": f"{_BETWEEN}, in a part of it",
    "glm4": f"{_BETWEEN}, in a part of it, norms before and after each sub-layer",
    "glm4_moe": _FILE.format(f"rotary positions in a part of each head, {_SIGMOIDS}"),
    "glm4_moe_lite": _FILE.format("a DeepSeek-V3 whose config.json says which layers have experts"),
    "glm_moe_dsa": _SPARSE,
    "gpt_bigcode": _FILE.format("a GPT-2 whose heads share keys and values"),
    "gpt_neo": _FILE.format("scores that are not scaled, windows in every second layer"),
    "gptj": _BETWEEN,
    "granitemoe": _FILE.format("factors as in Granite, experts in every layer"),
    "granitemoeshared": _FILE.format("factors as in Granite, experts in every layer beside one that all tokens use"),
    "helium": _BETWEEN,
    "hunyuan_v1_dense": _FILE.format(_QK_AFTER),
    "hunyuan_v1_moe": _FILE.format(f"{_QK_AFTER}; experts beside one that all tokens use"),
    "hyperclovax": _FILE.format("a Granite with norms after its sub-layers as well"),
    "internlm3": _FILE.format("a Llama with biases of its own choice"),
    "jais2": _FILE.format("a Llama with LayerNorm, biases, and a feed-forward network of ReLU² without a gate"),
    "jamba": f"{_MAMBA}, in most layers",
    "jetmoe": "attention whose maps of queries and outputs are experts, chosen for each token",
    "lfm2_moe": _FILE.format(f"an LFM2 with {_SIGMOIDS}"),
    "llama4": f"images before the text, {_CHUNKS}",
    "llama4_text": _CHUNKS,
    "longcat_flash": "two attentions in each layer, and experts beside them, some of which do nothing",
    "m2m_100": _FILE.format("a Pegasus with the sines of Whisper, from row 2 on"),
    "mamba": _MAMBA,
    "mimo_v2_flash": f"values of another width than keys, sinks in layers with windows, {_SIGMOIDS}",
    "minicpm3": _FILE.format("latent attention in a Llama, and factors of embedding, layers and logits"),
    "minimax": "linear attention that forgets, in most layers",
    "minimax_m2": _FILE.format(f"norms over all queries and all keys, rotary positions in a part, {_SIGMOIDS}"),
    "ministral3": _BY_POSITION,
    "mistral4": _BY_POSITION,
    "modernbert-decoder": _FILE.format("a ModernBERT whose tokens see those before them"),
    "mpnet": _FILE.format("a BERT with a relative position bias as in T5, which its layers share"),
    "mpt": _FILE.format("ALiBi without any biases, those of LayerNorm included"),
    "nemotron": _FILE.format("a gain of LayerNorm that counts from 1, ReLU², rotary positions in a part of each head"),
    "nemotron_h": _FILE.format("layers of one sub-layer: Mamba-2, attention without positions, or ReLU²"),
    "olmo": "a LayerNorm that has neither γ nor β",
    "openai-gpt": _FILE.format("a GPT-2 with norms after each sub-layer, and none at the end"),
    "persimmon": "a LayerNorm of each head's queries and keys",
    "phi4_multimodal": "images and sound beside the text, with low-rank maps that they add to the layers",
    "phimoe": "experts that are chosen one after the other, each from those whose scores are near the largest",
    "qwen2_5_vl": _IMAGES,
    "qwen2_moe": "a gate for the expert that every token uses",
    "qwen2_vl": _IMAGES,
    "qwen3_5_moe": f"images before the text; {_FILE.format('a Qwen3.5 with the experts of Qwen3-Next')}",
    "qwen3_5_moe_text": _FILE.format("a Qwen3.5 with the experts of Qwen3-Next"),
    "qwen3_vl": _DEEP,
    "qwen3_vl_moe": _DEEP,
    "recurrent_gemma": "a gated linear recurrence in place of attention in most layers",
    "rwkv": "a recurrence in place of attention",
    "solar_open": _FILE.format(f"a Llama with {_SIGMOIDS}"),
    "stablelm": _FILE.format("a Llama with LayerNorm and rotary positions in a part of each head"),
    "starcoder2": _FILE.format("a Llama with LayerNorm, biases, and a feed-forward network without a gate"),
    "t5gemma": _FILE.format("Gemma 2's layers in an encoder and a decoder"),
    "umt5": "a relative position bias in every layer",
    "vaultgemma": _FILE.format("a Gemma 2 without norms after its sub-layers"),
    "xglm": _SINES,
    "xlnet": "tokens predicted in a permuted order, by two streams of attention",
    "xlstm": "the recurrences of xLSTM, one with a matrix for a memory",
    "youtu": _FILE.format("a DeepSeek-V3 without experts"),
    "zamba": f"{_MAMBA}; one block of attention that several places of the stack share",
    "zamba2": "one block of attention that several places of a stack of Mamba-2 share, each with low-rank maps",
}
_SIGNS = {  # fields of config.json that say what a family has, whatever its name is
    "vision_config": "images beside the text",
    "audio_config": "sound beside the text",
    "hidden_size_per_layer_input": "embeddings of tokens for each layer",
    "num_kv_shared_layers": "layers that share keys and values",
    "index_topk": _SPARSE,
    "attention_chunk_size": "attention in chunks",
    "linear_conv_kernel_dim": _DELTA,
    "mamba_d_state": _STATES,
    "ssm_state_size": _STATES,
    "state_size": _STATES,
    "attention_window": "windows beside tokens that see the whole text",
}


def missing(family: Any, document: Mapping[str, Any] | None = None) -> str:
    """What is missing for a family, as far as its name says it, or else the fields of its config.json.

    Another name would be a guess, so none is advised.
    """
    if isinstance(family, str) and family in UNKNOWN:
        what, inside = UNKNOWN[family], (document or {}).get("attn_config")
        limited = any(isinstance(each, Mapping) and each.get("clip_qkv") for each in (document, inside))
        return f"what is missing here: {what}" + (f"; {_LIMITS}" if limited and what != _LIMITS else "")
    signs = [f"{what} ({name})" for name, what in _SIGNS.items() if (document or {}).get(name)]
    if signs:
        return f"what is missing here, by its fields: {', '.join(signs)}"
    return "nothing is known here about this family; CONTRIBUTING.md says how to add one"
