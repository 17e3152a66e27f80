"""Families that are not here: what opens refuses the config.json that the library writes, and names what is missing."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import transformers

from minitransformer.ideas.published.families import EVERY
from minitransformer.ideas.published.unknown import UNKNOWN
from minitransformer.models import load

KNOWN = [name for name in UNKNOWN if name not in EVERY]
COMMON = """
apertus arcee bamba cohere2 deepseek_v32 dots1 ernie4_5_moe exaone4 falcon falcon_h1 gemma3n gemma4 glm4_moe
glm4_moe_lite gpt_bigcode gpt_neo gptj granitemoe hunyuan_v1_dense jamba llama4 mamba minimax mpt nemotron olmo
openai-gpt phimoe qwen2_moe recurrent_gemma rwkv stablelm starcoder2 xglm zamba2
""".split()
BY_FIELDS = {  # none of them has a line: a word of what their fields say
    "llava": "images beside the text (vision_config)", "longformer": "windows beside tokens that see",
}  # fmt: skip


def refusal(name: str, folder: Path, **changes: Any) -> str:
    """The error on a folder without weights: it comes before they are read."""
    document = transformers.CONFIG_MAPPING[name]().to_dict() | changes
    (folder / "config.json").write_text(json.dumps(document, default=str))
    with pytest.raises(ValueError, match=re.escape(str(folder / "config.json"))) as caught:
        load(folder)
    return str(caught.value)


def test_a_family_that_is_known_is_refused_by_its_mathematics(tmp_path: Path) -> None:
    for name in KNOWN:
        if name not in transformers.CONFIG_MAPPING:
            continue
        error = refusal(name, tmp_path)
        assert error.endswith(f"got {name!r}; what is missing here: {UNKNOWN[name]}") and "\n" not in error
    assert set(COMMON) <= {*KNOWN, *EVERY} and set(COMMON) <= {*transformers.CONFIG_MAPPING}


@pytest.mark.parametrize("name, field", [("olmo", "clip_qkv"), ("mpt", "attn_config"), ("dbrx", "attn_config")])
def test_limits_on_queries_are_named_where_the_config_asks_for_them(name: str, field: str, tmp_path: Path) -> None:
    asked = refusal(name, tmp_path, **{field: 8.0 if field == "clip_qkv" else {"clip_qkv": 8.0}})
    assert asked.count("limits on the numbers of queries, keys and values") == 1
    assert ("limits on" in refusal(name, tmp_path)) == (name == "dbrx")


@pytest.mark.parametrize("name", BY_FIELDS)
def test_another_is_refused_by_its_fields(name: str, tmp_path: Path) -> None:
    assert f"what is missing here, by its fields: {BY_FIELDS[name]}" in refusal(name, tmp_path)
    assert "nothing is known here about this family" in refusal("prophetnet", tmp_path)
