"""float_formats.py with itself: no format of it is built yet, so there is no answer of the library to compare."""
import numpy as np

import float_formats as F
import float_oracles  # noqa: F401  # pylint: disable=unused-import  # that it can be loaded


def check(_, rng, twist):
    for name, f in F.FORMATS.items():
        codes = np.arange(1 << f.bits, dtype=np.uint8)
        values = f.decode(codes)
        codes, values = codes[np.isfinite(values)], values[np.isfinite(values)]
        if not f.neg_zero or f.nan_is_neg_zero:
            codes = np.where(values == 0, 0, codes)
        back = f.encode(values)
        if twist:
            back = back ^ 1
        assert np.array_equal(back, codes), f"{name}: codes {codes[back != codes]} come back as {back[back != codes]}"
        x = rng.normal(0, f.max / 2, 200)
        nearest = np.abs(x[:, None] - values[None].astype(np.float64)).min(axis=1)
        assert np.array_equal(np.abs(x - f.round(x).astype(np.float64)), nearest), f"{name}: not the nearest value"
    for bits, pack, unpack in ((4, F.pack_fp4, F.unpack_fp4), (6, F.pack_fp6, F.unpack_fp6)):
        codes = rng.integers(0, 1 << bits, (3, 32)).astype(np.uint8)
        assert np.array_equal(unpack(pack(codes)), codes), f"packing of {bits} bits"
    for bits16, value, code in ((rng.integers(0, 0x7F80, 99), F.bf16_to_f32, F.f32_to_bf16),
                                (rng.integers(0, 0x7C00, 99), F.fp16_to_f32, F.f32_to_fp16)):
        assert np.array_equal(code(value(bits16)), bits16), "a 16-bit float comes back otherwise"
