"""libmoe inside transformers: the experts of a model on the CPU, by libmoe.

    import libmoe.transformers as lt                             # pip install libmoe[transformers]

    model = lt.from_pretrained(AutoModelForCausalLM, DIR)        # experts from the files, never torch tensors

    model = AutoModelForCausalLM.from_pretrained(DIR, experts_implementation="libmoe")   # of a model's own tensors
    lt.prepare(model, free=True)                                 # all at once, and the dense tensors are given back

    lt.patch(model)                                              # a model that is loaded
    lt.status(model)                                             # who runs each layer, and why

Importing registers "libmoe" with transformers, by its public hooks; nothing is patched. What cannot work is an
exception that says what to do: train(), a backward pass, another dtype, save_pretrained() of experts that are no
tensors. A model may go to a GPU (`model.to("cuda")`): its experts stay here, and hidden states are copied. Several
threads may call a model at once. Copies of a model (copy.deepcopy) share the experts; when the last one goes, so do
they.

    _formulas  which activation a class has      _experts  the modules that run
    _parts     what a class's experts hold       _loading  from_pretrained
                                                 _models   prepare, patch, status, refresh, save
"""
from __future__ import annotations

import re as _re

import transformers as _transformers  # type: ignore[import-not-found,unused-ignore]

_NEEDED = (5, 17)
_found = tuple(int(number) for number in _re.findall(r"\d+", _transformers.__version__)[:2])
if _found < _NEEDED:
    raise ImportError(f"libmoe.transformers needs transformers {'.'.join(map(str, _NEEDED))} or newer, this is "
                      f"{_transformers.__version__}: pip install -U transformers")

from transformers.integrations import moe as _moe  # type: ignore[import-not-found,unused-ignore]  # noqa: E402

from . import _loading  # noqa: E402
from ._experts import LibmoeExperts, experts_forward  # noqa: E402
from ._formulas import Unsupported  # noqa: E402
from ._loading import LibmoeWarning, from_pretrained  # noqa: E402
from ._models import LayerStatus, patch, prepare, refresh, save, status  # noqa: E402

__all__ = ["LayerStatus", "LibmoeExperts", "LibmoeWarning", "Unsupported", "experts_forward", "from_pretrained",
           "patch", "prepare", "refresh", "save", "status"]

_moe.ALL_EXPERTS_FUNCTIONS.register("libmoe", experts_forward)
_loading.register()
