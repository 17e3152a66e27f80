"""`minitransformer export`: a trained model as a folder that Hugging Face opens."""

from typing import Any

from ..core.arrays.files import read_json
from ..core.layers import Module
from ..core.models.opening import Opened, opened
from ..ideas.published import save_pretrained
from . import Options


def main(options: Options) -> None:
    found: Opened[Any] = opened(options.model, Module, for_text=False)
    save_pretrained(found.model, options.folder, found.tokenizers)
    about = read_json(options.folder / "config.json")
    print(f"wrote {options.folder}, a {about['architectures'][0]}")
    if about["model_type"] == "qwen2":
        print("AutoTokenizer opens Qwen2's own tokenizer: open this one with PreTrainedTokenizerFast.from_pretrained")
