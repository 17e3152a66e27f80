"""The two forms in which others publish models: a Hugging Face folder, and a .gguf file."""

from ...core.models.opening import FORMS, Form
from . import pretrained, tokenizers

FORMS += [
    Form(pretrained.is_folder, pretrained.of_folder, tokenizers.of_folder),
    Form(lambda path: path.suffix == ".gguf" and path.is_file(), pretrained.of_file, tokenizers.of_file),
]
