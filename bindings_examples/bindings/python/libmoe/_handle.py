"""Owned objects of the library, and the calls that use them."""
from __future__ import annotations

import atexit
import contextlib
import ctypes
import itertools
import json
import operator
import os
import threading
import weakref
from typing import Any, Callable, Iterable, Iterator, Sequence, TypeVar

from ._abi import PROTOTYPES, Pointer, Status
from ._errand import Errand, answered, caller
from ._errors import Error, failure
from ._library import lib

T = TypeVar("T")
Self = TypeVar("Self", bound="Handle")


class Gate:
    """Counts the calls that use something, so that closing it can wait for them.

    What a thread uses it cannot close itself, as a signal handler or a callback may try: that is Busy.
    """

    def __init__(self, what: str) -> None:
        self.what, self.closed = what, False
        self._calls: dict[threading.Lock, tuple[int, int]] = {}  # locked until the call has ended -> who makes it

    def enter(self, running: threading.Lock) -> None:
        self._calls[running] = _who()  # before `closed` is read, as close() sets it before it reads _calls
        if self.closed:
            raise failure(Status.INVALID_HANDLE, self.what, f"this {self.what} is closed")

    def leave(self, running: threading.Lock) -> None:
        self._calls.pop(running, None)

    def used(self) -> bool:
        return any(process == os.getpid() for process, _ in self._calls.copy().values())

    def close(self) -> None:
        me = _who()
        if me in self._calls.copy().values():
            raise failure(Status.BUSY, self.what, f"this {self.what} is in use by the thread that closes it")
        self.closed = True
        for running, (process, _) in self._calls.copy().items():
            if process == me[0]:  # fork() leaves behind the calls of threads that the child does not have
                with running:
                    pass


def _who() -> tuple[int, int]:
    return os.getpid(), caller()


class _TooLate(BaseException):
    """The interpreter exits."""


class _Exit(Gate):
    """Closed when the interpreter exits: it waits for the calls that daemon threads make, and they begin no others.

    A thread that needs the interpreter lock later is ended by Python: within a callback of the library that would end
    the process. What a callback itself calls goes on, since its own call waits for it.
    """

    def enter(self, running: threading.Lock) -> None:
        self._calls[running] = _who()
        if self.closed and threading.current_thread() is not threading.main_thread():
            if not getattr(_callbacks, "depth", 0):
                raise _TooLate


_callbacks = threading.local()  # depth: how many this thread is in
_exit = _Exit("library")
atexit.register(_exit.close)


class Owner:
    """The one owner of an object of the library: it ends when this and all views into its memory are gone."""
    __slots__ = ("pointer", "__weakref__")

    def __init__(self, kind: str, pointer: ctypes.c_void_p) -> None:
        self.pointer = pointer
        end = weakref.finalize(self, _destroy, f"moe_{kind}_destroy", pointer)
        end.atexit = False  # a daemon thread may still be in a call


def _destroy(name: str, pointer: ctypes.c_void_p) -> None:
    running = threading.Lock()
    with running:
        try:
            _exit.enter(running)
            getattr(lib, name)(pointer)
        except _TooLate:
            pass
        finally:
            _exit.leave(running)


class Raised(threading.local):
    """What functions raised that run on the thread of their call: other calls with the object, at once, have their own."""

    def __init__(self) -> None:
        self._all: list[BaseException] = []

    def append(self, error: BaseException) -> None:
        self._all.append(error)

    def pop(self) -> BaseException:
        return self._all.pop()


class Handle:
    """One object of the library; `close` ends it, else the end of a `with` block, else the collector.

    close() waits for the calls that use the object in other threads, but for none that may wait for the callback that
    calls it: that is Busy; a later call with it is InvalidHandle, a
    second close() does nothing. Views into its memory stay valid. There are no copies: two owners would end one
    object twice.
    """
    _kind = ""  # "layer"
    _gate: Gate
    _owner: Owner | None
    _raised: list[Raised | list[BaseException]]

    def __new__(cls: type[Self], *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        self._gate = Gate(cls._kind)
        self._gate.closed = True  # until there is an object
        self._owner = None
        self._raised = []  # where its callbacks leave what they raised
        return self

    def _create(self, name: str, *arguments: Any, using: Sequence[Handle | None] = (), given: int | None = None,
                stop: Any = None) -> None:
        """Calls the function that makes the object and takes it; `given`: the number of what the library is to keep."""
        pointer = ctypes.c_void_p()
        try:
            self._check_new()
            call(name, *arguments, ctypes.byref(pointer), using=using, stop=stop)
        finally:  # also when a callback's exception passes
            if pointer:
                self._own(pointer)
            elif given is not None:
                kept.pop(given)  # a library that was asked has released it

    def _check_new(self) -> None:
        """__init__ called again would end what a running call uses."""
        if "_made" in self.__dict__:
            raise failure(Status.STATE, self._kind, f"this {self._kind} was made before; make a new one")

    def _own(self, pointer: ctypes.c_void_p) -> None:
        owner = Owner(self._kind, pointer)
        if self.__dict__.setdefault("_made", mine := object()) is not mine:  # by another thread, meanwhile
            self._check_new()
        self._owner = owner
        self._gate.closed = False

    @classmethod
    def adopt(cls: type[Self], address: int) -> Self:
        """Takes over an object that was made by calls of `libmoe.lib`; it is ended like any other."""
        if not isinstance(address, int) or not address:
            raise TypeError(f"expected the address of a {cls._kind}, got {address!r}")
        self = cls.__new__(cls)
        self._own(ctypes.c_void_p(address))
        return self

    @contextlib.contextmanager
    def raw(self) -> Iterator[ctypes.c_void_p]:
        """The pointer, for calls of `libmoe.lib`; the object stays open within the block."""
        running = threading.Lock()
        with running:
            try:
                yield self._enter(running)
            finally:
                self._gate.leave(running)

    def _enter(self, running: threading.Lock) -> ctypes.c_void_p:
        self._gate.enter(running)
        assert self._owner is not None
        return self._owner.pointer

    def close(self) -> None:
        if getattr(_callbacks, "depth", 0) and self._gate.used():  # on a thread of the library, perhaps
            raise failure(Status.BUSY, self._kind,
                          f"this {self._kind} is in use by a call that may wait for the function that closes it")
        self._gate.close()
        self._owner = None

    def _says(self) -> str:
        """What an open object says about itself in its repr."""
        raise NotImplementedError

    def __repr__(self) -> str:
        try:
            what = self._says()
        except Error as error:  # closed, perhaps meanwhile, or used by another call
            what = "closed" if self.closed else error.message
        return f"<libmoe.{type(self).__name__} {what}>"

    @property
    def closed(self) -> bool:
        return self._gate.closed

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError(f"a {type(self).__name__} cannot be copied or pickled: it owns an object of libmoe; "
                        "threads may share it, other processes make their own")


def invoke(name: str, *arguments: Any, using: Sequence[Handle | None] = ()) -> Any:
    """Calls a function of the library; the handles among its arguments, and in `using`, stay open meanwhile."""
    _, types, names = PROTOTYPES[name]
    entered: list[Handle] = []
    running = threading.Lock()
    try:
        with running:
            try:
                _exit.enter(running)
                raw = list(arguments)
                for i, (argument, expected) in enumerate(zip(arguments, types)):
                    if isinstance(expected, Pointer):
                        if argument is not None and not isinstance(argument, ctypes.c_void_p):
                            check_kind(argument, expected.kind, names[i])
                            entered.append(argument)
                            raw[i] = argument._enter(running)
                    elif expected in _RANGES:
                        raw[i] = integer(argument, names[i], expected)
                for handle in using:
                    if handle is not None:
                        entered.append(handle)
                        handle._enter(running)
                return getattr(lib, name)(*raw)
            finally:
                _exit.leave(running)
                for handle in entered:
                    handle._gate.leave(running)
    except _TooLate:
        threading.Event().wait()  # Python ends the thread here
        raise


def check_kind(argument: Any, kind: str, name: str) -> None:
    if not isinstance(argument, Handle) or argument._kind != kind:
        raise TypeError(f"{name}: expected a {kind.capitalize()} of libmoe, got {type(argument).__name__}")


def check_function(value: Any, name: str) -> None:
    if value is not None and not callable(value):
        raise TypeError(f"{name}: expected a function, got {type(value).__name__}")


_RANGES = {ctypes.c_int32: (-2**31, 2**31 - 1), ctypes.c_int64: (-2**63, 2**63 - 1), ctypes.c_uint64: (0, 2**64 - 1),
           ctypes.c_size_t: (0, 2**64 - 1)}


def integer(value: Any, name: str, kind: Any = ctypes.c_uint64) -> int:
    """A number that fits its C type; ctypes would cut it."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name}: expected an integer, got {type(value).__name__}") from None
    first, last = _RANGES[kind]
    if not first <= number <= last:
        raise ValueError(f"{name}: expected {first} to {last}, got {number}")
    return number


def interruptible() -> bool:
    """Whether a long call needs a thread of its own, see Errand. While the interpreter exits there is none."""
    return threading.current_thread() is threading.main_thread() and not _exit.closed


def call(name: str, *arguments: Any, using: Sequence[Handle | None] = (), stop: Any = None) -> None:
    """Calls a fallible function and raises what it reports.

    What a callback raised becomes the cause of the failure; an interruption (KeyboardInterrupt) is passed on itself,
    as is anything that was raised although the call did not fail. `stop`: the control of a long call, which an
    interruption of the main thread cancels.
    """
    err = ctypes.c_void_p()

    def make() -> Any:
        return invoke(name, *arguments, ctypes.byref(err), using=using)
    if stop is not None:
        check_kind(stop, "control", "control")
    try:
        status = make() if stop is None or not interruptible() else Errand(make, stop.cancel).run()
    except BaseException:
        if err:
            taken(err)
        cause_of((*arguments, *using))
        raise
    error = taken(err) if status else None
    cause = cause_of((*arguments, *using))
    if error is not None:
        raise error from cause
    if cause is not None:
        raise cause


def cause_of(arguments: Iterable[Any]) -> Exception | None:
    """What a callback of these objects raised last; an interruption is raised at once."""
    cause: Exception | None = None
    for handle in arguments:
        for raised in handle._raised if isinstance(handle, Handle) else ():
            with contextlib.suppress(IndexError):  # empty
                while True:
                    last = raised.pop()
                    if not isinstance(last, Exception):
                        raise last
                    cause = last
    return cause


def taken(err: ctypes.c_void_p) -> Error:
    """The exception of an error object, which ends."""
    try:
        return failure(lib.moe_error_status(err), lib.moe_error_subject(err).decode(),
                       lib.moe_error_message(err).decode(), json.loads(lib.moe_error_details_json(err)))
    finally:
        lib.moe_error_destroy(err)


class Buffer(Handle):
    """Bytes that the library owns."""
    _kind = "buffer"

    def __init__(self, name: str, *arguments: Any, stop: Any = None) -> None:
        self._create(name, *arguments, stop=stop)

    def _says(self) -> str:
        return counted(len(self.memory), "byte")

    @property
    def memory(self) -> memoryview:
        """The bytes, without a copy; they stay while the view is used."""
        with self.raw() as pointer:
            return memory(lib.moe_buffer_data(pointer), lib.moe_buffer_size(pointer), self._owner)


def json_of(name: str, *arguments: Any) -> Any:
    """What a function answers as JSON in a buffer."""
    return json.loads(text_of(name, *arguments))


def text_of(name: str, *arguments: Any) -> str:
    with Buffer(name, *arguments) as buffer:
        return str(buffer.memory, "utf-8")


def numbers_of(name: str, *arguments: Any, kind: type[Any] = ctypes.c_uint64, count: int = 1) -> tuple[Any, ...]:
    """What a fallible function writes through its last parameters but `err`."""
    out = [kind() for _ in range(count)]
    call(name, *arguments, *map(ctypes.byref, out))
    return tuple(number.value for number in out)


def memory(address: int | None, size: int, keep: object) -> memoryview:
    """A writable view of bytes at an address, which keeps `keep`."""
    if not size or not address:
        return memoryview((ctypes.c_uint64 * 1)()).cast("B")[:0]  # aligned, as all memory of the library
    array = (ctypes.c_ubyte * size).from_address(address)
    array._keep = keep  # type: ignore[attr-defined]
    return memoryview(array).cast("B")


def encode(text: Any, name: str = "document") -> tuple[bytes | None, int]:
    """A document for the library: text, bytes as they are, or what json makes of a dict; None: nothing."""
    if text is None:
        return None, 0
    if not isinstance(text, (str, bytes, dict)):
        raise TypeError(f"{name}: expected a dict, or JSON as text or bytes, got {type(text).__name__}")
    try:
        data = text if isinstance(text, bytes) else (text if isinstance(text, str) else json.dumps(text)).encode()
    except (TypeError, ValueError) as error:
        raise named(error, name) from error
    return data, len(data)


def named(error: Exception, name: str) -> Exception:
    """The error with the name of the argument: its plain kind, as others want more arguments."""
    for kind in (TypeError, BufferError, ValueError):
        if isinstance(error, kind):
            return kind(f"{name}: {error}")
    return error


def c_text(text: str | bytes | os.PathLike[Any], name: str = "text") -> bytes:
    """A path or a name for C, which would stop reading at a NUL."""
    try:
        data = os.fsencode(text)
    except TypeError:
        raise TypeError(f"{name}: expected a text, got {type(text).__name__}") from None
    except ValueError as error:  # half of a surrogate pair
        raise named(error, name) from error
    if b"\0" in data:
        raise ValueError(f"{name}: {text!r} has a NUL character inside")
    return data


def counted(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def size_text(size: int) -> str:
    """A size for people: 610 MB."""
    number, unit = float(size), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if number < 999.5 or unit == "TB":
            break
        number /= 1000
    return f"{number:.{0 if unit == 'bytes' or number >= 9.95 else 1}f} {unit}"


def layer_text(config: dict[str, Any]) -> str:
    """What a resolved config says of sizes: 32 experts top 8, 2048 x 768."""
    held, experts = config["num_local_experts"], config["num_experts"]
    return (f"{experts if held == experts else f'{held} of {experts}'} experts top {config['top_k']}, "
            f"{config['hidden_dim']} x {config['intermediate_size_per_partition']}")


def optional(text: str | None, name: str) -> bytes | None:
    return None if text is None else c_text(text, name)


class Kept:
    """What the library uses until it calls `release` with its number."""

    def __init__(self) -> None:
        self._objects: dict[int, Any] = {}
        self._numbers = itertools.count(1)  # NULL would be no number

    def add(self, thing: Any) -> int:
        number = next(self._numbers)
        self._objects[number] = thing
        return number

    def __getitem__(self, number: int) -> Any:
        return self._objects[number]

    def pop(self, number: int) -> Any:
        return self._objects.pop(number, None)


kept = Kept()


def immortal(thing: T) -> T:
    """What C may use for as long as the process lives, also while the interpreter ends: its functions, above all."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))
    return thing


def callback(kind: Any) -> Callable[[Callable[..., Any]], Any]:
    """Makes a function one of the library's callbacks."""
    def decorate(function: Callable[..., Any]) -> Any:
        def inside(*arguments: Any) -> Any:
            depth = getattr(_callbacks, "depth", 0)
            _callbacks.depth = depth + 1
            try:
                return function(*arguments)
            finally:
                _callbacks.depth = depth
        return immortal(kind(lambda *arguments: answered(inside, arguments)))
    return decorate
