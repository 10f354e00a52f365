"""Layout p16 of the CPU kernels in numpy: companion of impl/spec/kernels.md 2 and 2.1. One matrix of one expert.

Without lists: no activation order, and groups that need no filling (multiples of 32, or the whole matrix).
"""
import numpy as np

import w4a8_int8 as Q

F32 = np.float32


def _section(a):
    """[..., 16] values of a panel as bytes, padded with zeros to 64."""
    b = np.ascontiguousarray(a).tobytes()
    return b + bytes(-len(b) % 64)


def _units(codes, bits):
    """codes [16, 64*u] -> bytes of each unit."""
    u = codes.astype(np.uint8).reshape(16, -1, 64)
    if bits == 8:
        return [u[:, i].reshape(16, 16, 4).transpose(1, 0, 2).tobytes() for i in range(u.shape[1])]
    v = u.reshape(16, -1, 2, 2, 4, 4)  # row, unit, half, low or high nibble, vector, k
    v = (v[:, :, :, 0] | v[:, :, :, 1] << 4).transpose(1, 2, 3, 0, 4)
    return [x.tobytes() for x in v]


def _panels(n, halves):
    """Rows of each panel, -1 where there is none; the halves take turns."""
    rows = n // halves
    for first in range(0, rows, 16):
        lane = np.arange(first, first + 16)
        for half in range(halves):
            yield np.where(lane < rows, half * rows + lane, -1)


def _take(a, rows, padding=0):
    a = np.asarray(a)
    out = np.full((16,) + a.shape[1:], padding, a.dtype)
    out[rows >= 0] = a[rows[rows >= 0]]
    return out


def _codes(codes, rows, value0):
    """A panel's codes with k filled up to whole units."""
    c = _take(codes, rows, value0)
    return np.concatenate([c, np.full((16, -c.shape[1] % 64), value0, c.dtype)], 1)


def pack_w4a8(w, scales, bias, group, halves):
    """kernels.md 2.1: w int8 [N, K]; scales f32 [N, K/group]; bias f32 [N] or None."""
    k = w.shape[1]
    out = []
    sums = None if group == k else Q.decode_kai(Q.pack_kai(w, scales, None, group), *w.shape, group)[2]
    for rows in _panels(len(w), halves):
        wp = _take(w, rows)
        units = _units(_codes(w + np.int8(8), rows, 8), 4)
        head = b""
        s = Q.bf16_bits(_take(np.asarray(scales, F32), rows)) if group != k else None
        if group == k:
            head = _section(_take(scales, rows)[:, 0] * F32(0.0625)) + _section(wp.sum(1, dtype=np.int32))
        else:
            head = (b"" if group == 32 else _section(s.T)) + _section(_take(sums, rows))
        if bias is not None:
            head += _section(_take(np.asarray(bias, F32), rows))
        out.append(head)
        for i, unit in enumerate(units):
            if s is not None and group == 32:
                pair = s.T[2 * i:2 * i + 2]
                out.append(_section(pair) if len(pair) else bytes(64))
            out.append(unit)
    return b"".join(out)


def pack_plain(codes, scales, zeros, bias, bits, halves):
    """Kinds w4 and w8: stored codes [N, K], scales [N, G] (f32 numbers or 16-bit patterns), zero codes or None."""
    out = []
    for rows in _panels(len(codes), halves):
        out.append(_section(_take(scales, rows).T))
        if zeros is not None:
            out.append(_section(_take(zeros.astype(np.uint8), rows).T))
        if bias is not None:
            out.append(_section(_take(np.asarray(bias, F32), rows)))
        out += _units(_codes(codes, rows, 1 << (bits - 1)), bits)
    return b"".join(out)
