"""Numpy reference for the W4A8-int8 oracle (int4 weights, int8 dynamic activations).

Companion of impl/spec/w4a8_int8.md; section numbers below refer to it. Needs numpy only.
Clarity and exact numerics come first, speed does not matter.

Conventions: bf16 tensors are carried as float32 arrays whose values are
representable in bf16 ("dtype" strings say what the values mean); raw bf16 bits
are uint16 arrays.
"""
import numpy as np

F32 = np.float32
NR, KR, SR = 8, 16, 2            # the packing parameters (spec 5.1)
KBLK = KR // SR                  # 8 consecutive k per row segment


# ---------------------------------------------------------------- number formats
def bf16_bits(x):
    """float32 -> bf16 bits, round to nearest even (NaN stays a quiet NaN)."""
    u = np.ascontiguousarray(x, F32).view(np.uint32)
    r = ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(x)
    return np.where(nan, ((u >> 16) | 0x40).astype(np.uint16), r)


def bf16_bits_trunc(x):
    """float32 -> bf16 bits by dropping the low half (no rounding)."""
    return (np.ascontiguousarray(x, F32).view(np.uint32) >> 16).astype(np.uint16)


def bf16_value(bits):
    return (np.asarray(bits, np.uint16).astype(np.uint32) << 16).view(F32)


def to_dtype(x, dtype):
    """Round float32 values to `dtype` ('float32' | 'bfloat16' | 'float16'), keep as float32."""
    x = np.asarray(x, F32)
    if dtype == "float32":
        return x
    if dtype == "bfloat16":
        return bf16_value(bf16_bits(x))
    if dtype == "float16":
        with np.errstate(over="ignore"):
            return x.astype(np.float16).astype(F32)
    raise ValueError(dtype)


def fma32(a, b, c):
    """Correctly rounded float32 a*b+c: the product is exact in double; the sum is
    rounded to odd in double, then to nearest in float32."""
    p = np.asarray(a, np.float64) * np.asarray(b, np.float64)
    c = np.broadcast_to(np.asarray(c, np.float64), p.shape)
    s = p + c
    t = s - p
    err = (p - (s - t)) + (c - t)
    bits = s.view(np.uint64)
    fix = (err != 0) & ((bits & 1) == 0) & np.isfinite(s)
    s = np.where(fix, np.nextafter(s, np.where(err > 0, np.inf, -np.inf)), s)
    return s.astype(F32)


def round_away(x):
    """Nearest integer, halves away from zero (float32 in, int64 out)."""
    d = np.asarray(x, np.float64)
    return np.where(d >= 0, np.floor(d + 0.5), np.ceil(d - 0.5)).astype(np.int64)


# ---------------------------------------------------------------- 3. source nibbles
def nibbles(w):
    """int4-as-int8 [N, K] -> bytes [N, K/2]: low nibble = even k, high nibble = odd k, value+8."""
    w = np.asarray(w, np.int8)
    if w.shape[1] % 2:
        raise ValueError("K must be even")
    u = (w.astype(np.int16) + 8).astype(np.uint8)
    return ((u[:, 1::2] << 4) | u[:, ::2]).astype(np.uint8)


def unnibble(b):
    b = np.asarray(b, np.uint8)
    out = np.empty((b.shape[0], b.shape[1] * 2), np.int8)
    out[:, ::2] = (b & 15).astype(np.int8) - 8
    out[:, 1::2] = (b >> 4).astype(np.int8) - 8
    return out


def check_group(K, group):
    """group: effective size (== K for channel-wise)."""
    if group != K and (group <= 0 or group % 32 or K % group):
        raise ValueError("group size must be K or a multiple of 32 that divides K")


def pack_path(K, group, scale_dtype, arm_dotprod):
    """Which blob _dyn_quant_pack_4bit_weight makes: 'kai_cw' | 'kai_gw' | 'fallback' (spec 3.3)."""
    check_group(K, group)
    if arm_dotprod:
        if group == K and scale_dtype == "float32":
            return "kai_cw"
        if group < K and group % 32 == 0 and K % group == 0 and scale_dtype == "bfloat16":
            return "kai_gw"
    return "fallback"


# ---------------------------------------------------------------- 4. generic blob
def pack_fallback(w, scales, bias=None):
    """float32 1-D: N*K/2 byte values, then scales row-major, then bias (if any)."""
    parts = [nibbles(w).reshape(-1).astype(F32), np.asarray(scales, F32).reshape(-1)]
    if bias is not None:
        parts.append(np.asarray(bias, F32).reshape(-1))
    return np.concatenate(parts)


def decode_fallback(blob, N, K, group):
    nb, ns = N * K // 2, N * (K // group)
    w = unnibble(blob[:nb].astype(np.uint8).reshape(N, K // 2))
    s = blob[nb:nb + ns].reshape(N, K // group)
    b = blob[nb + ns:]
    if b.size not in (0, N):
        raise ValueError("blob length fits neither with nor without bias")
    return w, s, (b if b.size else None)


# ---------------------------------------------------------------- 5. KleidiAI layouts
def roundup(a, b):
    return (a + b - 1) // b * b


def kai_cw_stride(K):
    return NR * (roundup(K, 32) // 2 + 4 + 4 + 4)


def kai_gw_stride(K, group):
    return NR * ((group // 2 + 2) * (K // group) + 4 + 4)


def kai_size(N, K, group):
    stride = kai_cw_stride(K) if group == K else kai_gw_stride(K, group)
    return roundup(N, NR) // NR * stride


def _kai_tile_bytes(u):
    """u: unsigned nibbles [8, 32*c] -> bytes; per 32-k chunk: half 0 (j=0..7) rows 0..7, half 1 (j=8..15) rows 0..7;
    byte = k=32c+j in the low nibble, k=32c+16+j in the high nibble, xor 0x88."""
    c = u.shape[1] // 32
    v = u.reshape(NR, c, 2, 2, KBLK)               # row, chunk, lo/hi, half, byte
    by = (v[:, :, 0] | (v[:, :, 1] << 4)) ^ 0x88   # row, chunk, half, byte
    return by.transpose(1, 2, 0, 3).astype(np.uint8).reshape(-1)


def pack_kai(w, scales, bias, group):
    """w int8 [N,K]; scales float32 [N,1] (channel-wise) or bf16-valued float32 [N,K/group]; bias [N] or None."""
    w = np.asarray(w, np.int8)
    N, K = w.shape
    check_group(K, group)
    cw = group == K
    out = []
    for n0 in range(0, N, NR):
        rows = np.minimum(np.arange(n0, n0 + NR), N - 1)      # past the end: repeat the last row
        u = (w[rows].astype(np.int16) + 8).astype(np.uint8)
        if cw:
            Kp = roundup(K, 32)
            if Kp > K:
                u = np.concatenate([u, np.full((NR, Kp - K), 8, np.uint8)], axis=1)
            sums = (u.astype(np.int32) - 8).sum(axis=1).astype(np.int32) * 16
            out += [_kai_tile_bytes(u).tobytes(), sums.astype("<i4").tobytes(),
                    (np.asarray(scales, F32).reshape(N)[rows] * F32(0.0625)).astype("<f4").tobytes()]
        else:
            sc = np.asarray(scales, F32).reshape(N, K // group)[rows]
            sums = np.zeros(NR, F32)
            for g in range(K // group):
                ug = u[:, g * group:(g + 1) * group]
                bits = bf16_bits(sc[:, g])
                d = bf16_value(bits)
                out += [_kai_tile_bytes(ug).tobytes(), bits.astype("<u2").tobytes()]
                for c in range(group // 32):
                    for half in (0, 8):
                        a = ug[:, 32 * c + half:32 * c + half + 8].astype(np.int32)
                        b = ug[:, 32 * c + 16 + half:32 * c + 16 + half + 8].astype(np.int32)
                        part = (a + b - 16).sum(axis=1).astype(F32)
                        sums = (sums + part * d).astype(F32)
            out.append(sums.astype("<f4").tobytes())
        bb = np.zeros(NR, F32) if bias is None else np.asarray(bias, F32).reshape(N)[rows]
        out.append(bb.astype("<f4").tobytes())
    r = np.frombuffer(b"".join(out), np.uint8).copy()
    assert r.size == kai_size(N, K, group)
    return r


def _kai_untile(b, cols):
    c = cols // 32
    by = (b.reshape(c, 2, NR, KBLK) ^ 0x88).transpose(2, 0, 1, 3)          # row, chunk, half, byte
    v = np.stack([by & 15, by >> 4], axis=2)                               # row, chunk, lo/hi, half, byte
    return v.reshape(NR, cols).astype(np.int8) - 8


def decode_kai(packed, N, K, group):
    """-> (w int8 [N,K], scales float32, rsum [N] as stored, bias [N]); bias is all zero when none was packed."""
    cw = group == K
    W = np.empty((roundup(N, NR), K), np.int8)
    S = np.empty((roundup(N, NR), 1 if cw else K // group), F32)
    R = np.empty(roundup(N, NR), np.int32 if cw else F32)
    B = np.empty(roundup(N, NR), F32)
    stride = kai_cw_stride(K) if cw else kai_gw_stride(K, group)
    for i, n0 in enumerate(range(0, N, NR)):
        t = packed[i * stride:(i + 1) * stride]
        sl = slice(n0, n0 + NR)
        if cw:
            Kp = roundup(K, 32)
            o = NR * Kp // 2
            W[sl] = _kai_untile(t[:o], Kp)[:, :K]
            R[sl] = t[o:o + 32].view("<i4")
            S[sl, 0] = t[o + 32:o + 64].view("<f4") * F32(16)
            B[sl] = t[o + 64:o + 96].view("<f4")
        else:
            gb = NR * (group // 2 + 2)
            for g in range(K // group):
                q = t[g * gb:(g + 1) * gb]
                W[sl, g * group:(g + 1) * group] = _kai_untile(q[:NR * group // 2], group)
                S[sl, g] = bf16_value(q[NR * group // 2:].view("<u2"))
            o = gb * (K // group)
            R[sl] = t[o:o + 32].view("<f4")
            B[sl] = t[o + 32:o + 64].view("<f4")
    return W[:N], S[:N], R[:N], B[:N]


def dense(w, scales, group):
    """Dequantized float32 [N, K]."""
    return w.astype(F32) * np.repeat(np.asarray(scales, F32).reshape(w.shape[0], -1), group, axis=1)


# ---------------------------------------------------------------- 6. activation quantization
def quant_rows(x, rounding="away"):
    """x float32 [M,K] -> (q int8 [M,K], recip float32 [M], neg_zp int32 [M]). rounding: 'away' or 'even'."""
    x = np.asarray(x, F32)
    qmin, qmax = F32(-128), F32(127)
    with np.errstate(all="ignore"):
        rmin = np.minimum(F32(0), x.min(axis=1))
        rmax = np.maximum(F32(0), x.max(axis=1))
        scale = np.where(rmin == rmax, F32(1), F32(255) / (rmax - rmin)).astype(F32)
        recip = np.where(scale != 0, F32(1) / scale, F32(0)).astype(F32)
        dmin, dmax = rmin * scale, rmax * scale
        emin, emax = qmin + dmin, qmax + dmax
        zp = np.where(emin + emax > 0, qmin - dmin, qmax - dmax).astype(F32)
        zp = np.minimum(np.maximum(zp, qmin), qmax)
        zp = np.rint(zp).astype(np.int32)                       # halves to even
        y = (x * scale[:, None]).astype(F32)
    r = round_away(y) if rounding == "away" else np.rint(y.astype(np.float64)).astype(np.int64)
    q = np.clip(r + zp[:, None], -128, 127).astype(np.int8)
    return q, recip, (-zp).astype(np.int32)


def pack_lhs_kai(x, mr, rounding="away"):
    """Packed LHS bytes (spec 6.3). Missing rows of the last tile stay zero. For bf16 input the
    k padding (k >= floor(K/8)*8) is always rounded half away."""
    x = np.asarray(x, F32)
    M, K = x.shape
    Kp = roundup(K, 32)
    q, recip, nzp = quant_rows(x, rounding)
    idx = np.minimum(np.arange(Kp), K - 1)
    qa, _, _ = quant_rows(x, "away")
    full = K // KBLK * KBLK
    qp = np.where(np.arange(Kp)[None] < full, q[:, idx], qa[:, idx]).astype(np.int8)
    out = bytearray()
    for m0 in range(0, M, mr):
        t = np.zeros((mr, Kp), np.int8)
        z = np.zeros(mr, np.int32)
        s = np.zeros(mr, F32)
        n = min(mr, M - m0)
        t[:n], z[:n], s[:n] = qp[m0:m0 + n], nzp[m0:m0 + n], recip[m0:m0 + n]
        out += t.reshape(mr, Kp // KBLK, KBLK).transpose(1, 0, 2).tobytes()
        out += z.astype("<i4").tobytes() + s.astype("<f4").tobytes()
    return np.frombuffer(bytes(out), np.uint8)


# ---------------------------------------------------------------- 7. matmul
def matmul_kai(x, w, scales, bias, group, x_dtype="float32", rounded=True):
    """What the micro-kernels compute. x_dtype 'float32' -> float32; 'bfloat16' (channel-wise only) -> bf16 values,
    before that rounding when not `rounded`."""
    x = np.asarray(x, F32)
    N, K = w.shape
    cw = group == K
    if x_dtype == "bfloat16" and not cw:
        raise ValueError("no native bf16 group-wise kernel")
    q, s_a, nzp = quant_rows(x, "even" if x_dtype == "bfloat16" else "away")
    if x_dtype == "bfloat16":                                   # the scalar k tail rounds half away
        full = K // KBLK * KBLK
        q = np.concatenate([q[:, :full], quant_rows(x, "away")[0][:, full:]], axis=1)
    b = np.zeros(N, F32) if bias is None else np.asarray(bias, F32)
    wl = w.astype(np.int64)
    with np.errstate(all="ignore"):
        if cw:
            acc = q.astype(np.int64) @ wl.T + nzp[:, None].astype(np.int64) * wl.sum(axis=1)[None]
            acc16 = (acc * 16).astype(np.int32)
            s_w = (np.asarray(scales, F32).reshape(1, N) * F32(0.0625)).astype(F32)
            r = acc16.astype(F32) * (s_w * s_a[:, None]).astype(F32)
            r = (r + b[None]).astype(F32)
        else:
            sc = bf16_value(bf16_bits(np.asarray(scales, F32).reshape(N, K // group)))
            acc = np.zeros((x.shape[0], N), F32)
            for g in range(K // group):
                sl = slice(g * group, (g + 1) * group)
                i = q[:, sl].astype(np.int64) @ wl[:, sl].T
                acc = fma32(i.astype(F32), sc[None, :, g], acc)
            rsum = decode_kai(pack_kai(w, scales, None, group), N, K, group)[2]
            acc = fma32(np.broadcast_to(rsum[None], acc.shape), nzp.astype(F32)[:, None], acc)
            r = ((acc * s_a[:, None]).astype(F32) + b[None]).astype(F32)
    fm = np.finfo(F32).max
    r = np.minimum(np.maximum(r, -fm), fm)
    return to_dtype(r, "bfloat16") if x_dtype == "bfloat16" and rounded else r


def matmul_fallback(x, w, scales, bias, group, x_dtype="float32"):
    """The generic path of PyTorch (checked against 2.11 on x86-64): bias added. bfloat16 is channel-wise only, result truncated."""
    x = np.asarray(x, F32)
    N, K = w.shape
    cw = group == K
    q, s_a, nzp = quant_rows(x, "away")
    v = q.astype(np.int64) + nzp[:, None]
    wl = w.astype(np.int64)
    sc = np.asarray(scales, F32).reshape(N, -1)
    with np.errstate(all="ignore"):
        if cw:
            r = (v @ wl.T).astype(np.int32).astype(F32) * sc.reshape(1, N)
            r = (r.astype(F32) * s_a[:, None]).astype(F32)
        else:
            if x_dtype != "float32":
                raise ValueError("group-wise fallback takes float32 only")
            r = np.zeros((x.shape[0], N), F32)
            for g in range(K // group):
                sl = slice(g * group, (g + 1) * group)
                i = (v[:, sl] @ wl[:, sl].T).astype(F32)
                r = (r + (i * sc[None, :, g]).astype(F32)).astype(F32)
            r = (r * s_a[:, None]).astype(F32)
    if x_dtype == "bfloat16":
        if bias is not None:
            r = (r + np.asarray(bias, F32)[None]).astype(F32)
        lim = F32(3.38953139e+38)
        return bf16_value(bf16_bits_trunc(np.minimum(np.maximum(r, -lim), lim)))
    if bias is not None:
        r = (r + np.asarray(bias, F32)[None]).astype(F32)
    fm = np.finfo(F32).max
    return np.minimum(np.maximum(r, -fm), fm)


def mm(x, w, scales, bias, group, dtype, path):
    """dtype rule of spec 8.2; path 'kai' or 'fallback'. Input and result are values of `dtype`."""
    K = w.shape[1]
    f = matmul_kai if path == "kai" else matmul_fallback
    if dtype == "float32":
        return f(x, w, scales, bias, group)
    if dtype == "bfloat16" and group == K:
        return f(x, w, scales, bias, group, "bfloat16")
    return to_dtype(f(x, w, scales, bias, group), dtype)


# ---------------------------------------------------------------- 8. activation functions
def _exp(x, ulp):
    y = np.exp(np.asarray(x, np.float64))
    with np.errstate(over="ignore"):
        return (y * (1.0 + ulp * 2.0 ** -23)).astype(F32)


def silu(x, dtype, ulp=0):
    x = np.asarray(x, F32)
    return to_dtype((x / (F32(1) + _exp(-x, ulp))).astype(F32), dtype)


def activation(y13, kind, dtype, ulp=0):
    """y13 [T, 2I] = [gate | up] halves. kind 0 and 2: silu(gate)*up. kind 1: GPT-OSS SwiGLU."""
    I = y13.shape[1] // 2
    g, u = np.asarray(y13[:, :I], F32), np.asarray(y13[:, I:], F32)
    if kind in (0, 2):
        return to_dtype(silu(g, dtype, ulp) * u, dtype)
    if kind != 1:
        raise ValueError("activation kind must be 0, 1 or 2")
    g = np.minimum(g, F32(7))
    u = np.minimum(np.maximum(u, F32(-7)), F32(7))
    t = to_dtype(g * F32(1.702), dtype)
    sg = to_dtype(F32(1) / (F32(1) + _exp(-t, ulp)), dtype)
    glu = to_dtype(g * sg, dtype)
    return to_dtype(to_dtype(u + F32(1), dtype) * glu, dtype)


# ---------------------------------------------------------------- 9. the fused layer
def moe(x, topk_ids, topk_weights, experts, H, I, group_size, on_input, kind,
        dtype="float32", path="kai", ulp=0, stages=None):
    """experts: list of dicts {w13, s13, b13, w2, s2, b2}; group_size -1 or g. Returns values of `dtype` [T,H]."""
    x = to_dtype(x, dtype)
    ids = np.asarray(topk_ids, np.int64)
    E = len(experts)
    if x.ndim != 2 or ids.ndim != 2:
        raise ValueError("x, topk tensors must be 2-D")
    if ids.size and (ids.min() < 0 or ids.max() >= E):
        raise ValueError("expert id out of range")
    gates = to_dtype(np.asarray(topk_weights, F32), dtype)
    T, k = ids.shape
    order = [(t, j) for e in range(E) for t in range(T) for j in range(k) if ids[t, j] == e]
    tok = np.array([t for t, _ in order], np.int64)
    gat = np.array([gates[t, j] for t, j in order], F32)
    eid = np.array([ids[t, j] for t, j in order], np.int64)
    X = x[tok]
    if on_input:
        X = to_dtype(X * gat[:, None], dtype)
    Y = np.zeros((len(order), H), F32)
    Y13 = np.zeros((len(order), 2 * I), F32)
    ACT = np.zeros((len(order), I), F32)
    for e in range(E):
        r = np.nonzero(eid == e)[0]
        if not r.size:
            continue
        p = experts[e]
        Y13[r] = mm(X[r], p["w13"], p["s13"], p.get("b13"), H if group_size == -1 else group_size, dtype, path)
        ACT[r] = activation(Y13[r], kind, dtype, ulp)
        Y[r] = mm(ACT[r], p["w2"], p["s2"], p.get("b2"), I if group_size == -1 else group_size, dtype, path)
    if stages is not None:
        stages.update(sorted_token=tok, sorted_expert=eid, sorted_gate=gat, x_sorted=X, y13=Y13, act=ACT, y=Y)
    if not on_input:
        Y = to_dtype(Y * gat[:, None], dtype)
    out = np.zeros((T, H), F32)
    for i in range(len(order)):
        out[tok[i]] = to_dtype(out[tok[i]] + Y[i], dtype)
    return out


def moe_libmoe(x, topk_ids, topk_weights, experts, H, I, group_size, on_input, kind, dtype="float32", ulp=0, stages=None):
    """The layer as numerics.md 2 has it by default: gates stay float32, w2's rows are not rounded, each token is one
    chain of fma by ascending expert id, rounded once."""
    x, gates = to_dtype(x, dtype), np.asarray(topk_weights, F32)
    out, acts = np.zeros((len(x), H), F32), []
    for e, p in enumerate(experts):
        t, j = np.nonzero(np.asarray(topk_ids) == e)
        if not t.size:
            continue
        rows = to_dtype(x[t] * gates[t, j][:, None], dtype) if on_input else x[t]
        y13 = mm(rows, p["w13"], p["s13"], p.get("b13"), H if group_size == -1 else group_size, dtype, "kai")
        act = activation(y13, kind, dtype, ulp)
        group = I if group_size == -1 else group_size
        half = "bfloat16" if dtype == "bfloat16" and group == I else "float32"
        y = matmul_kai(act, p["w2"], p["s2"], p.get("b2"), group, half, rounded=False)
        for row, token, slot in zip(y, t, j):
            out[token] = fma32(row, F32(1) if on_input else gates[token, slot], out[token])
        acts.append(act)
    if stages is not None:
        stages.update(act=np.concatenate(acts))
    return to_dtype(out, dtype)


# ---------------------------------------------------------------- 10. routing
def _softmax(x):
    e = np.exp(x.astype(np.float64) - x.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)).astype(F32)


def logsumexp(z, dtype):
    """Per row, keepdims; every step is rounded to dtype (subtract max, exp, sum in float32, log, add max)."""
    m = z.max(axis=-1, keepdims=True)
    e = to_dtype(np.exp(to_dtype(z - m, dtype)), dtype)
    return to_dtype(to_dtype(np.log(to_dtype(e.sum(axis=-1, keepdims=True, dtype=F32), dtype)), dtype) + m, dtype)


def _topk(x, k):
    return np.argsort(-x, axis=-1, kind="stable")[:, :k]        # ties: lowest index (choice of this library)


def select_experts(logits, top_k, renormalize, logits_dtype="float32", num_expert_group=None, topk_group=None,
                   bias=None, routed_scaling_factor=1.0):
    """-> (weights float32 [T,k], ids int32 [T,k])."""
    z = to_dtype(logits, logits_dtype)
    if num_expert_group is None:
        ids = _topk(z, top_k)
        v = np.take_along_axis(z, ids, 1)
        if renormalize:
            w = to_dtype(_softmax(v), logits_dtype)
        else:
            w = to_dtype(np.exp(to_dtype(v - logsumexp(z, logits_dtype), logits_dtype)), logits_dtype)
        return w.astype(F32), ids.astype(np.int32)              # no scaling factor, no bias here
    s = _softmax(z)
    T, E = s.shape
    sb = s if bias is None else (s + np.asarray(bias, F32)[None]).astype(F32)
    grp = sb.reshape(T, num_expert_group, -1)
    gs = grp.max(-1) if bias is None else np.sort(grp, -1)[..., -2:].sum(-1)
    gi = _topk(gs, topk_group)
    mask = np.zeros((T, num_expert_group), bool)
    np.put_along_axis(mask, gi, True, 1)
    t = np.where(np.repeat(mask, E // num_expert_group, 1), sb, -np.inf)
    ids = _topk(t, top_k)
    w = np.take_along_axis(s, ids, 1)                           # weights never include the bias
    if renormalize:
        w = (w / w.sum(-1, keepdims=True)).astype(F32)
    if routed_scaling_factor != 1.0:
        w = (w * F32(routed_scaling_factor)).astype(F32)
    return w, ids.astype(np.int32)


# ---------------------------------------------------------------- 1. selection
SUPPORTED_KEYS = [dict(dtype="int8", scale_dtype="float32", static=True, group=[-1, 1], symmetric=True)] + [
    dict(dtype="int8", scale_dtype="bfloat16", static=True, group=[1, g], symmetric=True) for g in (32, 64, 128, -1)]


def select(platform, config, weight_key, activation_key):
    """platform: {kind, arch, has_dyn_quant_ops}; returns {backend, experts} or {error, where, reason}."""
    if platform["kind"] != "cpu":
        return dict(error="not_implemented", reason="platform")
    backend = config.get("moe_backend", "auto")
    if backend not in ("auto", "cpu"):
        return dict(error="invalid_value", reason="moe_backend")
    why = None
    pc = config.get("parallel", {})
    if platform.get("arch") != "arm":
        why = "arch"
    elif config.get("in_dtype", "bfloat16") not in ("float32", "bfloat16", "float16"):
        why = "in_dtype"
    elif not platform.get("has_dyn_quant_ops", True):
        why = "missing_ops"
    elif not config.get("is_act_and_mul", True):
        why = "act_and_mul"
    elif config.get("activation", "silu") not in ("silu", "swigluoai", "swiglustep"):
        why = "activation"
    elif activation_key is not None or weight_key not in SUPPORTED_KEYS:
        why = "quant_scheme"
    elif pc.get("ep_size", 1) != 1:
        why = "parallel"
    elif config.get("has_hash_routing", False):
        why = "hash_routing"
    elif config.get("routing_method", "Default") not in ("Default", "Renormalize", "RenormalizeNaive"):
        why = "routing_method"
    elif pc.get("use_batched_activation_format", False):
        why = "activation_format"
    elif config.get("batch_invariant", False):
        why = "batch_invariance"
    elif config.get("is_lora_enabled", False):
        why = "lora"
    if why is None:
        return dict(backend="CPU_INT4", experts="CPUExpertsInt4")
    return dict(error="invalid_value" if backend == "cpu" else "not_implemented", reason=why)


def weight_key_for(group_size):
    """The key the quantization method builds from group_size (-1: channel-wise)."""
    if group_size == -1:
        return dict(SUPPORTED_KEYS[0])
    return dict(dtype="int8", scale_dtype="bfloat16", static=True, group=[1, group_size], symmetric=True)
