"""What a layer is and what runs it: config, platform, selection, and the library's answers about itself."""
from __future__ import annotations

import ctypes
import json
from typing import Any, NamedTuple

from . import _abi as abi
from ._abi import Reject, SelectFlags
from ._context import Context
from ._handle import Handle, c_text, call, encode, invoke, json_of, layer_text, numbers_of
from ._library import lib


class Config(Handle):
    """The checked description of one layer, from a document: a dict, or JSON as text or bytes."""
    _kind = "config"

    def __init__(self, document: dict[str, Any] | str | bytes) -> None:
        self._create("moe_config_create", *encode(document))

    @classmethod
    def from_hf(cls, config_json: dict[str, Any] | str | bytes, **options: Any) -> Config:
        """From a model's config.json; options such as layer_index=3."""
        config = cls.__new__(cls)
        config._create("moe_config_create_from_hf", *encode(config_json), *encode(options))
        return config

    def merge(self, patch: dict[str, Any] | str | bytes) -> Config:
        """A new one with a JSON merge patch applied, such as {"moe_backend": "cpu"}."""
        config = Config.__new__(Config)
        config._create("moe_config_merge", self, *encode(patch))
        return config

    @property
    def document(self) -> dict[str, Any]:
        """The resolved config, defaults written out."""
        answer: dict[str, Any] = json_of("moe_config_to_json", self)
        return answer

    def integer(self, pointer: str) -> int:
        """An integer or boolean of the resolved config by JSON pointer, such as "/num_experts"."""
        return int(numbers_of("moe_config_get_int", self, c_text(pointer, "pointer"), kind=ctypes.c_int64)[0])

    def number(self, pointer: str) -> float:
        return float(numbers_of("moe_config_get_float", self, c_text(pointer, "pointer"), kind=ctypes.c_double)[0])

    def string(self, pointer: str) -> str:
        with self.raw() as config:  # the text is the config's
            text: bytes = numbers_of("moe_config_get_string", config, c_text(pointer, "pointer"),
                                     kind=ctypes.c_char_p)[0]
        return text.decode()

    def _says(self) -> str:
        document = self.document
        name = document["name"]
        return f"{name}, {layer_text(document)}" if name else layer_text(document)

    @staticmethod
    def schema() -> dict[str, Any]:
        """The JSON Schema of a document."""
        answer: dict[str, Any] = json.loads(lib.moe_config_schema_json())
        return answer


class Platform(Handle):
    """This machine, or a described one, such as {"type": "cuda", "capability": [9, 0]}."""
    _kind = "platform"

    def __init__(self, description: dict[str, Any] | str | bytes | None = None) -> None:
        self._create("moe_platform_create", *encode(description))

    @property
    def description(self) -> dict[str, Any]:
        answer: dict[str, Any] = json_of("moe_platform_to_json", self)
        return answer

    def _says(self) -> str:
        it = self.description
        capability = ".".join(map(str, it.get("capability") or ()))
        return f"{it['type']} {it['arch']} {capability}".rstrip()

    def has(self, feature: str) -> bool:
        """Whether it has an instruction set, such as "avx512_vnni"."""
        return bool(invoke("moe_platform_has", self, c_text(feature, "feature")))


class Candidate(NamedTuple):
    """One considered kernel: `reason` says why it was refused, NONE that it could run."""
    backend: str
    kernel: str
    reason: Reject | int
    chosen: bool
    priority: int
    detail: str
    subject: str


class Selection(Handle):
    """Which backend and kernel take a config, and why each other candidate does not."""
    _kind = "selection"

    def __init__(self, config: Config, context: Context | None = None, *, platform: Platform | None = None,
                 flags: SelectFlags | int = 0) -> None:
        self._create("moe_select_backend", context, config, platform, flags)

    @property
    def backend(self) -> str:
        return self._text("moe_selection_backend")

    @property
    def kernel(self) -> str:
        return self._text("moe_selection_kernel")

    @property
    def layout(self) -> str:
        return self._text("moe_selection_layout")

    def _text(self, name: str) -> str:
        text: bytes = invoke(name, self)
        return text.decode()

    def _says(self) -> str:
        return f"{self.backend} {self.kernel} {self.layout}" if self.backend else "no backend accepts"

    @property
    def candidates(self) -> list[Candidate]:
        """All of them, by priority."""
        found = []
        with self.raw() as selection:  # the texts are the selection's
            for index in range(invoke("moe_selection_candidate_count", selection)):
                it = abi.moe_candidate(struct_size=ctypes.sizeof(abi.moe_candidate))
                call("moe_selection_candidate", selection, index, ctypes.byref(it))
                reason = Reject(it.reason) if it.reason in Reject._value2member_map_ else it.reason
                found.append(Candidate(it.backend.decode(), it.kernel.decode(), reason, bool(it.chosen), it.priority,
                                       it.detail.decode(), it.subject.decode()))
        return found

    @property
    def packed_size(self) -> tuple[int, int]:
        """Bytes and alignment of the converted weights."""
        size, alignment = numbers_of("moe_selection_packed_size", self, count=2)
        return int(size), int(alignment)

    def report(self) -> dict[str, Any]:
        """What was asked for and what runs, with the candidates."""
        answer: dict[str, Any] = json_of("moe_selection_to_json", self)
        return answer


def describe(topic: str, query: dict[str, Any] | str | bytes) -> dict[str, Any]:
    """One pure question: "checkpoint", "oracle", "expert_map", ... (moe_describe of moe.h lists the topics)."""
    answer: dict[str, Any] = json_of("moe_describe", c_text(topic, "topic"), *encode(query))
    return answer


def version() -> str:
    """Of the loaded library; its file is `libmoe.lib.path`."""
    return str(lib.moe_version_string().decode())


def build_info() -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(lib.moe_build_info_json())
    return answer


def abi_description() -> dict[str, Any]:
    """Every function, struct and constant of the loaded library."""
    answer: dict[str, Any] = json.loads(lib.moe_abi_json())
    return answer


def has_feature(name: str) -> bool:
    """Whether this build has an ability, such as "io.mmap"; what the machine has is Platform.has."""
    return bool(lib.moe_has_feature(c_text(name, "name")))
