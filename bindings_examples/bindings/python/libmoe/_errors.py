"""The exceptions: one class per status, each with what, where, found and expected."""
from __future__ import annotations

import copyreg
import os
from typing import Any

from ._abi import Status


class Error(Exception):
    """A failed call. `status` is its number and `name` its name, `subject` says where, `message` what, and `details`
    is everything the library knows (expected and actual values, all candidates of a selection, ...)."""

    def __init__(self, status: int, subject: str, message: str, details: dict[str, Any]) -> None:
        known = status in Status._value2member_map_
        self.status, self.name = status, f"MOE_ERR_{Status(status).name}" if known else "MOE_ERR_UNKNOWN"
        self.subject, self.message, self.details = subject, message, details
        super().__init__(f"{self.name} at '{subject}': {message}")

    def __reduce__(self) -> tuple[Any, ...]:
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


class InvalidArgument(Error): "A value, a range, a name."
class InvalidConfig(Error): "JSON syntax, schema or consistency; `subject` is a JSON pointer."
class InvalidHandle(Error): "A closed object."
class ShapeError(Error): "Rank, extent, stride or byte count of a tensor."
class DTypeError(Error): "A data type that is not accepted at this place."
class MissingWeight(Error): "A role or an expert was never set."
class UnexpectedWeight(Error): "A tensor that the config has no place for."
class NoBackend(Error): "No backend accepts; `details['candidates']` has every reason."
class Unsupported(Error): "Valid, but this build or this object cannot do it."
class BufferTooSmall(Error): "Memory of the caller; `details['needed']` says how much it takes."
class OutOfMemory(Error): "The library could not get memory."
class FormatError(Error): "Not such a file, truncated, or damaged."
class VersionError(Error): "A struct or a file of a newer version."
class Cancelled(Error): "Stopped on request."
class CommError(Error): "Ranks did not come in time, or what moves their data failed; `details['reason']` says which."
class CallbackError(Error): "A function of the caller failed; `__cause__` is what it raised."
class Busy(Error): "Another call uses this object."
class StateError(Error): "Not possible in this state, such as forms of weights that do not mix."
class PeerError(Error): "Another rank failed; `details` names it."
class ConfigMismatch(Error): "Two sides disagree, such as packed weights and selection."
class CommPoisoned(Error): "The communicator failed before and cannot be used."
class InternalError(Error): "A fault of the library: please report it."


class InputOutputError(Error, OSError):
    """Open, read, write or mmap failed. `errno`, `strerror` and `filename` are those of OSError; `errno` is None where
    the system has no number for it."""

    def __init__(self, status: int, subject: str, message: str, details: dict[str, Any]) -> None:
        super().__init__(status, subject, message, details)
        number = details.get("errno")
        if number is not None:
            self.errno, self.strerror = number, os.strerror(number)
        self.filename = subject or None

    def __str__(self) -> str:
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        new, _, state = super().__reduce__()
        system = {"args": self.args, "errno": self.errno, "strerror": self.strerror, "filename": self.filename}
        return new, (type(self),), {**state, **system}


class FileNotFound(InputOutputError, FileNotFoundError): "There is no such file or folder."
class PermissionDenied(InputOutputError, PermissionError): "This process may not do that with the file."
class NotADirectory(InputOutputError, NotADirectoryError): "A file where a folder is wanted."
class IsADirectory(InputOutputError, IsADirectoryError): "A folder where a file is wanted."


_OF_SYSTEM: dict[type[OSError], type[InputOutputError]] = {
    FileNotFoundError: FileNotFound, PermissionError: PermissionDenied, NotADirectoryError: NotADirectory,
    IsADirectoryError: IsADirectory}


CLASSES = {Status.INVALID_ARGUMENT: InvalidArgument, Status.INVALID_CONFIG: InvalidConfig,
           Status.INVALID_HANDLE: InvalidHandle, Status.SHAPE: ShapeError, Status.DTYPE: DTypeError,
           Status.MISSING_WEIGHT: MissingWeight, Status.UNEXPECTED_WEIGHT: UnexpectedWeight,
           Status.NO_BACKEND: NoBackend, Status.UNSUPPORTED: Unsupported, Status.BUFFER_TOO_SMALL: BufferTooSmall,
           Status.OUT_OF_MEMORY: OutOfMemory, Status.IO: InputOutputError, Status.FORMAT: FormatError,
           Status.VERSION: VersionError, Status.CANCELLED: Cancelled, Status.COMM: CommError,
           Status.CALLBACK: CallbackError, Status.BUSY: Busy, Status.STATE: StateError, Status.PEER: PeerError,
           Status.CONFIG_MISMATCH: ConfigMismatch, Status.COMM_POISONED: CommPoisoned,
           Status.INTERNAL: InternalError}


def failure(status: int, subject: str, message: str, details: dict[str, Any] | None = None) -> Error:
    """The exception of a status; of one that this package does not know, an InternalError."""
    details = details or {}
    kind: type[Error] = CLASSES.get(status, InternalError)  # type: ignore[call-overload]
    if kind is InputOutputError:  # as Python itself has it: OSError(2, "") is a FileNotFoundError
        kind = _OF_SYSTEM.get(type(OSError(details.get("errno", 0), "")), kind)
    return kind(status, subject, message, details)
