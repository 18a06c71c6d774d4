"""What the statistics of a gradient say, and that measuring many gradients at once says the same."""

import math
import threading
import warnings
import weakref

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from gradlab.statistics import GradientStatistics, kernels, measure, measure_all, measure_few, plain, quick, scaled

NAN = math.nan
REAL_FIELDS = GradientStatistics._fields[:8]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=generator(seed), dtype=dtype)


def both(gradient):
    """The statistics of one gradient: measured plainly and in bulk, which must agree."""
    plain, (quick,) = measure(gradient), measure_all([gradient])
    assert_same(quick, plain, tolerance_for(gradient.dtype))
    return plain


def tolerance_for(dtype):
    return 1e-12 if dtype in (torch.float64, torch.complex128) else 1e-6


def assert_same(found, expected, tolerance):
    """Counts, zeros and range are exact; lengths agree relative to themselves, the mean relative to mean_abs."""
    assert isinstance(found, GradientStatistics)
    assert [type(value) for value in found] == [float] * 8 + [int] * 2
    assert (found.nonfinite_count, found.numel) == (expected.nonfinite_count, expected.numel)
    for fields, rel in (("min max max_abs zero_fraction", 1e-15), ("mean_abs rms norm", tolerance)):
        for field in fields.split():
            wanted = pytest.approx(getattr(expected, field), rel=rel, abs=0, nan_ok=True)
            assert getattr(found, field) == wanted, field
    allowed = 0 if math.isnan(expected.mean_abs) else tolerance * expected.mean_abs
    assert found.mean == pytest.approx(expected.mean, rel=0, abs=allowed, nan_ok=True)


def defined(values):
    """The definitions once more, number by number, with exact sums and no tensor library."""
    values = np.asarray(values).reshape(-1)
    if np.iscomplexobj(values):
        finite_entries = np.isfinite(values)
        values = np.where(finite_entries, np.hypot(values.real, values.imag), NAN)
    finite = [float(value) for value in values if math.isfinite(value)]
    count = len(finite)
    if not count:
        norm = NAN if len(values) else 0.0
        return GradientStatistics(NAN, NAN, norm, NAN, NAN, NAN, NAN, NAN, len(values), len(values))
    norm = math.hypot(*finite)
    return GradientStatistics(
        mean_abs=math.fsum(abs(value) for value in finite) / count,
        rms=norm / math.sqrt(count),
        norm=norm,
        min=min(finite),
        max=max(finite),
        max_abs=max(abs(value) for value in finite),
        mean=math.fsum(finite) / count,
        zero_fraction=sum(value == 0 for value in finite) / count,
        nonfinite_count=len(values) - count,
        numel=len(values),
    )


def wide_values(gradient):
    """The entries of any gradient as a float64 or complex128 array."""
    if gradient.is_nested:
        return np.concatenate([wide_values(part).reshape(-1) for part in gradient.unbind()])
    dense = gradient.detach() if gradient.layout is torch.strided else gradient.detach().to_dense()
    return dense.to(torch.complex128 if dense.is_complex() else torch.float64).resolve_conj().resolve_neg().numpy()


# --- what each number is ---


def test_every_number_of_a_gradient_worked_out_by_hand():
    found = both(torch.tensor([[3.0, -4.0], [0.0, 0.0]]))
    assert (found.mean_abs, found.rms, found.norm) == (1.75, 2.5, 5.0)
    assert (found.min, found.max, found.max_abs, found.mean) == (-4.0, 3.0, 4.0, -0.25)
    assert (found.zero_fraction, found.nonfinite_count, found.numel) == (0.5, 0, 4)


def test_a_single_number_is_its_own_mean_and_range():
    found = both(torch.tensor(-2.5))
    assert found == GradientStatistics(2.5, 2.5, 2.5, -2.5, -2.5, 2.5, -2.5, 0.0, 0, 1)


@pytest.mark.parametrize("numel", [1, 5, 300, 9_000, 300_000])
def test_a_gradient_of_zeros_has_length_zero(numel):
    assert both(torch.zeros(numel)) == GradientStatistics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, numel)


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64, torch.complex128])
@pytest.mark.parametrize("shape", [(0,), (3, 0), (0, 5, 2)])
def test_a_gradient_without_entries_has_norm_zero_and_nothing_else_to_tell(shape, dtype):
    found = both(torch.empty(shape, dtype=dtype))
    assert (found.norm, found.nonfinite_count, found.numel) == (0.0, 0, 0)
    assert all(math.isnan(getattr(found, field)) for field in REAL_FIELDS if field != "norm")


@pytest.mark.parametrize("dtype", [*FLOATS, torch.complex64])
@pytest.mark.parametrize("numel", [1, 7, 300, 9_000, 200_000])
def test_a_gradient_without_a_finite_entry_has_no_length_at_all(numel, dtype):
    gradient = torch.full((numel,), NAN, dtype=dtype)
    gradient[::2] = math.inf
    found = both(gradient)
    assert (found.nonfinite_count, found.numel) == (numel, numel)
    assert all(math.isnan(getattr(found, field)) for field in REAL_FIELDS)


@pytest.mark.parametrize("numel", [4, 300, 9_000, 200_000])
@pytest.mark.parametrize("bad", [NAN, math.inf, -math.inf])
def test_the_numbers_are_those_of_the_finite_entries(numel, bad):
    gradient = normal(numel)
    gradient[1], gradient[-1] = 0.0, bad
    found = both(gradient)
    assert_same(found, measure(gradient[:-1])._replace(nonfinite_count=1, numel=numel), 1e-12)


def test_one_broken_gradient_says_nothing_about_its_neighbours():
    gradients = [normal(3_000, seed=seed) for seed in range(8)]
    gradients[3][:] = NAN
    gradients[5][7] = -math.inf
    gradients[6].clamp_(min=0)
    for gradient, found in zip(gradients, measure_all(gradients), strict=True):
        assert_same(found, defined(wide_values(gradient)), 1e-6)


def test_a_complex_gradient_is_measured_by_its_absolute_values():
    found = both(torch.tensor([3 + 4j, 0, -5j, complex(NAN, 1)], dtype=torch.complex64))
    assert found == pytest.approx((10 / 3, math.sqrt(50 / 3), math.sqrt(50), 0.0, 5.0, 5.0, 10 / 3, 1 / 3, 1, 4))


def test_negative_zero_is_zero():
    assert both(torch.tensor([-0.0, 0.0, 1.0, 2.0])).zero_fraction == 0.5


# --- the range and accuracy of the sums ---


@pytest.mark.parametrize("numel", [6, 1_000, 9_000, 200_000])
@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        (torch.float16, 60_000.0),
        (torch.float16, 6e-8),
        (torch.bfloat16, 3e38),
        (torch.bfloat16, 1e-38),
        (torch.float32, 1e-22),
        (torch.float32, 1e-25),
        (torch.float32, 1e22),
        (torch.float32, 1e30),
        (torch.float32, 3e38),
        (torch.float32, 1.401298464324817e-45),
        (torch.float64, 1e-200),
        (torch.float64, 1e200),
        (torch.float64, 1.7e308),
        (torch.float64, 2.3e-308),
        (torch.complex64, 1e-25),
        (torch.complex64, 3e38),
        (torch.complex128, 1e-200),
        (torch.complex128, 1e200),
    ],
)
def test_squares_neither_overflow_nor_vanish(dtype, value, numel):
    gradient = torch.full((numel,), value, dtype=dtype)
    stored = abs(gradient[0].to(torch.complex128).item())
    found = both(gradient)
    assert (found.min, found.max, found.max_abs, found.zero_fraction) == (stored, stored, stored, 0.0)
    assert found.rms == pytest.approx(stored, rel=1e-6, abs=0)
    assert found.mean_abs == pytest.approx(stored, rel=1e-6, abs=0)
    assert found.norm == pytest.approx(stored * math.sqrt(numel), rel=1e-6, abs=0)


@pytest.mark.parametrize("tiny", [1e-15, 1e-19, 1e-25, 1e-37, 1e-42])
def test_vanishing_gradients_keep_their_digits_beside_large_ones(tiny):
    gradients = [normal(3_000, seed=seed) * factor for seed, factor in enumerate([1.0, tiny, 1e30, 0.0])]
    for gradient, found in zip(gradients, measure_all(gradients), strict=True):
        assert_same(found, defined(wide_values(gradient)), 1e-6)


@pytest.mark.parametrize("apart", [0, 1, 40, kernels.NEAR - 1, kernels.NEAR, kernels.NEAR + 1, 70])
@pytest.mark.parametrize("top", [-140, -126, -100, -79, -60, 60, 127])
def test_gradients_near_each_other_or_far_apart_are_brought_into_range_together(top, apart):
    beside = [normal(3_000, seed=1), normal(64, seed=2).abs()]
    gradients = [g / g.abs().max() * math.ldexp(1, e) for g, e in zip(beside, (top, top - apart), strict=True)]
    for gradient, found in zip(gradients, measure_all(gradients), strict=True):
        assert_same(found, defined(wide_values(gradient)), 1e-6)
    with_zeros = [*gradients, torch.zeros(300)]
    for gradient, found in zip(with_zeros, measure_all(with_zeros), strict=True):
        assert_same(found, defined(wide_values(gradient)), 1e-6)


@pytest.mark.parametrize("value", [0.1, 1 / 3, 0.7, 1e-3])
@pytest.mark.parametrize("numel", [100, 4_097, 65_536, 131_072, 1_000_000])
def test_the_gradient_of_a_mean_does_not_drift(numel, value):
    """All entries equal: every rounding error of a running sum points the same way."""
    gradient = torch.full((numel,), value)
    found = measure_all([gradient])[0]
    stored = gradient[0].item()
    assert found.mean_abs == pytest.approx(stored, rel=1e-6)
    assert found.mean == pytest.approx(stored, rel=1e-6)
    assert found.rms == pytest.approx(stored, rel=1e-6)


def test_a_million_float32_numbers_are_summed_as_in_float64():
    gradient = normal(1_000_000) * 1e-3
    wide = gradient.double()
    for found in (measure(gradient), measure_all([gradient])[0]):
        assert found.mean_abs == pytest.approx(wide.abs().mean().item(), rel=1e-6)
        assert found.norm == pytest.approx(wide.norm().item(), rel=1e-6)
        assert found.mean == pytest.approx(wide.mean().item(), rel=0, abs=1e-6 * found.mean_abs)


def test_float64_keeps_float64_accuracy():
    gradients = [normal(size, dtype=torch.float64, seed=size) for size in (5, 5, 700, 20_000, 150_000)]
    for gradient, found in zip(gradients, measure_all(gradients), strict=True):
        assert_same(found, defined(wide_values(gradient)), 1e-13)


# --- layouts, views and devices ---


def coo(indices, values, shape):
    return torch.sparse_coo_tensor(indices, values, shape, check_invariants=True)


def compressed(kind, dense):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # beta and prototype notices of torch, about making the layout
        if kind in ("bsr", "bsc"):
            return getattr(dense, f"to_sparse_{kind}")((2, 2))
        return getattr(dense, f"to_sparse_{kind}")()


def test_a_sparse_gradient_is_measured_as_if_dense_and_duplicates_add():
    gradient = coo([[0, 4, 4, 2]], torch.tensor([1.0, 2.0, -5.0, 0.0]), (6,))
    assert not gradient.is_coalesced()
    found = both(gradient)
    assert_same(found, measure(torch.tensor([1.0, 0, 0, 0, -3.0, 0])), 1e-12)
    assert (found.min, found.max, found.zero_fraction, found.numel) == (-3.0, 1.0, 4 / 6, 6)
    assert not gradient.is_coalesced()


def test_the_zeros_left_out_of_a_sparse_gradient_bound_its_range():
    found = both(coo([[0, 1]], torch.tensor([2.0, 3.0]), (4,)))
    assert (found.min, found.max, found.mean) == (0.0, 3.0, 1.25)


def test_a_sparse_gradient_that_stores_nothing_is_zero():
    found = both(coo(torch.empty((2, 0), dtype=torch.long), torch.empty(0), (3, 4)))
    assert found == GradientStatistics(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0, 0, 12)


def test_a_sparse_gradient_with_broken_entries():
    found = both(coo([[0, 1]], torch.tensor([NAN, math.inf]), (4,)))
    assert (found.norm, found.zero_fraction, found.nonfinite_count, found.numel) == (0.0, 1.0, 2, 4)


def test_the_gradient_of_a_sparse_embedding():
    embedding = torch.nn.Embedding(50, 4, sparse=True)
    (embedding(torch.tensor([3, 3, 7])) * torch.tensor([1.0, 2.0, 3.0, 4.0])).sum().backward()
    gradient = embedding.weight.grad
    assert_same(both(gradient), defined(wide_values(gradient)), 1e-6)


def test_a_sparse_gradient_far_too_large_to_be_dense():
    gradient = coo([[0, 999_999_999]], torch.tensor([[3.0] * 4, [-4.0] * 4]), (1_000_000_000, 4))
    found = both(gradient)
    assert (found.norm, found.numel, found.nonfinite_count) == (10.0, 4_000_000_000, 0)
    assert found.zero_fraction == 1 - 8 / 4e9


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "bsc"])
def test_compressed_sparse_gradients(kind):
    dense = normal(6, 8) * (normal(6, 8, seed=1) > 0.5)
    gradient = compressed(kind, dense)
    assert gradient.layout is not torch.strided
    assert_same(both(gradient), measure(dense), 1e-6)


@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_gradient_is_all_its_parts(layout):
    parts = [normal(2, 3), normal(5, 3, seed=1)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gradient = torch.nested.nested_tensor(parts, layout=layout)
    assert_same(both(gradient), measure(torch.cat(parts)), 1e-6)


@pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no MKL-DNN")
def test_an_mkldnn_gradient():
    dense = normal(4, 5)
    assert_same(both(dense.to_mkldnn()), measure(dense), 1e-6)


def transposed(*shape):
    return normal(*shape).transpose(0, -1)


VIEWS = {
    "transposed": transposed(30, 40),
    "long and transposed": transposed(700, 400),
    "channels last": normal(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "long channels last": normal(8, 32, 30, 30).to(memory_format=torch.channels_last),
    "every other column": normal(40, 60)[:, ::2],
    "long, every other column": normal(400, 1_200)[:, ::2],
    "long, every other entry": normal(400_000)[::2],
    "expanded": torch.tensor([[1.5], [-2.0]]).expand(2, 50),
    "long and expanded": torch.tensor([[1.5], [-2.0]]).expand(2, 100_000),
    "one number expanded": torch.tensor(0.1).expand(3, 70_000),
    "flipped": normal(9).flip(0),
    "overlapping": normal(50).unfold(0, 10, 1),
    "conjugate": torch.complex(normal(7), normal(7, seed=1)).conj(),
    "long conjugate": torch.complex(normal(100_000), normal(100_000, seed=1)).conj(),
    "negative bit": torch.complex(normal(7), normal(7, seed=1)).conj().imag,
    "longer with negative bit": torch.complex(normal(900), normal(900, seed=1)).conj().imag,
    "long with negative bit": torch.complex(normal(200_000), normal(200_000, seed=1)).conj().imag,
    "contiguous with negative bit": torch._neg_view(normal(9)),
    "long, contiguous, with negative bit": torch._neg_view(normal(200_000)),
    "a parameter": torch.nn.Parameter(normal(20, 20)),
    "with a graph": torch.nn.Parameter(normal(20, 20)) * 2,
    "long with a graph": torch.nn.Parameter(normal(400, 500)) * 2,
    "of integers": torch.arange(-5, 6),
    "of booleans": torch.tensor([True, False, True]),
}


@pytest.mark.parametrize("name", VIEWS)
def test_how_a_gradient_lies_in_memory_changes_nothing(name):
    gradient = VIEWS[name]
    expected = defined(wide_values(gradient))
    for found in (measure(gradient), measure_all([gradient])[0], measure_all([gradient] * 7)[3]):
        assert_same(found, expected, 1e-6)


def test_all_kinds_of_gradients_at_once_come_back_in_order():
    gradients = [*VIEWS.values(), torch.empty(0), coo([[1, 1]], torch.ones(2), (3,)), torch.ones(3, device="meta")]
    for gradient, found in zip(gradients[:-1], measure_all(gradients), strict=False):
        assert_same(found, measure(gradient), 1e-6)
    assert measure_all([]) == []


def test_on_the_meta_device_nothing_is_known_but_the_size():
    gradients = [torch.empty(2, 3, device="meta"), torch.empty(4, device="meta", dtype=torch.float64)]
    for gradient, found in zip(gradients, measure_all(gradients), strict=True):
        assert found.numel == gradient.numel()
        assert all(math.isnan(getattr(found, field)) for field in REAL_FIELDS)
        assert str(found) == str(measure(gradient))


@pytest.mark.parametrize("scale", [1.0, 1e-25, 1e-33, 1e30])
def test_devices_that_compute_in_float32_get_the_same_numbers(scale):
    rows = normal(4, 500) * scale
    rows[1, 3], rows[2, :], rows[3, 5:] = NAN, math.inf, 0.0
    numbers, counts = plain._reduced(rows)
    for row, lengths, (zeros, finite, numel) in zip(rows, numbers.tolist(), counts.tolist(), strict=True):
        found = GradientStatistics(*lengths, zeros / finite if finite else NAN, numel - finite, numel)
        assert_same(found, defined(wide_values(row)), 1e-6)


@pytest.mark.parametrize("name", [name for name in VIEWS if name.startswith("long")])
def test_no_more_than_a_piece_is_copied_at_a_time(name):
    gradient = VIEWS[name]
    pieces = list(quick._pieces(gradient))
    assert max(piece.numel() for piece in pieces) <= quick._piece_length(gradient.dtype)
    assert sum(piece.numel() for piece in pieces) == gradient.numel()


# --- any gradients at all ---

DTYPES = [*FLOATS, torch.complex64, torch.complex128]
EXPONENTS = {torch.float16: (-5, 3), torch.float64: (-280, 280), torch.complex128: (-280, 280)}


@st.composite
def gradients(draw):
    """One gradient of any type, shape, scale, layout and flaw, several times over."""
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(
        st.one_of(
            st.lists(st.integers(0, 7), max_size=4),
            st.sampled_from([[129], [30, 40], [513], [3, 1024], [2, 3, 5, 700], [70_000], [150_001]]),
        )
    )
    numbers = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    low, high = EXPONENTS.get(dtype, (-37, 37))
    wide = 10.0 ** draw(st.integers(low, high)) * numbers.standard_normal(shape)
    if draw(st.booleans()):
        wide = wide * 10.0 ** numbers.uniform(-3, 0, shape)
    if dtype.is_complex:
        wide = wide * np.exp(2j * np.pi * numbers.random(shape))
    wide = np.where(numbers.random(shape) < draw(st.sampled_from([0.0, 0.0, 0.3, 1.0])), 0.0, wide)
    for flaw in draw(st.lists(st.sampled_from([NAN, math.inf, -math.inf]), max_size=2)):
        wide = np.where(numbers.random(shape) < 0.1, flaw, wide)
    gradient = torch.as_tensor(np.asarray(wide)).to(dtype)

    view = draw(st.sampled_from(["as it is", "transposed", "sliced", "expanded", "conjugate", "sparse", "with graph"]))
    if view == "transposed":
        gradient = gradient.permute(draw(st.permutations(range(gradient.dim()))))
    elif view == "sliced" and gradient.dim():
        gradient = gradient.repeat_interleave(2, 0)[::2]
    elif view == "expanded":
        gradient = gradient.unsqueeze(0).expand(2, *gradient.shape)
    elif view == "conjugate" and gradient.is_complex():
        gradient = gradient.conj() if draw(st.booleans()) else gradient.conj().imag
    elif view == "sparse" and gradient.dim() and dtype in (torch.float32, torch.float64, torch.complex64):
        rows = torch.as_tensor(numbers.permutation(len(gradient))[: len(gradient) // 2])
        again = rows[::2]  # no place more than twice: the order of adding up cannot matter
        gradient = coo(torch.cat([rows, again])[None], torch.cat([gradient[rows], gradient[again]]), gradient.shape)
    elif view == "with graph":
        gradient = gradient.requires_grad_() * 1
    return [gradient] * draw(st.sampled_from([1, 1, 2, 40] if gradient.numel() < 5_000 else [1, 2]))


@settings(max_examples=100, deadline=None)
@given(st.lists(gradients(), max_size=6))
def test_measuring_many_gradients_gives_what_the_definitions_give(groups):
    everything = [gradient for group in groups for gradient in group]
    expected = [found for group in groups for found in [defined(wide_values(group[0]))] * len(group)]
    for gradient, found, wanted in zip(everything, measure_all(everything), expected, strict=True):
        assert_same(found, wanted, tolerance_for(gradient.dtype))


@settings(max_examples=60, deadline=None)
@given(gradients())
def test_measuring_one_gradient_gives_what_the_definitions_give(group):
    assert_same(measure(group[0]), defined(wide_values(group[0])), 1e-12)


@settings(max_examples=30, deadline=None)
@given(st.lists(gradients(), max_size=5), st.randoms())
def test_the_company_of_other_gradients_changes_nothing_beyond_rounding(groups, random):
    everything = [gradient for group in groups for gradient in group[:3]]
    random.shuffle(everything)
    for gradient, found in zip(everything, measure_all(everything), strict=True):
        assert_same(found, measure_all([gradient])[0], tolerance_for(gradient.dtype))


# --- undoing a loss scale ---


@pytest.mark.parametrize("factor", [2.0**-16, 1.0, 3.0])
def test_scaled_statistics_are_those_of_the_scaled_gradient(factor):
    gradient = normal(50, dtype=torch.float64)
    gradient[0], gradient[1] = NAN, 0.0
    assert_same(scaled(measure(gradient), factor), measure(gradient * factor), 1e-14)
    assert str(scaled(measure(torch.empty(0)), factor)) == str(measure(torch.empty(0)))


@pytest.mark.parametrize("factor", [0, -1.0, NAN, math.inf])
def test_a_factor_that_is_no_scale_is_refused(factor):
    with pytest.raises(ValueError, match=f"above 0, got {factor!r}"):
        scaled(measure(torch.ones(2)), factor)


# --- measuring leaves no trace ---


def a_mixture(seed=0):
    """Every path in one list: short, stacked, long, half, double, complex, sparse, broken, vanishing, overflowing."""
    mixture = [normal(size, seed=seed + size) for size in (3, 9, 3, 200, 3_000, 3_000, 3_000, 3_000, 200_000)]
    mixture += [normal(50, 70, seed=seed).relu(), normal(4, dtype=torch.float64, seed=seed), normal(90_000).bfloat16()]
    mixture += [torch.complex(mixture[1], mixture[1]), coo([[0, 0]], normal(2, seed=seed), (5,)), normal(20, 30).t()]
    mixture += [torch.full((3_000,), NAN), normal(3_000) * 1e-30, torch.full((5,), math.inf), normal(3_000) * 3e37]
    return mixture


def test_measuring_changes_no_gradient():
    mixture = a_mixture()
    before = [wide_values(gradient).copy() for gradient in mixture]
    versions = [gradient._version for gradient in mixture]
    measure_all(mixture)
    for gradient in mixture:
        measure(gradient)
    for gradient, values in zip(mixture, before, strict=True):
        np.testing.assert_array_equal(wide_values(gradient), values)
    assert [gradient._version for gradient in mixture] == versions


def test_measuring_keeps_no_gradient_alive():
    mixture = a_mixture()
    references = [weakref.ref(gradient) for gradient in mixture]
    storages = [weakref.ref(gradient.untyped_storage()) for gradient in mixture if gradient.layout is torch.strided]
    results = measure_all(mixture)
    results += [measure(gradient) for gradient in mixture]
    del mixture
    assert all(reference() is None for reference in references + storages)


def test_results_share_no_memory_with_the_gradient():
    gradient = normal(200_000)
    found, again = measure_all([gradient]), measure_all([gradient])
    gradient.fill_(7.0)
    assert found == again


def test_measuring_draws_no_random_numbers():
    torch_state, numpy_state = torch.get_rng_state(), np.random.get_state()[1].copy()
    measure_all(a_mixture())
    measure(normal(10))
    assert torch.equal(torch.get_rng_state(), torch_state)
    np.testing.assert_array_equal(np.random.get_state()[1], numpy_state)


@pytest.mark.parametrize("enabled", [True, False])
def test_grad_mode_stays_as_it_was(enabled):
    with torch.set_grad_enabled(enabled):
        measure_all([*a_mixture(), torch.nn.Parameter(normal(9))])
        measure(torch.nn.Parameter(normal(9)))
        assert torch.is_grad_enabled() is enabled


def test_grad_mode_and_numpy_errors_are_restored_after_a_failure():
    before = np.geterr()
    with torch.enable_grad():
        with pytest.raises(AttributeError):
            measure_all([normal(3), "not a gradient"])
        assert torch.is_grad_enabled()
    assert np.geterr() == before


def test_measuring_inside_a_hook_leaves_a_second_derivative_unchanged():
    x = torch.tensor([1.0, -2.0, 3.0], requires_grad=True)
    y = x**3
    seen = []
    y.register_hook(lambda gradient: seen.append((gradient.requires_grad, *measure_all([gradient]), measure(gradient))))
    (first,) = torch.autograd.grad((y**2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, 30 * x.detach() ** 4)
    requires_grad, quick, plain = seen[0]
    assert requires_grad
    assert quick == pytest.approx(plain)
    assert plain.max == 54.0


def test_inference_tensors_can_be_measured():
    with torch.inference_mode():
        gradient = normal(3_000) * 2
        inside = measure_all([gradient])[0]
    assert inside == measure_all([gradient])[0]


def test_autocast_does_not_coarsen_the_numbers():
    mixture = a_mixture()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = measure_all(mixture), [measure(gradient) for gradient in mixture]
    assert str(inside) == str((measure_all(mixture), [measure(gradient) for gradient in mixture]))


def test_the_default_type_and_device_of_the_caller_do_not_matter():
    mixture = a_mixture()
    expected = str(measure_all(mixture))
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device("meta"):
            assert str(measure_all(mixture)) == expected
    finally:
        torch.set_default_dtype(torch.float32)


def test_numpy_told_to_raise_does_not():
    with np.errstate(all="raise"):
        found = measure_all(a_mixture())
    assert found[-1].max > 1e38


def test_eight_threads_measure_at_once():
    mixtures = [a_mixture(seed) for seed in range(8)]
    expected = [str(measure_all(mixture)) for mixture in mixtures]
    found = [set() for _ in mixtures]
    start = threading.Barrier(8)

    def work(number):
        start.wait()
        for _ in range(30):
            found[number].add(str(measure_all(mixtures[number])))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [{text} for text in expected]


def test_statistics_cannot_be_changed():
    with pytest.raises(AttributeError):
        measure(torch.ones(2)).norm = 0.0


@pytest.mark.parametrize("entries", [1, 3, 9, 16])
@pytest.mark.parametrize("value", [1.0, -1e-25, 1e30, 0.0, math.nan, math.inf])
def test_a_few_numbers_have_the_statistics_of_their_tensor(entries, value):
    gradient = normal(entries)
    gradient[0] = value
    assert_same(measure_few(gradient.tolist()), measure(gradient), 1e-12)
