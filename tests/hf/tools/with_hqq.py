"""HQQ through transformers."""
import transformers

import live

PACKAGE = "hqq"


def write(case, plain, folder):
    model = live.quantized(plain, transformers.HqqConfig(**case.arguments), folder)
    return live.reference(model, lambda module: module.dequantize())
