"""Numpy reference of libmoe routing (see impl/spec/routing.md).

Everything is computed in float32 unless said otherwise.  All ids are int32,
all weights float32.  Nothing here needs more than numpy.
"""
import json
import struct

import numpy as np

F32_MAX = np.float32(3.4028234663852886e38)
NEG_INF = np.float32(-np.inf)


# --------------------------------------------------------------------------
# small safetensors reader / writer (also used for the vectors)
# --------------------------------------------------------------------------
_DT = {
    "F64": np.float64, "F32": np.float32, "F16": np.float16,
    "I64": np.int64, "I32": np.int32, "I16": np.int16, "I8": np.int8,
    "U8": np.uint8, "U16": np.uint16, "U32": np.uint32, "BOOL": np.bool_,
}
_DT_NAME = {np.dtype(v): k for k, v in _DT.items()}


def save_safetensors(path, tensors, meta=None, bf16=()):
    """tensors: name -> ndarray. Names in `bf16` are uint16 arrays holding bfloat16 bits."""
    head, blobs, pos = {}, [], 0
    if meta:
        head["__metadata__"] = {k: str(v) for k, v in meta.items()}
    for name, a in tensors.items():
        a = np.ascontiguousarray(a)
        raw = a.tobytes()
        dt = "BF16" if name in bf16 else _DT_NAME[a.dtype]
        head[name] = {"dtype": dt, "shape": list(a.shape), "data_offsets": [pos, pos + len(raw)]}
        blobs.append(raw)
        pos += len(raw)
    h = json.dumps(head, separators=(",", ":")).encode()
    h += b" " * (-len(h) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(h)) + h + b"".join(blobs))


def load_safetensors(path):
    """Returns name -> ndarray; BF16 tensors come back widened to float32."""
    buf = open(path, "rb").read()
    (n,) = struct.unpack("<Q", buf[:8])
    head = json.loads(buf[8:8 + n])
    out = {}
    for name, t in head.items():
        if name == "__metadata__":
            continue
        b, e = t["data_offsets"]
        raw = buf[8 + n + b:8 + n + e]
        if t["dtype"] == "BF16":
            out[name] = bf16_to_f32(np.frombuffer(raw, np.uint16).reshape(t["shape"]))
        else:
            out[name] = np.frombuffer(raw, _DT[t["dtype"]]).reshape(t["shape"]).copy()
    return out


def f32_to_bf16(x):
    """Round to nearest even; NaN keeps a quiet payload. Returns uint16 bits."""
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    r = ((u >> 16) & 1) + np.uint32(0x7FFF)
    out = ((u + r) >> 16).astype(np.uint16)
    nan = np.isnan(np.asarray(x, np.float32))
    out = np.where(nan, ((u >> 16) | 0x40).astype(np.uint16), out)
    return out


def bf16_to_f32(u16):
    return (np.asarray(u16, np.uint16).astype(np.uint32) << 16).view(np.float32)


# --------------------------------------------------------------------------
# scores
# --------------------------------------------------------------------------
def sanitize(logits):
    """NaN -> -inf, +inf -> FLT_MAX, float32."""
    x = np.array(logits, np.float32, copy=True)
    x[np.isnan(x)] = NEG_INF
    x[x == np.inf] = F32_MAX
    return x


def softmax(x):
    x = np.asarray(x, np.float32)
    m = x.max(axis=-1, keepdims=True)
    m = np.where(np.isfinite(m), m, np.float32(0))
    with np.errstate(under="ignore"):
        e = np.exp(x - m, dtype=np.float32)
    s = e.sum(axis=-1, keepdims=True, dtype=np.float32)
    return np.where(s > 0, e / np.where(s > 0, s, np.float32(1)), np.float32(0)).astype(np.float32)


def sigmoid(x):
    x = np.asarray(x, np.float32)
    with np.errstate(over="ignore", under="ignore"):
        return (np.float32(1) / (np.float32(1) + np.exp(-x, dtype=np.float32))).astype(np.float32)


def sqrtsoftplus(x):
    """sqrt(log(1+exp(x))), with softplus(x) = x above 20."""
    x = np.asarray(x, np.float32)
    with np.errstate(over="ignore", under="ignore"):
        sp = np.where(x > np.float32(20), x, np.log1p(np.exp(np.minimum(x, np.float32(20)), dtype=np.float32), dtype=np.float32))
    return np.sqrt(sp, dtype=np.float32)


SCORING = {"softmax": softmax, "sigmoid": sigmoid, "sqrtsoftplus": sqrtsoftplus}


def topk_lowest_index(key, k):
    """Indices of the k largest keys per row, descending, ties to the lowest index."""
    key = np.asarray(key)
    order = np.lexsort((np.broadcast_to(np.arange(key.shape[-1]), key.shape), -key.astype(np.float64)), axis=-1)
    return order[..., :k]


def _renorm(w, on):
    if not on:
        return w
    # sequential float32 sum in output order; 0 or negative sums divide by 1
    s = np.zeros(w.shape[:-1], np.float32)
    for i in range(w.shape[-1]):
        s = (s + w[..., i]).astype(np.float32)
    d = np.where(s > 0, s, np.float32(1))
    return (w / d[..., None]).astype(np.float32)


class RoutingError(ValueError):
    pass


def check_routing(num_experts, top_k, num_expert_group=0, topk_group=0, has_bias=False, scoring_func="softmax"):
    if scoring_func not in SCORING:
        raise RoutingError("unknown scoring_func")
    if not 1 <= top_k <= num_experts:
        raise RoutingError("top_k must be in [1, num_experts]")
    if num_expert_group:
        g = num_expert_group
        if num_experts % g:
            raise RoutingError("num_experts must be a multiple of num_expert_group")
        if not 1 <= topk_group <= g:
            raise RoutingError("topk_group must be in [1, num_expert_group]")
        if has_bias and num_experts // g < 2:
            raise RoutingError("a correction bias needs at least 2 experts per group")
        if top_k > topk_group * (num_experts // g):
            raise RoutingError("top_k exceeds the experts left after group selection")


def select_experts(logits, top_k, *, scoring_func="softmax", renormalize=True,
                   num_expert_group=0, topk_group=0, e_score_correction_bias=None,
                   routed_scaling_factor=1.0):
    """The general router. logits [T, E] of any float dtype -> (weights f32 [T,k], ids i32 [T,k])."""
    x = sanitize(logits)
    T, E = x.shape
    has_bias = e_score_correction_bias is not None
    check_routing(E, top_k, num_expert_group, topk_group, has_bias, scoring_func)
    scores = SCORING[scoring_func](x)
    if has_bias:
        choice = (scores + np.asarray(e_score_correction_bias, np.float32)[None, :]).astype(np.float32)
    else:
        choice = x                       # monotone in the score, immune to exp() rounding
    if num_expert_group:
        per = E // num_expert_group
        g = choice.reshape(T, num_expert_group, per)
        if has_bias:
            top2 = np.sort(g, axis=-1)[..., ::-1][..., :2]
            gscore = (top2[..., 0] + top2[..., 1]).astype(np.float32)
        else:
            gscore = g.max(axis=-1)
        keep = topk_lowest_index(gscore, topk_group)
        mask = np.zeros((T, num_expert_group), bool)
        np.put_along_axis(mask, keep, True, axis=1)
        emask = np.repeat(mask, per, axis=1)
    else:
        emask = np.ones((T, E), bool)
    # experts outside the kept groups may never be chosen, not even before a -inf candidate
    order = np.lexsort((np.broadcast_to(np.arange(E), (T, E)), -choice.astype(np.float64), ~emask), axis=-1)
    ids = order[:, :top_k]
    w = np.take_along_axis(scores, ids, axis=1).astype(np.float32)
    w = _renorm(w, renormalize)
    if routed_scaling_factor != 1.0:
        w = (w * np.float32(routed_scaling_factor)).astype(np.float32)
    return w, ids.astype(np.int32)


def topk_then_softmax(logits, top_k):
    """'Renormalize' in its CPU form: softmax over the k chosen logits only."""
    x = sanitize(logits)
    check_routing(x.shape[1], top_k)
    ids = topk_lowest_index(x, top_k)
    return softmax(np.take_along_axis(x, ids, axis=1)), ids.astype(np.int32)


def topk_raw(logits, top_k):
    """'TopK': the logits themselves are the weights."""
    x = sanitize(logits)
    check_routing(x.shape[1], top_k)
    ids = topk_lowest_index(x, top_k)
    return np.take_along_axis(x, ids, axis=1), ids.astype(np.int32)


def llama4(logits, top_k):
    """top-k on the logits, weight = sigmoid(logit), no renormalisation."""
    return select_experts(logits, top_k, scoring_func="sigmoid", renormalize=False)


def sparsemixer(logits, jitter_eps=0.01):
    """Phi-3.5-MoE: exactly two experts. Computed in the logits' own precision upstream, float32 here."""
    x = np.asarray(logits, np.float32)
    T, E = x.shape
    rows = np.arange(T)

    def pick(masked):
        top = masked.max(axis=1, keepdims=True)
        idx = masked.argmax(axis=1)
        factor = np.maximum(np.abs(x), top)
        with np.errstate(invalid="ignore", divide="ignore"):
            drop = ((top - x) / factor) > np.float32(2 * jitter_eps)
        kept = np.where(drop, NEG_INF, masked)
        return softmax(kept)[rows, idx], idx

    w0, i0 = pick(x)
    rest = x.copy()
    rest[rows, i0] = NEG_INF
    w1, i1 = pick(rest)
    return np.stack([w0, w1], 1).astype(np.float32), np.stack([i0, i1], 1).astype(np.int32)


def hash_route(logits, input_ids, table, *, scoring_func="sqrtsoftplus", renormalize=True, routed_scaling_factor=1.0):
    """Ids come from table[token_id]; weights are the scores of those experts."""
    s = SCORING[scoring_func](sanitize(logits))
    ids = np.asarray(table)[np.asarray(input_ids)]
    w = _renorm(np.take_along_axis(s, ids, axis=1).astype(np.float32), renormalize)
    if routed_scaling_factor != 1.0:
        w = (w * np.float32(routed_scaling_factor)).astype(np.float32)
    return w, ids.astype(np.int32)


def zero_experts(ids, weights, num_real):
    """Identity ('zero') experts have ids >= num_real. Returns (ids, weights, identity_weight[T])."""
    z = ids >= num_real
    ident = np.where(z, weights, np.float32(0)).sum(axis=1, dtype=np.float32)
    return np.where(z, 0, ids).astype(np.int32), np.where(z, np.float32(0), weights).astype(np.float32), ident


# --------------------------------------------------------------------------
# expert placement
# --------------------------------------------------------------------------
def determine_expert_map(ep_size, ep_rank, num_experts, strategy="linear"):
    """(local_count, map|None): map[global] = local index or -1."""
    if ep_size < 1 or not 0 <= ep_rank < ep_size:
        raise RoutingError("ep_rank must be in [0, ep_size)")
    if ep_size == 1:
        return num_experts, None
    base, rem = divmod(num_experts, ep_size)
    n = base + (1 if ep_rank < rem else 0)
    m = np.full(num_experts, -1, np.int32)
    if strategy == "linear":
        start = ep_rank * base + min(ep_rank, rem)
        m[start:start + n] = np.arange(n)
    elif strategy == "round_robin":
        m[ep_rank::ep_size] = np.arange(n)
    else:
        raise RoutingError("unknown placement strategy")
    return n, m


def round_robin_tables(ep_size, ep_rank, num_experts):
    """(global_to_physical, physical_to_global, local_to_global), int64."""
    base, rem = divmod(num_experts, ep_size)
    g = np.arange(num_experts)
    owner = g % ep_size
    g2p = owner * base + np.minimum(owner, rem) + g // ep_size
    p2g = np.empty_like(g2p)
    p2g[g2p] = g
    return g2p.astype(np.int64), p2g.astype(np.int64), np.arange(ep_rank, num_experts, ep_size, dtype=np.int64)


def effective_placement(requested, *, use_ep, ep_size, num_expert_group, num_redundant_experts, enable_eplb,
                        use_all2all_kernels, needs_round_robin_routing_tables):
    if requested != "round_robin":
        return requested
    if use_ep:
        if not (num_expert_group is not None and num_expert_group > 1
                and num_redundant_experts == 0 and not enable_eplb):
            return "linear"
    if ep_size == 1:
        return "linear"
    if use_all2all_kernels and not needs_round_robin_routing_tables:
        return "linear"
    return "round_robin"


def initial_physical_to_logical(num_logical, num_redundant):
    return list(range(num_logical)) + [i % num_logical for i in range(num_redundant)]


def eplb_map(ids, logical_to_physical, replica_count):
    """logical ids [T,k] -> physical ids. Replica chosen by a multiplicative hash of the token index."""
    ids = np.asarray(ids)
    T = ids.shape[0]
    h = (np.arange(T, dtype=np.uint64) * np.uint64(2654435769)) & np.uint64(0xFFFFFFFF)
    ok = (ids >= 0) & (ids < len(replica_count))
    safe = np.where(ok, ids, 0)
    cnt = np.maximum(np.where(ok, np.asarray(replica_count)[safe], 1), 1)
    rep = (h[:, None] % cnt.astype(np.uint64)).astype(np.int64)
    phys = np.asarray(logical_to_physical)[safe, rep]
    return np.where(ok, phys, -1).astype(np.int32)


# --------------------------------------------------------------------------
# token grouping
# --------------------------------------------------------------------------
def tokens_per_expert(ids, num_experts, expert_map=None):
    """Counts per (local) expert; ids < 0 or mapped to -1 are not counted."""
    f = np.asarray(ids).reshape(-1)
    f = f[f >= 0]
    if expert_map is not None:
        f = np.asarray(expert_map)[f]
        f = f[f >= 0]
    return np.bincount(f, minlength=num_experts).astype(np.int32)


def align_block_size(ids, block_size, num_experts, expert_map=None, pad_sorted_ids=False):
    """Blocked grouping. Returns (sorted_ids, block_expert_ids, num_tokens_post_padded)."""
    flat = np.asarray(ids).reshape(-1).astype(np.int64)
    n = flat.size
    cap = n + num_experts * (block_size - 1)
    if pad_sorted_ids:
        cap = -(-cap // block_size) * block_size
    if n < num_experts:
        cap = min(n * block_size, cap)
    nblk = -(-cap // block_size) if cap else 0
    sorted_ids = np.full(cap, n, np.int32)
    blocks = np.full(nblk, -1, np.int32)
    pos = 0
    for e in range(num_experts):
        slots = np.nonzero(flat == e)[0]
        if slots.size == 0:
            continue
        sorted_ids[pos:pos + slots.size] = slots
        nb = -(-slots.size // block_size)
        blocks[pos // block_size:pos // block_size + nb] = e if expert_map is None else expert_map[e]
        pos += nb * block_size
    return sorted_ids, blocks, pos


def permute(ids, num_experts, expert_map=None, num_local=None):
    """Stable grouping of the T*k slots by local expert, foreign slots last.

    Returns dict: src (source slot of each destination row; T*k for rows past the local ones),
    dst (destination row of slot t*k+j), first_token_offset [L+1] int64.
    """
    ids = np.asarray(ids)
    T, k = ids.shape
    L = num_experts if num_local is None else num_local
    key = ids.reshape(-1).astype(np.int64).copy()
    if expert_map is not None:
        loc = np.asarray(expert_map)[key]
        key = np.where(loc >= 0, loc, key + num_experts)
    order = np.argsort(key, kind="stable")
    off = np.zeros(L + 1, np.int64)
    off[1:] = np.cumsum(np.bincount(key[key < L], minlength=L)[:L])
    dst = np.empty(T * k, np.int32)
    dst[order] = np.arange(T * k)
    src = order.astype(np.int32)
    src[off[-1]:] = T * k
    return {"src": src, "dst": dst, "first_token_offset": off}


def unpermute(rows, weights, dst, num_valid):
    """out[t] = sum_j weights[t,j] * rows[dst[t*k+j]], float32, j ascending, foreign rows skipped."""
    T, k = weights.shape
    out = np.zeros((T, rows.shape[1]), np.float32)
    for j in range(k):
        d = dst.reshape(T, k)[:, j]
        ok = d < num_valid
        term = weights[:, j:j + 1].astype(np.float32) * rows[np.where(ok, d, 0)].astype(np.float32)
        out = (out + np.where(ok[:, None], term, np.float32(0))).astype(np.float32)
    return out
