"""poslib.multiaxis: which axis turns which pair, by hand, and the errors it promises.  What rotation does with it: test_rotary.py."""

import numpy as np
import pytest

from conftest import bad_input_test
from poslib import multiaxis as M
from poslib import positions, rotary


def test_axial_blocks_have_the_full_range_of_frequencies_each():
    assert M.axial_axes(8).tolist() == [0, 0, 1, 1] and M.axial_axes(12, 3).tolist() == [0, 0, 1, 1, 2, 2] and M.axial_axes(2, 1).tolist() == [0]
    assert M.axial_axes(64).dtype == np.int64 and M.axial_frequencies(64).dtype == np.float64
    assert M.axial_frequencies(8, base=256.0).tolist() == [1.0, 0.0625, 1.0, 0.0625]
    assert M.axial_frequencies(24, 3, 500.0).tolist() == rotary.frequencies(8, 500.0).tolist() * 3


def test_the_angles_of_a_cell():
    ids = positions.grid(3, 3)
    cell = rotary.angles(ids, M.axial_frequencies(8), axes=M.axial_axes(8))[ids.T.tolist().index([1, 2])]
    np.testing.assert_allclose(cell, [1, 0.01, 2, 0.02], rtol=1e-15)


def test_scores_of_axial_rope_depend_on_rows_and_columns_apart():
    q, k = np.random.default_rng(0).normal(size=(2, 1, 16))
    at = lambda x, r, c: rotary.rotate(x, np.array([[r], [c]]), layout="half", axes=M.axial_axes(16), frequencies=M.axial_frequencies(16))
    score = lambda i, j: (at(q, *i) * at(k, *j)).sum()
    assert abs(score((5, 2), (3, 9)) - score((105, -2), (103, 5))) < 1e-13
    assert abs(score((5, 2), (3, 9)) - score((5, 2), (9, 3))) > 0.1


@pytest.mark.parametrize("sections, order, want", [
    ((16, 24, 24), "chunked", [0] * 16 + [1] * 24 + [2] * 24),                                # Qwen2-VL
    ((24, 20, 20), "interleaved", [0, 1, 2] * 20 + [0] * 4),                                  # Qwen3-VL
    ((3, 2, 1), "interleaved", [0, 1, 2, 0, 1, 0]), ((3, 2, 1), "chunked", [0, 0, 0, 1, 1, 2]),
    ((4,), "interleaved", [0] * 4), ((2, 2), "interleaved", [0, 1, 0, 1]), ([np.int64(1), 1], "chunked", [0, 1]),
])
def test_sections(sections, order, want):
    got = M.mrope_axes(sections, order=order)
    assert got.tolist() == want and got.dtype == np.int64


BAD = {  # what is passed -> error and a piece of its message
    "width": (lambda: M.axial_axes(6), ValueError, r"width is 6; allowed are multiples of 4: whole pairs for each of 2 axes"),
    "width float": (lambda: M.axial_frequencies(8.0), TypeError, r"width is 8\.0; allowed is a whole number"),
    "axes": (lambda: M.axial_axes(8, 0), ValueError, r"axes is 0; allowed is at least 1"),
    "base": (lambda: M.axial_frequencies(8, base=0.5), ValueError, r"base is 0\.5"),
    "no order": (lambda: M.mrope_axes((1, 2)), TypeError, r"order"),
    "order": (lambda: M.mrope_axes((1, 2), order="mixed"), ValueError, r"order is 'mixed'; allowed are 'chunked' \(.*Qwen2-VL.*\) and 'interleaved' \(.*Qwen3-VL\)"),
    "sections number": (lambda: M.mrope_axes(3, order="chunked"), TypeError, r"sections is 3; allowed are whole numbers"),
    "sections text": (lambda: M.mrope_axes("321", order="chunked"), TypeError, r"sections is '321'"),
    "sections zero": (lambda: M.mrope_axes((2, 0), order="chunked"), ValueError, r"sections is 0; allowed is at least 1"),
    "sections float": (lambda: M.mrope_axes((2, 1.5), order="chunked"), TypeError, r"sections is 1\.5"),
    "sections empty": (lambda: M.mrope_axes((), order="chunked"), ValueError, r"sections is empty"),
    "sections uneven": (lambda: M.mrope_axes((1, 3, 2), order="interleaved"), ValueError,
                        r"sections is \(1, 3, 2\); interleaved, one pair in 3 would give the axes \(2, 2, 2\)"),
}


test_bad_input_names_the_argument_the_value_and_what_is_allowed = bad_input_test(BAD)
