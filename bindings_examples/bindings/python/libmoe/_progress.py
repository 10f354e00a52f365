"""What a long call does, and a bar that shows it."""
from __future__ import annotations

import importlib
import weakref
from typing import Any, Callable, NamedTuple

from ._abi import Phase, Unit


class Progress(NamedTuple):
    """What the running or last call with a Control does. Words that this package does not know are NONE."""
    phase: Phase
    unit: Unit  # of done and total
    done: int  # of the phase: what the progress function gets
    total: int  # 0 while unknown
    layer: int | None  # the model's number
    layers_done: int  # of a call for several layers
    layers_total: int
    bytes_done: int  # of the whole call: never goes back
    bytes_total: int


class TqdmProgress:
    """A bar of tqdm in bytes over the whole call, for one Control; see tqdm_progress."""

    def __init__(self, **options: Any) -> None:
        self._tqdm = importlib.import_module("tqdm.auto").tqdm
        self._options = {"unit": "B", "unit_scale": True, "unit_divisor": 1024, **options}
        self._state: Callable[[], Progress] | None = None
        self._bar: Any = None

    def _bind(self, control: Any) -> None:
        if self._state is not None:
            raise ValueError("progress: this bar has a Control already; make one for each")
        control = weakref.ref(control)  # the library keeps this object for the control
        self._state = lambda: control().state

    def __call__(self, done: int, total: int) -> None:
        assert self._state is not None
        state = self._state()
        if self._bar is not None and state.bytes_done < self._bar.n:  # another call
            self.close()
        if self._bar is None:
            self._bar = self._tqdm(total=state.bytes_total or None, **self._options)
        self._bar.total = state.bytes_total or None
        text = state.phase.name.lower() if state.layer is None else f"{state.phase.name.lower()} layer {state.layer}"
        if self._bar.desc != text + ": ":
            self._bar.set_description(text, refresh=False)
        self._bar.update(state.bytes_done - self._bar.n)

    def close(self) -> None:
        """Leaves the bar as it is; Control.close() does it, too."""
        bar, self._bar = self._bar, None
        if bar is not None:
            bar.close()

    def __repr__(self) -> str:
        return f"<libmoe.TqdmProgress {'no call' if self._bar is None else self._bar}>"


def tqdm_progress(**options: Any) -> TqdmProgress:
    """The `progress` of a Control that shows a bar of tqdm, which is imported now; options such as leave=False are
    tqdm's. `progress="tqdm"` is the same without options."""
    return TqdmProgress(**options)
