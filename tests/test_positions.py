"""poslib.positions against definitions written with loops, and every error it promises.

Ids such as P70 name public reports of the kind of mistake that a test rules out: P70 Megatron-LM 453
(ids that start anew ignored), P71 Megatron-LM 5243 (packed texts under context parallelism), P72 Automodel
2377 (values of ids ignored), P73 transformers 22161 (left padding), P06 transformers 28685 (ids made in the
default float dtype), P57 vLLM 52416 and its like (32-bit overflow), P97 mlx-vlm 1621 (second chunk).
"""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from conftest import bad_input_test
from poslib import positions as P

KINDS = {"numpy": np.asarray, "torch": lambda x: torch.as_tensor(np.asarray(x))}
kinds = pytest.mark.parametrize("kind", KINDS)
quick = settings(max_examples=50, deadline=None)


def same(got, want, to):
    assert type(got) is type(to(np.zeros(1))) and str(got.dtype).removeprefix("torch.") == "int64"
    assert got.tolist() == want


@kinds
def test_consecutive_positions_start_at_their_offset(kind):
    to = KINDS[kind]
    same(P.consecutive(3, like=to(np.zeros(1))), [0, 1, 2], to)
    same(P.consecutive(2, offsets=to([5, -1])), [[5, 6], [-1, 0]], to)
    same(P.consecutive(2, offsets=to([5, 250]).astype("u1") if kind == "numpy" else torch.tensor([5, 250], dtype=torch.uint8)),
         [[5, 6], [250, 251]], to)
    same(P.consecutive(2, offsets=to(7)), [7, 8], to)
    assert P.consecutive(0).tolist() == [] and isinstance(P.consecutive(1), np.ndarray)


@kinds
@given(st.lists(st.lists(st.booleans(), min_size=5, max_size=5), min_size=1, max_size=4), st.integers(-9, 9), st.booleans())
@quick
def test_a_mask_gives_the_number_of_real_tokens_before(kind, rows, offset, moved):
    to = KINDS[kind]
    want = [[sum(row[:t]) + offset * moved for t in range(5)] for row in rows]
    same(P.from_mask(to(rows), offsets=to([offset] * len(rows)) if moved else None), want, to)


@kinds
def test_padded_rows_hold_the_positions_of_the_unpadded_row(kind):  # P73
    mask = KINDS[kind]([[False, False, True, True, True], [True, True, True, False, False]])
    left, right = P.from_mask(mask).tolist()
    assert left == [0, 0, 0, 1, 2] and right == [0, 1, 2, 3, 3]
    whole = np.random.default_rng(0).random((200, 9)) < 0.5
    assert 0 <= P.from_mask(whole).min() and P.from_mask(whole).max() < 9


@kinds
@given(st.lists(st.integers(0, 6), max_size=6), st.integers(-9, 9))
@quick
def test_each_packed_text_starts_anew(kind, lengths, first):  # P70, P71
    to = KINDS[kind]
    array, offsets = to(np.array(lengths, np.int32)), to(np.arange(first, first + len(lengths)))
    cu = to(np.cumsum([0, *lengths]).astype(np.int32))
    want = [t for n in lengths for t in range(n)]
    moved = [first + text + t for text, n in enumerate(lengths) for t in range(n)]
    same(P.from_lengths(array), want, to)
    same(P.from_cu_seqlens(cu), want, to)
    same(P.from_lengths(array, offsets=offsets), moved, to)
    same(P.from_cu_seqlens(cu, offsets=offsets), moved, to)


def test_a_rank_of_a_zigzag_takes_the_ids_of_its_own_tokens():  # P71
    ids = P.from_cu_seqlens(np.array([0, 4, 8]))
    assert ids[[0, 3, 4, 7]].tolist() == [0, 3, 0, 3]


@kinds
@given(st.lists(st.integers(0, 4), min_size=1, max_size=4), st.integers(-5, 5))
@quick
def test_cells_of_a_grid_are_counted_last_axis_first(kind, sizes, first):
    to = KINDS[kind]
    cells = list(itertools.product(*(range(first + a, first + a + n) for a, n in enumerate(sizes))))
    got = P.grid(*sizes, offsets=[first + a for a in range(len(sizes))], like=to(np.zeros(1)))
    same(got, np.array(cells, np.int64).reshape(-1, len(sizes)).T.tolist(), to)
    same(P.grid(*sizes, like=to(np.zeros(1))), (got - to(np.arange(len(sizes)) + first)[:, None]).tolist(), to)


@kinds
def test_ids_of_text_and_pictures(kind):  # P97
    to = KINDS[kind]
    like = to(np.zeros(1))
    same(P.mrope([3], like=like), [[0, 1, 2]] * 3, to)
    same(P.mrope([], like=like), [[]] * 3, to)
    want = [[7, 8, 9, 9, 9, 9, 9, 9, 12, 13], [7, 8, 9, 9, 9, 10, 10, 10, 12, 13], [7, 8, 9, 10, 11, 9, 10, 11, 12, 13]]
    same(P.mrope([2, (1, 2, 3), 2], start=7, like=like), want, to)
    film = P.mrope([1, (5, 1, 2), 1, (1, 1, 1), 0, (0, 3, 3), 1], like=like)        # the frames count too
    same(film, [[0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 7, 8], [0] + [1] * 10 + [6, 7, 8], [0] + [1, 2] * 5 + [6, 7, 8]], to)
    first = P.mrope([2, (1, 2, 3)], start=7, like=like)                              # continued later
    same(P.mrope([2], start=int(first.max()) + 1, like=like), [row[8:] for row in want], to)


@kinds
@given(st.lists(st.integers(-2**40, 2**40), min_size=1, max_size=5), st.lists(st.integers(-2**40, 2**40), max_size=5))
@quick
def test_lags_are_query_minus_key(kind, i, j):  # P72
    to = KINDS[kind]
    same(P.lags(to(np.array(i)), to(np.array(j, dtype=np.int64))), [[a - b for b in j] for a in i], to)


@kinds
def test_lags_of_rows_and_of_narrow_integers(kind):  # P57
    to = KINDS[kind]
    got = P.lags(to(np.array([[3], [9]])), to(np.array([1, 20])))
    assert got.tolist() == [[[2, -17]], [[8, -11]]]
    for dtype in ("uint8", "int8", "int32"):
        top, bottom = np.iinfo(dtype).max, np.iinfo(dtype).min
        got = P.lags(to(np.array([bottom], dtype)), to(np.array([top], dtype)))
        same(got, [[bottom - top]], to)
    same(P.from_mask(to(np.ones(300, bool)))[-1:], [299], to)
    same(P.from_lengths(to(np.array([200, 200], "u1")))[[199, 200, 399]], [199, 0, 199], to)
    for dtype, ends in (("uint8", [0, 100, 250]), ("int32", [0, 300, 70300])):
        ids = P.from_cu_seqlens(to(np.array(ends, dtype)))
        assert ids.shape[0] == ends[2] and int(ids[ends[1] - 1]) == ends[1] - 1 and int(ids[-1]) == ends[2] - ends[1] - 1


def test_chunks_continue_where_the_last_one_ended():  # P97
    whole = P.consecutive(8)
    assert np.concatenate([P.consecutive(4), P.consecutive(4, offsets=np.array(4))]).tolist() == whole.tolist()


def test_no_default_dtype_reaches_the_ids():  # P06
    torch.set_default_dtype(torch.bfloat16)
    try:
        ids = P.consecutive(4096, like=torch.zeros(1))
        assert ids.dtype == torch.int64 and len(set(ids.tolist())) == 4096
        assert len(set(P.from_mask(torch.ones(4096, dtype=torch.bool)).tolist())) == 4096
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_meta_device_knows_shapes():
    mask = torch.ones(2, 5, dtype=torch.bool, device="meta")
    for got, shape in ((P.from_mask(mask), (2, 5)), (P.consecutive(4, like=mask), (4,)),
                       (P.lags(P.from_mask(mask), P.from_mask(mask)), (2, 5, 5))):
        assert got.shape == shape and got.device.type == "meta" and got.dtype == torch.int64


@kinds
def test_inputs_are_not_changed(kind):
    to = KINDS[kind]
    mask, lengths, cu, offsets = to(np.array([True, False])), to(np.array([2, 1])), to(np.array([0, 2, 3])), to(np.array([4, 5]))
    P.from_mask(mask), P.from_lengths(lengths, offsets=offsets), P.from_cu_seqlens(cu), P.lags(lengths, offsets)
    P.consecutive(3, offsets=offsets)
    assert [x.tolist() for x in (mask, lengths, cu, offsets)] == [[True, False], [2, 1], [0, 2, 3], [4, 5]]


I, M = np.array([1, 2]), np.ones((2, 3), bool)
META = torch.zeros(2, dtype=torch.int64, device="meta")
BAD = {  # what is passed -> error and a piece of its message
    "negative length": (lambda: P.consecutive(-1), ValueError, r"length is -1; allowed is at least 0"),
    "half a length": (lambda: P.consecutive(2.0), TypeError, r"length is 2\.0; allowed is a whole number"),
    "float offsets": (lambda: P.consecutive(2, offsets=np.array([1.0])), TypeError, r"offsets has dtype float64; allowed are integers"),
    "offset number": (lambda: P.consecutive(2, offsets=3), TypeError, r"offsets is a int; allowed are numpy arrays"),
    "like kind": (lambda: P.consecutive(2, offsets=I, like=META), TypeError, r"offsets is a ndarray, like a Tensor"),
    "like device": (lambda: P.consecutive(2, offsets=torch.tensor(1), like=META), ValueError,
                    r"offsets is on device cpu, like on meta: they must share one"),
    "like list": (lambda: P.consecutive(2, like=[1]), TypeError, r"like is a list"),
    "mask list": (lambda: P.from_mask([True]), TypeError, r"mask is a list; allowed are numpy arrays and torch tensors"),
    "mask dtype": (lambda: P.from_mask(I), TypeError, r"mask has dtype int64; allowed is bool, .*write mask == 1"),
    "mask scalar": (lambda: P.from_mask(np.array(True)), ValueError, r"mask has no axis of places"),
    "mask offsets": (lambda: P.from_mask(M, offsets=np.array([1])), ValueError, r"offsets has shape \(1,\); .* \(2,\)"),
    "mask offsets kind": (lambda: P.from_mask(M, offsets=torch.ones(2)), TypeError, r"offsets is a Tensor, mask a ndarray"),
    "mask offsets dtype": (lambda: P.from_mask(M, offsets=np.ones(2)), TypeError, r"offsets has dtype float64"),
    "mask offsets device": (lambda: P.from_mask(torch.ones(2, 3, dtype=torch.bool), offsets=META), ValueError, r"offsets is on device meta"),
    "lengths list": (lambda: P.from_lengths([3]), TypeError, r"lengths is a list"),
    "lengths float": (lambda: P.from_lengths(np.array([1.0])), TypeError, r"lengths has dtype float64"),
    "lengths bool": (lambda: P.from_lengths(np.array([True])), TypeError, r"lengths has dtype bool"),
    "lengths uint64": (lambda: P.from_lengths(np.array([1], np.uint64)), TypeError, r"dtype uint64; .*uint64 excepted"),
    "lengths axes": (lambda: P.from_lengths(np.array([[1]])), ValueError, r"lengths has shape \(1, 1\); allowed is \(texts,\)"),
    "lengths negative": (lambda: P.from_lengths(np.array([2, -3])), ValueError, r"lengths holds -3; allowed are 0 and more"),
    "lengths offsets": (lambda: P.from_lengths(I, offsets=np.array([1])), ValueError, r"offsets has shape \(1,\); .*each text, \(2,\)"),
    "lengths offsets kind": (lambda: P.from_lengths(I, offsets=META), TypeError, r"offsets is a Tensor, lengths a ndarray"),
    "lengths offsets dtype": (lambda: P.from_lengths(I, offsets=np.ones(2)), TypeError, r"offsets has dtype float64"),
    "cu list": (lambda: P.from_cu_seqlens([0, 1]), TypeError, r"cu_seqlens is a list"),
    "cu float": (lambda: P.from_cu_seqlens(np.array([0.0])), TypeError, r"cu_seqlens has dtype float64"),
    "cu empty": (lambda: P.from_cu_seqlens(np.array([], int)), ValueError, r"cu_seqlens has shape \(0,\); allowed is \(texts \+ 1,\)"),
    "cu start": (lambda: P.from_cu_seqlens(np.array([1, 2])), ValueError, r"cu_seqlens starts with 1; allowed is 0"),
    "cu falls": (lambda: P.from_cu_seqlens(np.array([0, 4, 3])), ValueError, r"cu_seqlens falls from 4 to 3"),
    "no axis": (lambda: P.grid(), ValueError, r"sizes is empty; allowed is at least one whole number"),
    "grid size": (lambda: P.grid(2, -1), ValueError, r"sizes is -1; allowed is at least 0"),
    "grid float": (lambda: P.grid(2.0), TypeError, r"sizes is 2\.0; allowed is a whole number"),
    "grid offsets": (lambda: P.grid(2, 3, offsets=(1,)), ValueError, r"offsets is \(1,\), sizes \(2, 3\): allowed is one offset for each axis"),
    "grid offset": (lambda: P.grid(2, offsets=(0.5,)), TypeError, r"offsets holds 0\.5; allowed are whole numbers"),
    "grid like": (lambda: P.grid(2, like=[1]), TypeError, r"like is a list"),
    "parts": (lambda: P.mrope(3), TypeError, r"parts is 3; allowed are whole numbers and \(t, rows, columns\)"),
    "part negative": (lambda: P.mrope([2, -1]), ValueError, r"parts is -1; allowed is at least 0"),
    "part float": (lambda: P.mrope([2.0]), TypeError, r"parts is 2\.0; allowed is a whole number"),
    "picture of two": (lambda: P.mrope([(2, 3)]), ValueError, r"parts holds \(2, 3\); allowed are whole numbers and \(t, rows, columns\)"),
    "picture negative": (lambda: P.mrope([(1, 2, -3)]), ValueError, r"parts is -3; allowed is at least 0"),
    "start": (lambda: P.mrope([2], start=0.5), TypeError, r"start holds 0\.5; allowed are whole numbers"),
    "lags float": (lambda: P.lags(I, np.ones(2)), TypeError, r"key_positions has dtype float64; allowed are integers"),
    "lags kinds": (lambda: P.lags(I, META), TypeError, r"key_positions is a Tensor, query_positions a ndarray"),
    "lags scalar": (lambda: P.lags(np.array(1), I), ValueError, r"query_positions has no axis"),
    "lags rows": (lambda: P.lags(np.ones((2, 3), int), np.ones((4, 3), int)), ValueError,
                  r"\(2,\) of query_positions and \(4,\) of key_positions do not broadcast"),
    "lags device": (lambda: P.lags(torch.tensor([1]), META), ValueError, r"key_positions is on device meta, query_positions on cpu"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
