"""Attention of a few new queries against a long cache: the keys are split over programs, so that a batch of one fills a GPU.

Two launches: each program of the first attends to a stretch of the keys, for all query heads that share them, so a key is
read once for its group; the second weighs the stretches by their log-sum-exp (Dao et al. 2023, "Flash-Decoding").
"""

from poslib.kernels._common import LOG2E, rounded, tl, triton
from poslib.kernels._forward import attend_range, load_queries, store_rows


@triton.jit(do_not_specialize=["queries", "keys", "offset", "heads", "origin", "stretch", "st_q", "st_k"])
def decode_kernel(Q, K, V, PART, LSE, COS_Q, SIN_Q, COS_K, SIN_K, SLOPES, scale, queries, keys, offset, heads, origin,
                  stretch, sq_b, sq_h, sq_l, sk_b, sk_h, sk_l, sv_b, sv_h, sv_l, st_q, st_k,
                  D: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr,
                  ROTATE_Q: tl.constexpr, ROTATE_K: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
                  ALIBI: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr):
    """Grid (stretches, heads of keys, batch).  Row r of the tile is query r // GROUP of head r % GROUP of the group.
    Stretches of `stretch` keys begin at `origin`, both whole blocks.

    PART (stretches, batch, heads, queries, D) and LSE without the last axis, both float32.
    """
    stretch_id = tl.program_id(0)
    kv_head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    row = tl.arange(0, BLOCK_M)
    token = row // GROUP
    ok = token < queries
    head = kv_head * GROUP + row % GROUP
    q_rows = Q + batch * sq_b + head * sq_h + token * sq_l
    table = batch * st_q * PAIRS
    q1, q2 = load_queries(q_rows, ok, COS_Q + table, SIN_Q + table, token, D, HALF, PAIRS, INTERLEAVED, ROTATE_Q, ROTATE_K)
    slope = 0.0
    if ALIBI:
        slope = tl.load(SLOPES + head, mask=ok, other=0.0)[:, None] / scale
    begin = origin + stretch_id * stretch
    o, lse = attend_range(q1, q2, offset + token, offset, offset + queries - 1, keys, begin, begin + stretch,
                          K + batch * sk_b + kv_head * sk_h, V + batch * sv_b + kv_head * sv_h,
                          COS_K + batch * st_k * PAIRS, SIN_K + batch * st_k * PAIRS, slope, scale * LOG2E, sk_l, sv_l,
                          D, HALF, PAIRS, INTERLEAVED, ROTATE_K, CAUSAL, WINDOW, ALIBI, BLOCK_M, BLOCK_N, PRECISION)
    batches = tl.num_programs(2)
    flat = ((tl.cast(stretch_id, tl.int64) * batches + batch) * heads + head) * queries + token
    store_rows(PART + flat * D, ok, o, D, 2 * HALF)
    tl.store(LSE + flat, lse, mask=ok)


@triton.jit(do_not_specialize=["stretches", "queries", "heads"])
def combine_kernel(PART, LSE, O, stretches, queries, heads, so_b, so_h, so_l, D: tl.constexpr, COLUMNS: tl.constexpr,
                   STRETCHES: tl.constexpr):
    """Grid (queries, heads, batch); STRETCHES is a power of two, at least the number of stretches."""
    query = tl.cast(tl.program_id(0), tl.int64)
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    part = tl.arange(0, STRETCHES)
    column = tl.arange(0, COLUMNS)
    ok = part < stretches
    flat = ((tl.cast(part, tl.int64) * tl.num_programs(2) + batch) * heads + head) * queries + query
    lse = tl.load(LSE + flat, mask=ok, other=float("-inf"))
    top = tl.max(lse, 0)
    weight = tl.math.exp2(lse - tl.where(top == float("-inf"), 0.0, top))
    x = tl.load(PART + flat[:, None] * D + column[None, :], mask=ok[:, None] & (column < D)[None, :], other=0.0)
    total = tl.sum(weight, 0)
    o = tl.sum(x * weight[:, None], 0) / tl.where(total == 0.0, 1.0, total)
    tl.store(O + batch * so_b + head * so_h + query * so_l + column, rounded(o, O.dtype.element_ty), mask=column < D)
