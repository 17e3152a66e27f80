# What users import: the names of core/training, and what other wings add.
from .core import training as _room
from .core.training import *  # noqa: F403
from .core.training import __doc__ as __doc__
from .ideas.after.muon import Muon, newton_schulz
from .run.machines.settings import TrainingSettings
from .run.machines.trainer import Outcome, Trainer
from .run.machines.workers import Workers

__all__ = ["Muon", "Outcome", "Trainer", "TrainingSettings", "Workers", "newton_schulz"]
__all__ += _room.__all__
__path__: list[str] = []  # so that Python asks moved.py about the files that were here
