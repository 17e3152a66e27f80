"""The two forms in which others publish models: a Hugging Face folder, and a .gguf file."""

from ...core.models.opening import FORMS, Form
from . import pretrained, tokenizers

FORMS += [  # a .json is a file of ours: one tokenizer
    Form(pretrained.is_folder, pretrained.of_folder, tokenizers.of_folder),
    Form(lambda path: path.is_file() and path.suffix != ".json", pretrained.of_file, tokenizers.of_file),
]
