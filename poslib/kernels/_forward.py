"""Attention forward, one tile of queries against all keys that it may see (Dao 2023, arXiv 2307.08691).

A tile of queries or keys is held as two halves of its channels, x1 and x2, so that pair k of the rotary layout
"half" is (x1[k], x2[k]) and turning it moves nothing.  A score is x1·y1 + x2·y2: two products instead of one,
of half the depth.  Which channels are in which half does not matter to it, as long as queries and keys agree.
"""

from poslib.kernels._common import LOG2E, loaded_operand, operand, rounded, tl, triton, turn


@triton.jit
def channels(D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr):
    """Channels of the two halves, and which of the HALF lanes (a power of two) are in use.

    With a partial width the channels that do not turn are shared out behind the PAIRS that do.
    """
    lane = tl.arange(0, HALF)
    if INTERLEAVED:                     # halves as they lie in memory: pairs are formed and undone in registers
        return lane, lane + HALF, lane < D, lane + HALF < D
    elif 2 * PAIRS == D:
        return lane, lane + D // 2, lane < D // 2, lane < D // 2
    else:
        return (tl.where(lane < PAIRS, lane, lane + PAIRS), tl.where(lane < PAIRS, lane + PAIRS, lane + D // 2),
                lane < D // 2, lane < D // 2)


@triton.jit
def load_rows(rows, ok, column, in_use, SOME_ROWS: tl.constexpr, SOME_COLUMNS: tl.constexpr):
    """Tile (rows, columns); zero in rows that are not `ok` and columns not `in_use`, asked only where there may be some."""
    where = rows[:, None] + column[None, :]
    if SOME_ROWS and SOME_COLUMNS:
        return tl.load(where, mask=ok[:, None] & in_use[None, :], other=0.0)
    elif SOME_ROWS:
        return tl.load(where, mask=ok[:, None], other=0.0)
    elif SOME_COLUMNS:
        return tl.load(where, mask=in_use[None, :], other=0.0)
    else:
        return tl.load(where)


@triton.jit
def load_halves(rows, ok, D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr,
                SOME_ROWS: tl.constexpr):
    c1, c2, use1, use2 = channels(D, HALF, PAIRS, INTERLEAVED)
    return load_rows(rows, ok, c1, use1, SOME_ROWS, 2 * HALF != D), load_rows(rows, ok, c2, use2, SOME_ROWS, 2 * HALF != D)


@triton.jit
def load_pairs(rows, ok, D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr,
               SOME_ROWS: tl.constexpr):
    """Halves whose lanes are pairs.  Interleaved rows are read whole and split: every other channel would be a narrow read."""
    if INTERLEAVED:
        column = tl.arange(0, 2 * HALF)
        x = load_rows(rows, ok, column, column < D, SOME_ROWS, 2 * HALF != D)
        return tl.split(tl.reshape(x, (x.shape[0], HALF, 2)))
    else:
        return load_halves(rows, ok, D, HALF, PAIRS, False, SOME_ROWS)


@triton.jit
def pairs_to_halves(x1, x2):
    """Interleaved pairs, (rows, HALF) each, as the two halves of a row in memory."""
    x = tl.reshape(tl.join(x1, x2), (x1.shape[0], 2, x1.shape[1]))
    return tl.split(tl.permute(x, (0, 2, 1)))


@triton.jit
def halves_to_pairs(x1, x2):
    x = tl.reshape(tl.permute(tl.join(x1, x2), (0, 2, 1)), (x1.shape[0], x1.shape[1], 2))
    return tl.split(x)


@triton.jit
def turned(x1, x2, COS, SIN, row, ok, BACK: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr):
    """Pairs turned in float32 by row `row` of the tables (rows, PAIRS); lanes behind PAIRS stay as they are."""
    pair = tl.arange(0, HALF)
    where = row[:, None] * PAIRS + pair[None, :]
    if HALF == PAIRS:
        there = ok[:, None]
    else:
        there = ok[:, None] & (pair < PAIRS)[None, :]
    cos = tl.load(COS + where, mask=there, other=1.0).to(tl.float32)
    sin = tl.load(SIN + where, mask=there, other=0.0).to(tl.float32)
    if BACK:
        sin = -sin
    return turn(x1.to(tl.float32), x2.to(tl.float32), cos, sin)


@triton.jit
def load_queries(rows, ok, COS, SIN, table_row, D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr,
                 INTERLEAVED: tl.constexpr, ROTATE_Q: tl.constexpr, ROTATE_K: tl.constexpr):
    """Halves of a tile of queries, turned and rounded once, in the order in which the loop reads keys.

    Keys that come turned lie in memory as they are, so interleaved queries go back into that order, once for the tile:
    the loop is the one without rotation.
    """
    if ROTATE_Q:
        q1, q2 = load_pairs(rows, ok, D, HALF, PAIRS, INTERLEAVED, True)
        t1, t2 = turned(q1, q2, COS, SIN, table_row, ok, False, HALF, PAIRS)
        q1 = operand(t1, q1.dtype)
        q2 = operand(t2, q2.dtype)
        if INTERLEAVED and not ROTATE_K:
            q1, q2 = pairs_to_halves(q1, q2)
        return q1, q2
    else:
        q1, q2 = load_halves(rows, ok, D, HALF, PAIRS, INTERLEAVED, True)
        return loaded_operand(q1), loaded_operand(q2)


@triton.jit
def key_range(first, last, keys, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Keys that queries at first, …, last of the key axis see: (low, high), and the blocks in it that all of them see whole.

    Blocks from `start` (low, rounded down) to `all_from` and from `all_to` to high need a mask; those between need none.
    """
    low = 0
    high = keys
    all_to = keys
    all_from = 0
    if CAUSAL:
        high = tl.minimum(high, last + 1)
        all_to = tl.minimum(all_to, first + 1)
    elif WINDOW > 0:
        high = tl.minimum(high, last + WINDOW)
        all_to = tl.minimum(all_to, first + WINDOW)
    if WINDOW > 0:
        low = tl.maximum(first - WINDOW + 1, 0)
        all_from = tl.maximum(last - WINDOW + 1, 0)
    start = low // BLOCK_N * BLOCK_N
    all_from = (all_from + BLOCK_N - 1) // BLOCK_N * BLOCK_N
    all_to = tl.maximum(tl.maximum(all_to, 0) // BLOCK_N * BLOCK_N, all_from)
    return low, high, start, all_from, all_to


@triton.jit
def visible(key, query, low, high, CAUSAL: tl.constexpr, WINDOW: tl.constexpr):
    """Which keys each query sees; `key` and `query` broadcast to the shape of the scores, either way round."""
    see = (key >= low) & (key < high)
    if CAUSAL:
        see = see & (key <= query)
    if WINDOW > 0:
        see = see & (key > query - WINDOW)
        if not CAUSAL:
            see = see & (key < query + WINDOW)
    return see


@triton.jit
def attend(acc, top, total, q1, q2, query, K, V, COS_K, SIN_K, slope, scale2, low, high, start, stop, sk_l, sv_l,
           D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, ROTATE_K: tl.constexpr,
           CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ALIBI: tl.constexpr, MASKED: tl.constexpr, BLOCK_N: tl.constexpr,
           PRECISION: tl.constexpr):
    """Take the keys start, …, stop - 1 in: the sum of weighted values, the largest score, the sum of weights.

    Scores are not scaled: the scale goes into the exponent of 2, where it is part of a fused multiply-add.
    """
    lane = tl.arange(0, BLOCK_N)
    column = tl.arange(0, 2 * HALF)
    c1, c2, use1, use2 = channels(D, HALF, PAIRS, INTERLEAVED)
    PAD: tl.constexpr = 2 * HALF != D
    for begin in range(start, stop, BLOCK_N):
        key = begin + lane
        # Rows that no query of the tile sees are not read: behind the end of a cache lies anything, NaN too.
        ok = (key >= low) & (key < high)
        far = tl.cast(begin, tl.int64)              # its product with a stride can pass 2³¹; within a tile none does
        k_rows = K + far * sk_l + lane * sk_l
        v_rows = V + far * sv_l + lane * sv_l
        if ROTATE_K:
            raw1, raw2 = load_pairs(k_rows, ok, D, HALF, PAIRS, INTERLEAVED, MASKED)
            t1, t2 = turned(raw1, raw2, COS_K + far * PAIRS, SIN_K + far * PAIRS, lane, ok, False, HALF, PAIRS)
            k1 = operand(t1, raw1.dtype)
            k2 = operand(t2, raw2.dtype)
        else:
            k1 = loaded_operand(load_rows(k_rows, ok, c1, use1, MASKED, PAD))
            k2 = loaded_operand(load_rows(k_rows, ok, c2, use2, MASKED, PAD))
        s = tl.dot(q1, tl.trans(k1), input_precision=PRECISION)
        s = tl.dot(q2, tl.trans(k2), s, input_precision=PRECISION)
        if ALIBI:
            s -= slope * tl.abs(query[:, None] - key[None, :]).to(tl.float32)
        if MASKED:
            s = tl.where(visible(key[None, :], query[:, None], low, high, CAUSAL, WINDOW), s, float("-inf"))
        new = tl.maximum(top, tl.max(s, 1))
        if MASKED:                      # a row may have seen no key yet: -inf - -inf would be NaN
            safe = tl.where(new == float("-inf"), 0.0, new)
        else:
            safe = new
        p = tl.math.exp2(s * scale2 - (safe * scale2)[:, None])
        fade = tl.math.exp2((top - safe) * scale2)
        total = total * fade + tl.sum(p, 1)
        v = load_rows(v_rows, ok, column, column < D, MASKED, PAD)
        acc = tl.dot(operand(p, v.dtype), loaded_operand(v), acc * fade[:, None], input_precision=PRECISION)
        top = new
    return acc, top, total


@triton.jit
def attend_range(q1, q2, query, first, last, keys, begin, end, K, V, COS_K, SIN_K, slope, scale2, sk_l, sv_l,
                 D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr, ROTATE_K: tl.constexpr,
                 CAUSAL: tl.constexpr, WINDOW: tl.constexpr, ALIBI: tl.constexpr, BLOCK_M: tl.constexpr,
                 BLOCK_N: tl.constexpr, PRECISION: tl.constexpr):
    """Output rows and their log2-sum-exp, over those keys begin, …, end - 1 (whole blocks) that the queries see."""
    acc = tl.zeros((BLOCK_M, 2 * HALF), tl.float32)
    top = tl.full((BLOCK_M,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK_M,), tl.float32)
    low, high, start, all_from, all_to = key_range(first, last, keys, BLOCK_N, CAUSAL, WINDOW)
    low = tl.maximum(low, begin)
    high = tl.minimum(high, end)
    start = tl.maximum(start, begin)
    all_from = tl.maximum(all_from, begin)
    all_to = tl.maximum(tl.minimum(all_to, end), all_from)
    if WINDOW > 0:
        acc, top, total = attend(acc, top, total, q1, q2, query, K, V, COS_K, SIN_K, slope, scale2, low, high, start,
                                 tl.minimum(all_from, high), sk_l, sv_l, D, HALF, PAIRS, INTERLEAVED, ROTATE_K, CAUSAL, WINDOW,
                                 ALIBI, True, BLOCK_N, PRECISION)
    acc, top, total = attend(acc, top, total, q1, q2, query, K, V, COS_K, SIN_K, slope, scale2, low, high, all_from, all_to,
                             sk_l, sv_l, D, HALF, PAIRS, INTERLEAVED, ROTATE_K, CAUSAL, WINDOW, ALIBI, False, BLOCK_N, PRECISION)
    acc, top, total = attend(acc, top, total, q1, q2, query, K, V, COS_K, SIN_K, slope, scale2, low, high, all_to, high,
                             sk_l, sv_l, D, HALF, PAIRS, INTERLEAVED, ROTATE_K, CAUSAL, WINDOW, ALIBI, True, BLOCK_N, PRECISION)
    some = tl.where(total == 0.0, 1.0, total)
    lse = tl.where(total == 0.0, float("-inf"), top * scale2 + tl.math.log2(some))
    return acc / some[:, None], lse             # a row that sees no key is 0


@triton.jit(do_not_specialize=["queries", "keys", "offset", "heads", "st_q", "st_k"])
def forward_kernel(Q, K, V, O, LSE, SAVED_Q, COS_Q, SIN_Q, COS_K, SIN_K, SLOPES, scale, queries, keys, offset, heads,
                   sq_b, sq_h, sq_l, sk_b, sk_h, sk_l, sv_b, sv_h, sv_l, so_b, so_h, so_l, st_q, st_k,
                   D: tl.constexpr, HALF: tl.constexpr, GROUP: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr,
                   ROTATE_Q: tl.constexpr, ROTATE_K: tl.constexpr, SAVE: tl.constexpr, CAUSAL: tl.constexpr,
                   WINDOW: tl.constexpr, ALIBI: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
                   PRECISION: tl.constexpr):
    """Grid (tiles of queries, heads, batch).  Query i stands at offset + i of the key axis.

    Row i of the query tables belongs to query i, row j of the key tables to key j; st_q and st_k are the rows from one entry of
    the batch to the next (0: shared).  With SAVE the turned queries, laid out (batch, heads, queries, D), and the
    log2-sum-exp of each row (batch, heads, queries) are kept for the backward pass.
    """
    head = tl.cast(tl.program_id(1), tl.int64)
    batch = tl.cast(tl.program_id(2), tl.int64)
    tile = tl.program_id(0)
    if CAUSAL:                          # the last tiles see most keys: begin with them
        tile = tl.num_programs(0) - 1 - tile
    m0 = tile * BLOCK_M
    far = tl.cast(m0, tl.int64)
    lane = tl.arange(0, BLOCK_M)
    ok = m0 + lane < queries
    query = offset + m0 + lane
    q_rows = Q + batch * sq_b + head * sq_h + far * sq_l + lane * sq_l
    table = (batch * st_q + m0) * PAIRS
    q1, q2 = load_queries(q_rows, ok, COS_Q + table, SIN_Q + table, lane, D, HALF, PAIRS, INTERLEAVED, ROTATE_Q, ROTATE_K)
    flat = (batch * heads + head) * queries + m0
    if SAVE and ROTATE_Q:
        store_halves(SAVED_Q + flat * D + lane * D, ok, q1, q2, D, HALF, PAIRS, INTERLEAVED)
    slope = 0.0
    if ALIBI:
        slope = tl.load(SLOPES + head) / scale          # in units of the unscaled score
    o, lse = attend_range(q1, q2, query, offset + m0, offset + tl.minimum(m0 + BLOCK_M, queries) - 1, keys, 0, keys,
                          K + batch * sk_b + head // GROUP * sk_h, V + batch * sv_b + head // GROUP * sv_h,
                          COS_K + batch * st_k * PAIRS, SIN_K + batch * st_k * PAIRS, slope, scale * LOG2E, sk_l, sv_l,
                          D, HALF, PAIRS, INTERLEAVED, ROTATE_K, CAUSAL, WINDOW, ALIBI, BLOCK_M, BLOCK_N, PRECISION)
    store_rows(O + batch * so_b + head * so_h + far * so_l + lane * so_l, ok, o, D, 2 * HALF)
    if SAVE:
        tl.store(LSE + flat + lane, lse, mask=ok)


@triton.jit
def store_rows(rows, ok, x, D: tl.constexpr, COLUMNS: tl.constexpr):
    column = tl.arange(0, COLUMNS)
    if COLUMNS == D:
        there = ok[:, None]
    else:
        there = ok[:, None] & (column < D)[None, :]
    tl.store(rows[:, None] + column[None, :], rounded(x, rows.dtype.element_ty), mask=there)


@triton.jit
def store_halves(rows, ok, x1, x2, D: tl.constexpr, HALF: tl.constexpr, PAIRS: tl.constexpr, INTERLEAVED: tl.constexpr):
    c1, c2, use1, use2 = channels(D, HALF, PAIRS, INTERLEAVED)
    kind: tl.constexpr = rows.dtype.element_ty
    tl.store(rows[:, None] + c1[None, :], rounded(x1, kind), mask=ok[:, None] & use1[None, :])
    tl.store(rows[:, None] + c2[None, :], rounded(x2, kind), mask=ok[:, None] & use2[None, :])
