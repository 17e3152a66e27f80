"""Published models by name: as many parameters as Hugging Face's models of these sizes have, which allocate nothing."""

import pytest
import torch
import transformers

from minitransformer.ideas.published.families import FAMILIES
from minitransformer.ideas.published.presets import PRESETS


@pytest.mark.parametrize("name", PRESETS)
def test_as_many_parameters_as_theirs(name: str) -> None:
    preset = PRESETS[name]
    kind = next(theirs for theirs, head in FAMILIES[preset.family].architectures.items() if head == preset.head)
    with torch.device("meta"):
        theirs = getattr(transformers, kind)(transformers.CONFIG_MAPPING[preset.family](**preset.fields))
    learned = {id(p): p.numel() for p in theirs.parameters() if p.requires_grad}
    assert preset.parameters == sum(learned.values())
