"""bitsandbytes through transformers."""
import torch
import transformers

import live

PACKAGE = "bitsandbytes"


def dense(thing):
    import bitsandbytes.functional as functional
    kind = type(thing).__name__
    if kind == "Linear4bit":
        return functional.dequantize_4bit(thing.weight.data, thing.weight.quant_state)
    if kind == "Linear8bitLt":
        weight = thing.weight
        if weight.SCB is None:  # the first call moves it
            thing(torch.zeros(1, thing.in_features, dtype=torch.bfloat16))
        codes = weight.data if weight.CB is None else weight.CB
        return functional.int8_vectorwise_dequant(codes, thing.state.SCB if weight.SCB is None else weight.SCB)
    return getattr(thing, "weight", thing).data


def write(case, plain, folder):
    settings = transformers.BitsAndBytesConfig(bnb_4bit_compute_dtype=torch.bfloat16, **case.arguments)
    return live.reference(live.quantized(plain, settings, folder), dense)
