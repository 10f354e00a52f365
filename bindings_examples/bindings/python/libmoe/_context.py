"""What a program lends to the calls: threads, memory, a log; progress and cancellation."""
from __future__ import annotations

import contextlib
import ctypes
import json
import threading
from typing import Any, Callable, Iterator, Union

from . import _abi as abi
from ._abi import LogLevel, Phase, Status, Unit
from ._errors import failure
from ._handle import (Gate, Handle, Raised, callback, call, cause_of, check_function, counted, encode, immortal,
                      integer, interruptible, invoke, json_of, kept, size_text, text_of)
from ._progress import Progress, TqdmProgress

ProgressFunction = Callable[[int, int], object]
ProgressLike = Union[ProgressFunction, str, None]


@callback(abi.moe_release_fn)
def release(number: int) -> None:
    """Given to the library with everything that it keeps."""
    kept.pop(number)


class Control(Handle):
    """Progress and cancellation of long calls: open, convert, save, load, apply. One may serve several calls.

    `progress(done, total)` is called now and then on the thread that made the call, total 0 while unknown; what it
    raises stops the call. It may ask `state`. "tqdm" or tqdm_progress() shows a bar. cancel() stops the call from any
    thread: it raises Cancelled, and so do later ones. Ctrl-C in the main thread cancels the control of its call.
    """
    _kind = "control"
    _bar: TqdmProgress | None = None

    def __init__(self, progress: ProgressLike = None) -> None:
        self._check_new()
        if isinstance(progress, str) and progress == "tqdm":
            progress = TqdmProgress()
        if progress is not None and not callable(progress):
            raise TypeError(f'progress: expected a function or "tqdm", got {type(progress).__name__}')
        if isinstance(progress, TqdmProgress):
            progress._bind(self)
            self._bar = progress
        raised = Raised()
        self._raised = [raised]
        number = kept.add((progress, raised))
        self._create("moe_control_create", _progress if progress else abi.moe_progress_fn(), number, release)

    def cancel(self) -> None:
        invoke("moe_control_cancel", self)

    @property
    def progress(self) -> tuple[int, int]:
        """Work done and in total, of the running or last call."""
        done, total = ctypes.c_uint64(), ctypes.c_uint64()
        invoke("moe_control_progress", self, ctypes.byref(done), ctypes.byref(total))
        return done.value, total.value

    @property
    def state(self) -> Progress:
        """All about the running or last call; may be asked from any thread and in the progress function."""
        it = abi.moe_progress(struct_size=ctypes.sizeof(abi.moe_progress))
        call("moe_control_state", self, ctypes.byref(it))
        known = it.phase in Phase._value2member_map_, it.unit in Unit._value2member_map_
        return Progress(Phase(it.phase) if known[0] else Phase.NONE, Unit(it.unit) if known[1] else Unit.NONE,
                        it.done, it.total, None if it.layer < 0 else it.layer, it.layers_done, it.layers_total,
                        it.bytes_done, it.bytes_total)

    def close(self) -> None:
        super().close()
        if self._bar is not None:
            self._bar.close()

    def _says(self) -> str:
        it = self.state
        if it.phase is Phase.NONE:
            return "idle"
        return (f"{it.phase.name.lower()}{'' if it.layer is None else f' layer {it.layer}'}, "
                f"{size_text(it.bytes_done)} of {size_text(it.bytes_total)}")

    def report(self, done: int, total: int = 0) -> None:
        """For your own part of a long call, such as a weight source: raises Cancelled when it shall stop."""
        status = invoke("moe_control_report", self, done, total)  # it has no error object
        cause = cause_of((self,))
        if status:
            raise failure(status, "control", "the call shall stop") from cause


@contextlib.contextmanager
def controlled(control: Control | None, progress: ProgressLike = None) -> Iterator[Control | None]:
    """The control of a long call, or one that is made for its `progress` or for Ctrl-C."""
    if control is not None and progress is not None:
        raise TypeError("progress: expected None beside a control, which has its own")
    if control is not None or progress is None and not interruptible():
        yield control
    else:
        with Control(progress) as made:
            yield made


@callback(abi.moe_progress_fn)
def _progress(number: int, done: int, total: int) -> int:
    progress, raised = kept[number]
    try:
        progress(done, total)
    except BaseException as error:
        raised.append(error)
        return Status.CALLBACK
    return Status.OK


class Task:
    """What a parallel_for gets: task(i) does the i-th part, on any thread, until parallel_for returns."""

    def __init__(self, function: Any, argument: int | None) -> None:
        self._function, self._argument, self._gate = function, argument, Gate("task")

    def __repr__(self) -> str:
        return f"<libmoe.Task {'closed' if self._gate.closed else 'open'}>"

    def __call__(self, index: int) -> None:
        running = threading.Lock()
        with running:
            try:
                self._gate.enter(running)
                self._function(self._argument, index)
            finally:
                self._gate.leave(running)


@callback(abi.moe_parallel_ops_parallel_for)
def _parallel_for(number: int, count: int, function: Any, argument: int | None) -> None:
    parallel_for, raised = kept[number]
    task = Task(function, argument)
    try:
        parallel_for(count, task)
    except BaseException as error:  # the library sees what is not done
        raised.append(error)
    finally:
        task._gate.close()


@callback(abi.moe_log_fn)
def _log(number: int, level: int, component: bytes, message: int, size: int) -> None:
    kept[number](LogLevel(level), component.decode(), ctypes.string_at(message, size).decode())


class Context(Handle):
    """Threads, memory and log of one embedding program, by default a thread for each core; None means one thread.

    options: those of moe_context_create, such as threads=4 or log_level="debug". Functions that it may lend:
    log(level, component, message) is called from any thread of the library and must not call libmoe;
    parallel_for(count, task) runs task(i) once for each i below count, on any threads, and returns when all are done,
    `num_threads` says how many can run at once; `allocator` is a filled-in moe_allocator_ops of ctypes.
    """
    _kind = "context"

    def __init__(self, *, log: Callable[[LogLevel, str, str], object] | None = None,
                 parallel_for: Callable[[int, Task], object] | None = None, num_threads: int = 1,
                 allocator: abi.moe_allocator_ops | None = None, **options: Any) -> None:
        self._check_new()
        check_function(log, "log")
        check_function(parallel_for, "parallel_for")
        if allocator is not None and not isinstance(allocator, abi.moe_allocator_ops):
            raise TypeError(f"allocator: expected a moe_allocator_ops, got {type(allocator).__name__}")
        document, threads = encode(options, "options"), integer(num_threads, "num_threads", ctypes.c_int32)
        # From here on nothing fails before the library has what it is to keep.
        callbacks = abi.moe_context_callbacks(struct_size=ctypes.sizeof(abi.moe_context_callbacks))
        if log is not None:
            callbacks.log, callbacks.log_user, callbacks.log_destroy = _log, kept.add(log), release
        if parallel_for is not None:
            raised = Raised()
            self._raised = [raised]
            callbacks.parallel = ctypes.pointer(abi.moe_parallel_ops(
                struct_size=ctypes.sizeof(abi.moe_parallel_ops), num_threads=threads, parallel_for=_parallel_for,
                user=kept.add((parallel_for, raised)), destroy=release))
        if allocator is not None:
            callbacks.allocator = ctypes.pointer(immortal(allocator))  # its functions are called until the very end
        self._create("moe_context_create", *document, ctypes.byref(callbacks))

    def _says(self) -> str:
        return counted(self.report()["threads"], "thread")

    def take_log(self) -> list[dict[str, Any]]:
        """The messages since the last call, also without a `log` function."""
        return [json.loads(line) for line in text_of("moe_context_take_log", self).splitlines()]

    def report(self) -> dict[str, Any]:
        """Threads and CPUs after resolution; all backends with layouts, formats and needed instruction sets."""
        answer: dict[str, Any] = json_of("moe_context_to_json", self)
        return answer
