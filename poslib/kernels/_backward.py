"""Attention backward (Dao 2023, arXiv 2307.08691, algorithm 2) from queries and keys that were kept turned.

The weights are formed again from the scores and the log-sum-exp of each row.  Nothing is turned in the loops: gradients
come out in the turned frame and are turned back, by the negative angle, just before they are stored.  Each program owns
the rows that it writes, the heads of a group are summed in it: no atomics, the same bits each time.
"""

from poslib.kernels._common import LOG2E, loaded_operand, operand, tl, triton
from poslib.kernels._forward import (channels, halves_to_pairs, key_range, load_halves, load_rows, pairs_to_halves, store_halves,
                                     store_rows, turned, visible)


@triton.jit
def weights(s, scale2, see, lse):
    """Weights of scores; of a row that sees no key (its lse is -inf) all are hidden, and 0."""
    return tl.where(see, tl.math.exp2(s * scale2 - tl.where(lse == float("-inf"), 0.0, lse)), 0.0)


@triton.jit
def turn_back(x1, x2, COS, SIN, row, ok, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Gradient of what was turned: the turn by the negative angle."""
    if INTERLEAVED:
        x1, x2 = halves_to_pairs(x1, x2)
        x1, x2 = turned(x1, x2, COS, SIN, row, ok, True, HALF, PAIRS)
        return pairs_to_halves(x1, x2)
    else:
        return turned(x1, x2, COS, SIN, row, ok, True, HALF, PAIRS)


@triton.jit(do_not_specialize=["queries", "keys", "offset", "heads", "st_q"])
def query_gradient_kernel(Q, K, V, O, DO, DQ, LSE, DELTA, COS_Q, SIN_Q, SLOPES, scale, queries, keys, offset, heads,
                          sq_b, sq_h, sq_l, sk_b, sk_h, sk_l, sv_b, sv_h, sv_l, so_b, so_h, so_l, sg_b, sg_h, sg_l,
                          sd_b, sd_h, sd_l, st_q,
                          D: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr, PAIRS: tl.constexpr,
                          INTERLEAVED: tl.constexpr, ROTATE_Q: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
                          ALIBI: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr):
    """Grid (tiles of queries, heads, batch).  Also leaves DELTA, the sum of O·DO of each row, for the gradients of keys."""
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    tile = tl.program_id(0)
    if CAUSAL:
        tile = tl.num_programs(0) - 1 - tile
    m0 = tile * BLOCK_M
    far = tl.cast(m0, tl.int64)
    lane = tl.arange(0, BLOCK_M)
    ok = m0 + lane < queries
    query = offset + m0 + lane
    column = tl.arange(0, 2 * HALF)
    PAD: tl.constexpr = 2 * HALF != D
    c1, c2, use1, use2 = channels(D, HALF, PAIRS, INTERLEAVED)
    q1, q2 = load_halves(Q + batch * sq_b + head * sq_h + far * sq_l + lane * sq_l, ok, D, HALF, PAIRS, INTERLEAVED, True)
    kind: tl.constexpr = q1.dtype
    q1 = loaded_operand(q1)
    q2 = loaded_operand(q2)
    o = load_rows(O + batch * so_b + head * so_h + far * so_l + lane * so_l, ok, column, column < D, True, PAD)
    g = load_rows(DO + batch * sg_b + head * sg_h + far * sg_l + lane * sg_l, ok, column, column < D, True, PAD)
    delta = tl.sum(o.to(tl.float32) * g.to(tl.float32), 1)
    g = loaded_operand(g)
    flat = (batch * heads + head) * queries + m0
    tl.store(DELTA + flat + lane, delta, mask=ok)
    lse = tl.load(LSE + flat + lane, mask=ok, other=0.0)
    slope = 0.0
    if ALIBI:
        slope = tl.load(SLOPES + head) / scale
    K += batch * sk_b + head // GROUP * sk_h
    V += batch * sv_b + head // GROUP * sv_h
    last = offset + tl.minimum(m0 + BLOCK_M, queries) - 1
    low, high, start, all_from, all_to = key_range(offset + m0, last, keys, BLOCK_N, CAUSAL, WINDOW)
    d1 = tl.zeros((BLOCK_M, HALF), tl.float32)
    d2 = tl.zeros((BLOCK_M, HALF), tl.float32)
    step = tl.arange(0, BLOCK_N)
    for begin in range(start, high, BLOCK_N):
        key = begin + step
        away = tl.cast(begin, tl.int64)
        there = (key >= low) & (key < high)
        k_rows = K + away * sk_l + step * sk_l
        k1 = loaded_operand(load_rows(k_rows, there, c1, use1, True, PAD))
        k2 = loaded_operand(load_rows(k_rows, there, c2, use2, True, PAD))
        v = loaded_operand(load_rows(V + away * sv_l + step * sv_l, there, column, column < D, True, PAD))
        s = tl.dot(q1, tl.trans(k1), input_precision=PRECISION)
        s = tl.dot(q2, tl.trans(k2), s, input_precision=PRECISION)
        if ALIBI:
            s -= slope * tl.abs(query[:, None] - key[None, :]).to(tl.float32)
        p = weights(s, scale * LOG2E, visible(key[None, :], query[:, None], low, high, CAUSAL, WINDOW), lse[:, None])
        ds = operand(p * (tl.dot(g, tl.trans(v), input_precision=PRECISION) - delta[:, None]), kind)
        d1 = tl.dot(ds, k1, d1, input_precision=PRECISION)
        d2 = tl.dot(ds, k2, d2, input_precision=PRECISION)
    d1 *= scale
    d2 *= scale
    if ROTATE_Q:
        table = (batch * st_q + m0) * PAIRS
        d1, d2 = turn_back(d1, d2, COS_Q + table, SIN_Q + table, lane, ok, HALF, PAIRS, INTERLEAVED)
    store_halves(DQ + batch * sd_b + head * sd_h + far * sd_l + lane * sd_l, ok, d1, d2, D, HALF, PAIRS, INTERLEAVED)


@triton.jit(do_not_specialize=["queries", "keys", "offset", "heads", "st_k"])
def key_gradient_kernel(Q, K, V, DO, DK, DV, LSE, DELTA, COS_K, SIN_K, SLOPES, scale, queries, keys, offset, heads,
                        sq_b, sq_h, sq_l, sk_b, sk_h, sk_l, sv_b, sv_h, sv_l, sg_b, sg_h, sg_l,
                        sdk_b, sdk_h, sdk_l, sdv_b, sdv_h, sdv_l, st_k,
                        D: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr, PAIRS: tl.constexpr,
                        INTERLEAVED: tl.constexpr, ROTATE_K: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr,
                        ALIBI: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, PRECISION: tl.constexpr):
    """Grid (tiles of keys, heads of keys, batch).

    Scores stand transposed, (keys, queries): the products that sum over queries then need no transpose in registers.
    """
    kv_head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    n0 = tl.program_id(0) * BLOCK_N
    far = tl.cast(n0, tl.int64)
    lane = tl.arange(0, BLOCK_N)
    key = n0 + lane
    ok = key < keys
    column = tl.arange(0, 2 * HALF)
    PAD: tl.constexpr = 2 * HALF != D
    c1, c2, use1, use2 = channels(D, HALF, PAIRS, INTERLEAVED)
    # Queries whose tiles may see these keys.
    start = 0
    stop = queries
    if CAUSAL:
        start = tl.maximum(n0 - offset, 0)
    elif WINDOW > 0:
        start = tl.maximum(n0 - WINDOW + 1 - offset, 0)
    if WINDOW > 0:
        stop = tl.minimum(stop, n0 + BLOCK_N + WINDOW - 1 - offset)
    # Keys that no query sees may be anything, NaN too, and their gradient is 0: they are not read.
    unseen = 0
    seen = keys
    if CAUSAL:
        seen = tl.minimum(seen, offset + queries)
    elif WINDOW > 0:
        seen = tl.minimum(seen, offset + queries + WINDOW - 1)
    if WINDOW > 0:
        unseen = tl.maximum(offset - WINDOW + 1, 0)
    read = (key >= unseen) & (key < seen)
    k1, k2 = load_halves(K + batch * sk_b + kv_head * sk_h + far * sk_l + lane * sk_l, read, D, HALF, PAIRS, INTERLEAVED, True)
    kind: tl.constexpr = k1.dtype
    k1 = loaded_operand(k1)
    k2 = loaded_operand(k2)
    v = loaded_operand(load_rows(V + batch * sv_b + kv_head * sv_h + far * sv_l + lane * sv_l, read, column, column < D, True, PAD))
    dk1 = tl.zeros((BLOCK_N, HALF), tl.float32)
    dk2 = tl.zeros((BLOCK_N, HALF), tl.float32)
    dv = tl.zeros((BLOCK_N, 2 * HALF), tl.float32)
    step = tl.arange(0, BLOCK_M)
    for member in range(0, GROUP):
        head = kv_head * GROUP + member
        flat = (batch * heads + head) * queries
        slope = 0.0
        if ALIBI:
            slope = tl.load(SLOPES + head) / scale
        for begin in range(start, stop, BLOCK_M):
            row = begin + step
            away = tl.cast(begin, tl.int64)
            there = row < queries
            query = offset + row
            q_rows = Q + batch * sq_b + head * sq_h + away * sq_l + step * sq_l
            q1 = loaded_operand(load_rows(q_rows, there, c1, use1, True, PAD))
            q2 = loaded_operand(load_rows(q_rows, there, c2, use2, True, PAD))
            g = loaded_operand(load_rows(DO + batch * sg_b + head * sg_h + away * sg_l + step * sg_l, there, column,
                                         column < D, True, PAD))
            lse = tl.load(LSE + flat + row, mask=there, other=float("inf"))         # no row: weight 0
            delta = tl.load(DELTA + flat + row, mask=there, other=0.0)
            s = tl.dot(k1, tl.trans(q1), input_precision=PRECISION)
            s = tl.dot(k2, tl.trans(q2), s, input_precision=PRECISION)
            if ALIBI:
                s -= slope * tl.abs(query[None, :] - key[:, None]).to(tl.float32)
            p = weights(s, scale * LOG2E, visible(key[:, None], query[None, :], unseen, seen, CAUSAL, WINDOW), lse[None, :])
            dv = tl.dot(operand(p, kind), g, dv, input_precision=PRECISION)
            ds = operand(p * (tl.dot(v, tl.trans(g), input_precision=PRECISION) - delta[None, :]), kind)
            dk1 = tl.dot(ds, q1, dk1, input_precision=PRECISION)
            dk2 = tl.dot(ds, q2, dk2, input_precision=PRECISION)
    dk1 *= scale
    dk2 *= scale
    if ROTATE_K:
        table = (batch * st_k + n0) * PAIRS
        dk1, dk2 = turn_back(dk1, dk2, COS_K + table, SIN_K + table, lane, ok, HALF, PAIRS, INTERLEAVED)
    store_halves(DK + batch * sdk_b + kv_head * sdk_h + far * sdk_l + lane * sdk_l, ok, dk1, dk2, D, HALF, PAIRS, INTERLEAVED)
    store_rows(DV + batch * sdv_b + kv_head * sdv_h + far * sdv_l + lane * sdv_l, ok, dv, D, 2 * HALF)
