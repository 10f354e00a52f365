"""A layer over several ranks: processes with MPI or another transport between them, or threads."""
from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import itertools
import os
import threading
from typing import Any, Iterator, Protocol, Tuple, Union

import numpy as np

from . import _abi as abi
from ._abi import ApplyFlags, ApplyMode, DType, Status
from ._context import Context, Control, release
from ._errors import Error, failure
from ._handle import (Handle, Raised, Self, _who, call, callback, cause_of, check_function, check_kind, counted, encode,
                      integer, invoke, json_of, kept, memory, taken)
from ._layer import Layer, _bytes, _point, pointer_of
from ._library import lib
from ._model import Config
from ._tensor import dtype_of
from ._weights import _text_of

Options = Union[dict[str, Any], str, bytes, None]
Rows = Tuple[int, ...]  # an entry for each rank


class Transport(Protocol):
    """What a program writes for Comm.from_transport: it moves bytes between ranks.

    Every rank starts the same operations in the same order, and several may be under way. One thread at a time uses
    it: the one that makes the call. It may also have `pause(microseconds)`, called between two tests while there is
    nothing else to do (without it the thread yields), and `abort(code)`, which ends the job.

    What `start` or `test` raises fails the call, and poisons the communicator: nothing may write to `recv` any more.
    The memory of operations that never ended, and then the transport, may be kept for as long as the process runs.
    What is no Exception, such as KeyboardInterrupt, and what `pause` or `abort` raises, comes out when the call ends.
    """

    @property
    def rank(self) -> int: ...

    @property
    def size(self) -> int: ...

    def start(self, send: memoryview, send_counts: Rows, send_displs: Rows, recv: memoryview, recv_counts: Rows,
              recv_displs: Rows, row_bytes: int) -> Any:
        """Begins to send send_counts[r] rows, from row send_displs[r], to each rank r, itself included; what comes
        from rank r goes to row recv_displs[r]. A row has row_bytes bytes. Both buffers are the library's, as bytes:
        they stay as they are until the operation is done, and must not be used later. Gives what `test` gets."""

    def test(self, op: Any) -> bool:
        """Whether an operation is done; it never waits. What is done is not asked for again."""


class _Table:
    """A transport of the caller, and its operations under way."""

    def __init__(self, transport: Transport) -> None:
        self.transport, self.raised = transport, Raised()
        self.rank, self.size = (integer(getattr(transport, name), name, ctypes.c_int32) for name in ("rank", "size"))
        self.numbers = itertools.count(1)  # NULL would be no number
        self.ops: dict[int | None, Any] = {}

    def later(self, error: BaseException) -> None:
        """It comes out when the call ends: the last of several."""
        with contextlib.suppress(IndexError):  # empty
            while True:
                self.raised.pop()
        self.raised.append(error)

    def failed(self, error: Exception, err: Any) -> int:
        self.raised.append(error)
        status = error.status if isinstance(error, Error) and error.status else Status.CALLBACK
        text = _text_of(error)
        err[0] = lib.moe_error_create(status, text, len(text))
        return status


def _rows_at(address: int, ranks: int) -> Rows:
    return tuple((ctypes.c_int64 * ranks).from_address(address))


def _bytes_at(address: int | None, counts: Rows, displs: Rows, row_bytes: int) -> memoryview:
    rows = max(displ + count if count else 0 for count, displ in zip(counts, displs))
    return memory(address, rows * row_bytes, None)


@callback(abi.moe_comm_ops_alltoallv_start)
def _start(number: int, row_bytes: int, send: int | None, send_counts: int, send_displs: int, recv: int | None,
           recv_counts: int, recv_displs: int, op: Any, err: Any) -> int:
    table: _Table = kept[number]
    try:
        ranks = table.size  # of the lists: what the transport says later is another number
        sent = _rows_at(send_counts, ranks), _rows_at(send_displs, ranks)
        received = _rows_at(recv_counts, ranks), _rows_at(recv_displs, ranks)
        key = next(table.numbers)
        table.ops[key] = table.transport.start(_bytes_at(send, *sent, row_bytes).toreadonly(), *sent,
                                               _bytes_at(recv, *received, row_bytes), *received, row_bytes)
        op[0] = key
    except Exception as error:
        return table.failed(error, err)
    except BaseException as error:  # perhaps it is under way: it is never done, and its memory stays
        table.later(error)
    return Status.OK


@callback(abi.moe_comm_ops_test)
def _test(number: int, op: int | None, done: Any, err: Any) -> int:
    table: _Table = kept[number]
    try:
        if op in table.ops and table.transport.test(table.ops[op]):
            done[0] = 1
            del table.ops[op]
    except Exception as error:
        table.ops.pop(op, None)
        return table.failed(error, err)
    except BaseException as error:  # it is asked again
        table.later(error)
    return Status.OK


@callback(abi.moe_comm_ops_wait_hint)
def _pause(number: int, microseconds: int) -> None:
    table: _Table = kept[number]
    try:
        table.transport.pause(microseconds)  # type: ignore[attr-defined]
    except BaseException as error:
        table.later(error)


@callback(abi.moe_comm_ops_abort)
def _abort(number: int, code: int) -> None:
    table: _Table = kept[number]
    try:
        table.transport.abort(code)  # type: ignore[attr-defined]
    except BaseException as error:
        table.later(error)


class Comm(Handle):
    """One rank's end of a communicator. Every rank makes one, and Dist objects with it.

    options, here and in the other ways to make one: {"timeout_ms": 60000, "poll_us": 50, "on_timeout": "error"}, or
    "abort". After CommError it is poisoned, and later calls are CommPoisoned; but for details["reason"] "out_of_step".
    """
    _kind = "comm"

    @classmethod
    def threads(cls: type[Self], size: int) -> list[Self]:
        """Connected ones for threads of this process, by rank: for tests, and for one rank."""
        made = np.zeros(max(integer(size, "size", ctypes.c_int32), 1), np.uint64)  # untouched where there are too many
        call("moe_comm_create_threads", size, made.ctypes.data_as(ctypes.POINTER(ctypes.c_void_p)))
        return [cls.adopt(int(address)) for address in made]

    @classmethod
    def from_transport(cls: type[Self], transport: Transport, options: Options = None) -> Self:
        """Over a transport of the program's own, see Transport; it is kept until this and each Dist of it are gone."""
        for name in ("start", "test"):
            if not callable(getattr(transport, name, None)):
                raise TypeError(f"transport: expected an object with functions start and test, "
                                f"got {type(transport).__name__} without {name}")
        table, document = _Table(transport), encode(options, "options")
        ops = abi.moe_comm_ops(struct_size=ctypes.sizeof(abi.moe_comm_ops), alltoallv_start=_start, test=_test,
                               rank=table.rank, size=table.size, destroy=release)
        for name, member, function in (("pause", "wait_hint", _pause), ("abort", "abort", _abort)):
            check_function(getattr(transport, name, None), name)
            if getattr(transport, name, None) is not None:
                setattr(ops, member, function)
        self = cls.__new__(cls)
        self._raised = [table.raised]
        ops.user = kept.add(table)
        self._create("moe_comm_create", ctypes.byref(ops), *document, given=ops.user)
        return self

    @classmethod
    def from_mpi(cls: type[Self], comm: Any, library: str | os.PathLike[str] | None = None,
                 options: Options = None) -> Self:
        """Of a communicator of mpi4py, which is duplicated; collective, as close() is. Close it, and each Dist of it,
        before MPI ends, which mpi4py does at exit; after CommError end the job with comm.Abort().

        `library`: the file of libmoe_mpi for this MPI. Without it, what LIBMOE_MPI_PATH names, else that in the folder
        openmpi or mpich beside libmoe.
        """
        if not callable(getattr(comm, "py2f", None)):
            raise TypeError(f"comm: expected a communicator of mpi4py, got {type(comm).__name__}")
        document = encode(options, "options")
        create = _mpi_library(_mpi_path() if library is None else os.fspath(library)).moe_mpi_comm_create_f
        pointer, err = ctypes.c_void_p(), ctypes.c_void_p()
        if create(integer(comm.py2f(), "comm", ctypes.c_int32), *document, ctypes.byref(pointer), ctypes.byref(err)):
            raise taken(err)
        self = cls.__new__(cls)
        self._own(pointer)
        return self

    @property
    def rank(self) -> int:
        return int(invoke("moe_comm_rank", self))

    @property
    def size(self) -> int:
        return int(invoke("moe_comm_size", self))

    def set_options(self, options: Options) -> None:
        """All of them, from the next call on; what is not given is as by default."""
        call("moe_comm_set_options", self, *encode(options, "options"))

    def _says(self) -> str:
        return f"rank {self.rank} of {self.size}"


def _mpi_path() -> str:
    """The libmoe_mpi of the MPI that mpi4py runs."""
    said = str(importlib.import_module("mpi4py.MPI").Get_library_version()).partition("\n")[0].strip("\0 ")
    name = next((folder for start, folder in _FOLDERS.items() if said.startswith(start)), None)
    core = str(lib.path)
    folders = dict.fromkeys(map(os.path.dirname, (core, os.path.realpath(core))))
    places = [os.path.join(folder, name, _MPI_SONAME) for folder in folders] if name else []
    if given := os.environ.get("LIBMOE_MPI_PATH"):
        return given
    for place in places:
        if os.path.exists(place):
            return place
    raise ImportError(f"{_MPI_SONAME} for the MPI of mpi4py, {said.partition(',')[0]!r}, is not found: there is no "
                      f"{' nor '.join(places) or 'folder for it'}; LIBMOE_MPI_PATH or the argument `library` may name "
                      f"the file")


_MPI_SONAME = f"libmoe_mpi.so.{abi.ABI_VERSION}"
_FOLDERS = {"Open MPI": "openmpi", "MPICH": "mpich"}  # by the first words of MPI_Get_library_version


@functools.lru_cache(maxsize=None)
def _mpi_library(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
        create, core = library.moe_mpi_comm_create_f, library.moe_comm_create
    except (OSError, AttributeError) as error:
        raise ImportError(f"{path} is no libmoe_mpi that can be loaded: {error}") from error
    if ctypes.cast(core, ctypes.c_void_p).value != ctypes.cast(lib.moe_comm_create, ctypes.c_void_p).value:
        raise ImportError(f"{path} uses another libmoe than {lib.path}")  # its objects are not ours
    create.argtypes = (ctypes.c_int32, ctypes.c_char_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_void_p),
                       ctypes.POINTER(ctypes.c_void_p))
    return library


@contextlib.contextmanager
def _told(name: str, *nothing: Any) -> Iterator[None]:
    """What is wrong before the library is asked: the other ranks would wait for this one. A call without arguments
    tells them."""
    try:
        yield
    except Exception:
        with contextlib.suppress(Error):
            call(name, *nothing)
        raise


class Dist(Handle):
    """A layer over all ranks of a communicator; `config` describes the whole layer. Collective: making one, `attach`,
    and `apply`, or `begin` with `finish`, are called on every rank, in the same order, also with no token and with no
    expert. An error on one rank is a PeerError on the others.

        dist = Dist(comm, config)
        dist.attach(layer of dist.local_config(), or None where dist.report()["experts"] is empty)
        out = dist.apply(hidden, logits)

    options: {"mode": "ep", "placement": "linear", "combine": "exact", "max_tokens_per_rank": 2048,
    "workspace_mb": 1024, "chunk_tokens": 0, "layer_id": 0}; exact has the bits of one process. Ctrl-C is seen when a
    call has ended, after timeout_ms at the latest.
    """
    _kind = "dist"
    _dtype: DType | None = None  # of `out`
    _new_out: Any = Layer._new_out  # in the type of _out_dtype()

    def __init__(self, comm: Comm, config: Config, options: Options = None, context: Context | None = None) -> None:
        self._check_new()
        check_kind(comm, "comm", "comm")
        with contextlib.ExitStack() as held:
            with _told("moe_dist_create", None, comm, None, None, 0, ctypes.byref(ctypes.c_void_p())):
                document = encode(options, "options")
                check_kind(config, "config", "config")
                whole = held.enter_context(config.raw())
                self._dtype = dtype_of(config.string("/out_dtype"))
                if context is not None:
                    check_kind(context, "context", "context")
                    held.enter_context(context.raw())
            self._create("moe_dist_create", context, comm, whole, *document)
        self._raised = comm._raised + (context._raised if context is not None else [])

    def local_config(self) -> Config:
        """Of this rank's part, for Selection, Weights and the rest; StateError where it holds no expert."""
        config = Config.__new__(Config)
        config._create("moe_dist_local_config", self)
        return config

    @property
    def patch(self) -> dict[str, Any]:
        """What makes the local config of the whole one: Config.merge(patch), Checkpoint.layer(number, patch=patch)."""
        patch: dict[str, Any] = self.report()["patch"]
        return patch

    def attach(self, layer: Layer | None) -> None:
        """Gives the layer of the local config, which is kept; None exactly where this rank holds no expert."""
        with contextlib.ExitStack() as held:
            with _told("moe_dist_attach", self, None):
                if layer is not None:
                    check_kind(layer, "layer", "layer")
                    held.enter_context(layer.raw())
            call("moe_dist_attach", self, layer)

    def apply(self, hidden: Any, logits: Any = None, *, topk_ids: Any = None, topk_weights: Any = None,
              out: Any = None, flags: ApplyFlags | int = 0, control: Control | None = None, workspace: Any = None,
              out_topk_ids: Any = None, out_topk_weights: Any = None) -> Any:
        """Layer.apply over all ranks, with this rank's tokens: as many as it has, also 0, at most
        max_tokens_per_rank. `workspace` must be None: a Dist has its own."""
        with contextlib.ExitStack() as held:
            with _told("moe_dist_apply", self, None):
                args, out = self._args(held, hidden, logits, topk_ids, topk_weights, out, flags, control, workspace,
                                       out_topk_ids, out_topk_weights)
            call("moe_dist_apply", self, ctypes.byref(args), using=(control,))
        return out

    def begin(self, hidden: Any, logits: Any = None, *, topk_ids: Any = None, topk_weights: Any = None,
              out: Any = None, flags: ApplyFlags | int = 0, control: Control | None = None, workspace: Any = None,
              out_topk_ids: Any = None, out_topk_weights: Any = None) -> DistCall:
        """apply in steps, for other work in between; one call at a time for a communicator, else Busy."""
        begun = DistCall.__new__(DistCall)
        begun._dist = self
        with contextlib.ExitStack() as held:
            with _told("moe_dist_begin", self, None, ctypes.byref(ctypes.c_void_p())):
                args, begun._out = self._args(held, hidden, logits, topk_ids, topk_weights, out, flags, control,
                                              workspace, out_topk_ids, out_topk_weights)
            begun._begin(args, control)
        return begun

    def _args(self, held: contextlib.ExitStack, hidden: Any, logits: Any, topk_ids: Any, topk_weights: Any, out: Any,
              flags: ApplyFlags | int, control: Control | None, workspace: Any, out_topk_ids: Any,
              out_topk_weights: Any) -> tuple[Any, Any]:
        """The struct, which has what it points to, and `out`; the control is held open."""
        if logits is None and topk_ids is None:
            raise TypeError("apply: expected logits, or topk_ids and topk_weights")
        args = abi.moe_apply_args(struct_size=ctypes.sizeof(abi.moe_apply_args), flags=integer(flags, "flags"),
                                  mode=ApplyMode.TOPK if logits is None else ApplyMode.ROUTER_LOGITS)
        if control is not None:
            args.control = pointer_of(control, "control")
            held.enter_context(control.raw())
        views = _point(args, hidden=hidden, router_logits=logits, topk_ids=topk_ids, topk_weights=topk_weights)
        if out is None and views:
            out = self._new_out(hidden, views[0])
        views += _point(args, True, out=out, out_topk_ids=out_topk_ids, out_topk_weights=out_topk_weights)
        if workspace is not None:
            args.workspace, args.workspace_size, workspace = _bytes(workspace, "workspace", write=True)
        args._views = views, workspace, None if control is None else control._owner
        return args, out

    def _out_dtype(self) -> DType:
        if self._dtype is None:  # of an adopted object
            with self.local_config() as config:
                self._dtype = dtype_of(config.string("/out_dtype"))
        return self._dtype

    def _says(self) -> str:
        it = self.report()
        return (f"rank {it['rank']} of {it['size']}, {counted(len(it['experts']), 'expert')}, "
                + ("poisoned" if it["poisoned"] else "attached" if it["attached"] else "not attached"))

    def report(self) -> dict[str, Any]:
        """Options as resolved, the experts of this rank, patch, what it has sent and how long it has waited so far."""
        answer: dict[str, Any] = json_of("moe_dist_to_json", self)
        return answer


class DistCall(Handle):
    """A call that Dist.begin has begun. `finish` ends it; closing it before drops it without a wait, and poisons the
    communicator if others may still wait for this rank. The arrays are kept, and `out` is complete after `finish`."""
    _kind = "dist_call"
    _dist: Dist | None = None
    _out: Any = None
    _cause: BaseException | None = None

    def _begin(self, args: Any, control: Control | None) -> None:
        self._polling = threading.Lock()
        try:
            self._create("moe_dist_begin", self._dist, ctypes.byref(args), using=(control,))
        finally:
            if self._owner is not None:
                self._owner.pointer._args = args  # type: ignore[attr-defined]  # until the library has ended the call

    def poll(self) -> bool:
        """Goes on as far as it can without a wait for another rank; True when `finish` would not wait."""
        done = ctypes.c_int32()
        if not self._polling.acquire(blocking=False):  # by another thread, or from the transport of this call
            raise failure(Status.BUSY, self._kind, f"this {self._kind} is polled already")
        try:
            call("moe_dist_poll", self, ctypes.byref(done))
        finally:
            self._polling.release()
        self._cause = cause_of((self._dist,)) or self._cause  # `finish` says how the call went
        return bool(done.value)

    def finish(self) -> Any:
        """Waits, and gives `out`, or raises what failed; the object is closed then."""
        running = threading.Lock()
        with running:
            self._gate.close()  # the library ends it: what uses it comes first
            owner = self.__dict__.pop("_owner", None)
            self._owner = None
            if owner is None:
                raise failure(Status.INVALID_HANDLE, self._kind, f"this {self._kind} is closed")
            try:
                self._gate._calls[running] = _who()
                pointer = ctypes.c_void_p(owner.pointer.value)
                owner.pointer.value = None
                call("moe_dist_finish", pointer)
            except Error as error:
                raise error from cause_of((self._dist,)) or self._cause
            finally:
                self._gate.leave(running)
        self._cause = cause_of((self._dist,)) or self._cause
        if self._cause is not None:
            raise self._cause
        return self._out

    def _says(self) -> str:
        with self.raw():
            return "under way"
