"""Edge cases of `rlx.from_torch`: NaN, zeros, narrow floats, masks, steps of open axes, singular derivatives."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from tests.importers.test_torch import agrees, module, same

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
nn, fun, linalg = torch.nn, torch.nn.functional, torch.linalg
_NAN, _INF = float("nan"), float("inf")


def _f32(*values: Any) -> Any:
    return torch.tensor(values, dtype=torch.float32)


# --- values -----------------------------------------------------------------------------------------

_C64 = torch.tensor([[1 + 2j, 3], [4, 5 - 1j]], dtype=torch.complex64)
_SORTED, _SOUGHT = _f32(1, 2, 3), _f32(_NAN, 2, 5, -_INF)
_SIGNED = _f32(_NAN, _INF, -_INF, 0, -2.5)
VALUES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "mH": (lambda x: x.mH, (_C64,)),
    "adjoint": (lambda x: x.adjoint(), (_C64,)),
    "H": (lambda x: x.H, (_C64,)),
    "mT": (lambda x: x.mT, (_C64,)),
    "T of rank 3": (lambda x: x.T, (torch.arange(24.0).reshape(2, 3, 4),)),
    "searchsorted": (lambda x, y: torch.searchsorted(x, y), (_SORTED, _SOUGHT)),
    "searchsorted on the right": (lambda x, y: torch.searchsorted(x, y, right=True), (_SORTED, _SOUGHT)),
    "bucketize": (lambda x, y: torch.bucketize(y, x), (_SORTED, _SOUGHT)),
    "bucketize on the right": (lambda x, y: torch.bucketize(y, x, right=True), (_SORTED, _SOUGHT)),
    "sign": (torch.sign, (_SIGNED,)),
    "sgn": (torch.sgn, (_SIGNED,)),
    "heaviside": (torch.heaviside, (_SIGNED, _f32(1, 2, 3, _NAN, 5))),
    "sort": (lambda x: torch.sort(x, descending=True, stable=True), (_f32(1, _NAN, 2, 1, _NAN, -_INF),)),
    "index_reduce": (
        lambda x, i, y: x.index_reduce(0, i, y, "mean", include_self=False),
        (_SORTED, torch.tensor([2, 0, 2]), _f32(4, 5, 6)),
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_values(name: str) -> None:
    function, inputs = VALUES[name]
    g = rlx.from_torch(module(lambda self, *xs: function(*xs)), inputs)
    same(rlx.evaluate(g, {i.name: x.numpy() for i, x in zip(g.inputs, inputs, strict=True)}), _plain(function(*inputs)))


# Operators that compute with numbers, in a dtype. PyTorch converts numbers with a fraction in different places: before
# `arange`, `linspace` and `logspace` compute with them, and when they fill a tensor.
_MASK, _PLACE = torch.tensor([True, False, True]), torch.tensor([1])
OF_NUMBERS: dict[str, Callable[[Any], Any]] = {
    "arange": lambda kind: torch.arange(0.7, 5.9, 1.9, dtype=kind),
    "arange downwards": lambda kind: torch.arange(9.5, 0.1, -2.9, dtype=kind),
    "linspace": lambda kind: torch.linspace(0.5, 3.9, 3, dtype=kind),
    "linspace downwards": lambda kind: torch.linspace(7.9, 1.6, 6, dtype=kind),
    "linspace of one number": lambda kind: torch.linspace(1.5, 3.9, 1, dtype=kind),
    "logspace": lambda kind: torch.logspace(0.5, 2.2, 3, dtype=kind),
    "logspace of another base": lambda kind: torch.logspace(0.3, 3.9, 7, base=2.5, dtype=kind),
    "full": lambda kind: torch.full((2,), 2.7, dtype=kind),
    "new_full": lambda kind: torch.ones(3, dtype=kind).new_full((2,), 2.7),
    "fill": lambda kind: torch.ones(3, dtype=kind).fill_(2.7),
    "masked_fill": lambda kind: torch.ones(3, dtype=kind).masked_fill(_MASK, 2.7),
    "index_fill": lambda kind: torch.ones(3, dtype=kind).index_fill(0, _PLACE, 2.7),
    "scatter": lambda kind: torch.ones(3, dtype=kind).scatter(0, _PLACE, 2.7),
    "pad": lambda kind: fun.pad(torch.ones(3, dtype=kind), (1, 2), value=2.7),
    "constant_pad_nd": lambda kind: torch.constant_pad_nd(torch.ones(3, dtype=kind), (1, 0), 2.7),
}


@pytest.mark.parametrize("kind", [torch.int64, torch.int32, torch.uint8, torch.bool, torch.float32], ids=str)
@pytest.mark.parametrize("name", OF_NUMBERS)
def test_numbers_with_a_fraction(name: str, kind: Any) -> None:
    try:
        expected = OF_NUMBERS[name](kind)
    except RuntimeError:
        pytest.skip("PyTorch does not have it in this dtype")
    (got,) = rlx.evaluate(rlx.from_torch(module(lambda self: OF_NUMBERS[name](kind)), ()), {})
    same([got], [expected])


def _plain(results: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.resolve_conj(), results)


# Values whose squares exceed f16, or whose sums do.
NARROW: dict[str, Callable[[Any], Any]] = {
    **{f"norm of order {p}": lambda x, p=p: linalg.vector_norm(x, p) for p in (0, 0.5, 1, 2, 3, _INF)},
    "var": lambda x: torch.var(x),
    "std_mean": lambda x: torch.std_mean(x, 0),
    "normalize": lambda x: fun.normalize(x, dim=0),
    "native_layer_norm": lambda x: torch.native_layer_norm(x, [4], None, None, 1e-5),
    "native_group_norm": lambda x: torch.native_group_norm(x.reshape(1, 2, 2), None, None, 1, 2, 2, 1, 1e-5),
    "_fused_rms_norm": lambda x: torch.ops.aten._fused_rms_norm(x, [4], None, 1e-5),
}


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_are_rounded_once(name: str, kind: Any) -> None:
    function, x = NARROW[name], _f32(300, -299, 101, 7.5)
    g = rlx.from_torch(module(lambda self, x: function(x)), x.to(kind))
    bits = x.to(kind).view(torch.int16).numpy().view(rlx.dtype(str(kind).removeprefix("torch.")).numpy)
    # PyTorch adds in another order, and computes some means in the narrow float itself.
    tolerance = {torch.float16: 2e-3, torch.bfloat16: 1.6e-2}[kind]
    expected = torch.utils._pytree.tree_leaves(function(x.to(kind)))
    for result, leaf in zip(rlx.evaluate(g, {"x": bits}), expected, strict=True):
        assert rlx.dtype(result.dtype) is rlx.dtype(str(leaf.dtype).removeprefix("torch."))
        np.testing.assert_allclose(result.astype(np.float32), leaf.float().numpy(), rtol=tolerance, atol=tolerance)


# --- factorisations ---------------------------------------------------------------------------------


def _definite(x: Any) -> Any:
    return x @ x.mT + torch.eye(3)


FACTORIZATIONS: dict[str, Callable[[Any], Any]] = {
    "qr": lambda x: linalg.qr(x),
    "complete qr": lambda x: linalg.qr(x[..., :2], "complete"),
    "r": lambda x: linalg.qr(x, "r"),
    "svd": lambda x: [t.abs() for t in linalg.svd(x[..., :2])],  # the signs of singular vectors are arbitrary
    "svdvals": linalg.svdvals,
    "eigh": lambda x: [t.abs() for t in linalg.eigh(_definite(x))],
    "upper eigvalsh": lambda x: linalg.eigvalsh(x, UPLO="U"),
    "lu_factor": linalg.lu_factor,
    "lu_factor_ex": linalg.lu_factor_ex,
    "lu of high matrices": lambda x: linalg.lu(x[..., :2]),
    "lu of wide matrices": lambda x: linalg.lu(x[..., :2, :]),
    "cholesky": lambda x: linalg.cholesky(_definite(x)),
    "upper cholesky_ex": lambda x: linalg.cholesky_ex(_definite(x), upper=True),
    "cholesky_solve": lambda x: torch.cholesky_solve(x, linalg.cholesky(_definite(x))),
    "solve_triangular": lambda x: linalg.solve_triangular(x, x[0], upper=True),
    "solve_triangular from the right": lambda x: linalg.solve_triangular(
        x[0], x, upper=False, left=False, unitriangular=True
    ),
    "solve": lambda x: linalg.solve(x[0], x),
    "solve from the right": lambda x: linalg.solve(x, x[1], left=False),
    "inv": linalg.inv,
    "inv_ex": linalg.inv_ex,
    "tensorinv": lambda x: linalg.tensorinv(x.reshape(2, 3, 3, 1)[0], ind=1),
    "tensorinv of two axes": lambda x: linalg.tensorinv(x.reshape(2, 9)[:, :8].reshape(2, 2, 4), ind=2),
    "tensorsolve": lambda x: linalg.tensorsolve(x[0].reshape(3, 3, 1), x[1, 0]),
    "pinv": lambda x: linalg.pinv(x[..., :2]),
    "det": linalg.det,
    "slogdet": linalg.slogdet,
    "logdet": torch.logdet,
    "matrix_exp": linalg.matrix_exp,
    "matrix_rank": linalg.matrix_rank,
}


@pytest.mark.parametrize("name", FACTORIZATIONS)
def test_factorizations(name: str) -> None:
    x = torch.tensor(np.random.default_rng(3).normal(size=(2, 3, 3)))
    function = FACTORIZATIONS[name]
    agrees(module(lambda self, x: function(x)), x=x)


# --- derivatives ------------------------------------------------------------------------------------

_ZEROS, _ONES = torch.zeros(3), torch.ones(3)
SLOPES: dict[str, tuple[Callable[[Any], Any], Any]] = {
    **{f"norm of order {p}": (lambda x, p=p: linalg.vector_norm(x, p), _ZEROS) for p in (1, 1.5, 2, 3)},
    "norm of order 0.5 of some zeros": (lambda x: linalg.vector_norm(x, 0.5), _f32(0, 1, 2)),
    "dist": (lambda x: torch.dist(x, _ONES), _ONES),
    "normalize": (lambda x: fun.normalize(x, dim=0).sum(), _ZEROS),
    "cdist of equal rows": (lambda x: torch.cdist(x, x).sum(), _f32([1, 2], [3, 4])),
    "cdist of order 3": (lambda x: torch.cdist(x, x, 3.0).sum(), _f32([1, 2], [3, 4])),
    "std of equal elements": (torch.std, _ONES),
    "det": (lambda x: linalg.det(x), _f32([1, 2], [3, 5])),
    "logdet": (lambda x: torch.logdet(x), _f32([2, 1], [1, 2])),
    **{
        f"cross entropy of a sigmoid, {t}": (
            lambda x, t=t: _entropy(x, t),
            _f32(-_INF, -200, -104, -103, -89, -50, 0, 50, 89, _INF),
        )
        for t in (0.0, 0.25, 1.0)
    },
    "atan2 at the origin": (lambda x: torch.atan2(x, x.detach() * x).sum(), _f32(0, -0.0, 1e-30, -1e-30, 1, -2)),
    "atan2 by the other": (lambda x: torch.atan2(x.detach() * 0, x).sum(), _f32(0, -0.0, 1e-30, -1e-30, 1, -2)),
}


def _entropy(x: Any, target: float) -> Any:
    return fun.binary_cross_entropy(torch.sigmoid(x), torch.full_like(x, target), reduction="sum")


@pytest.mark.parametrize("name", SLOPES)
def test_derivatives_are_those_of_autograd(name: str) -> None:
    function, start = SLOPES[name]
    x = start.clone().requires_grad_()
    function(x).backward()
    g = rlx.grad(rlx.from_torch(module(lambda self, x: function(x)), start), wrt=["x"])
    same(rlx.evaluate(g, {"x": start.numpy()}), x.grad, rtol=1e-4)
    assert np.isfinite(x.grad).all()


def test_the_padding_of_an_embedding_is_not_trained() -> None:
    for padding in (None, 0, 2):
        m, index = nn.Embedding(3, 2, padding_idx=padding), torch.tensor([0, 1, 1, 2])
        m(index).square().sum().backward()
        g = rlx.from_torch(module(lambda self, index: self.rows(index).square().sum(), rows=m), index)
        same(rlx.evaluate(rlx.grad(g, wrt=["rows.weight"]), {"index": index.numpy()}), m.weight.grad)
    counted = nn.Embedding(3, 2, scale_grad_by_freq=True)
    with pytest.raises(rlx.UnsupportedError, match="scale_grad_by_freq"):
        rlx.from_torch(counted, torch.tensor([0, 1]))


def test_masks_of_u8_are_masks() -> None:
    def put(self: Any, x: Any, mask: Any, values: Any) -> Any:
        return torch.ops.aten.index_put(x, [mask], values)

    x, mask, value = _f32(1, 2, 3), torch.tensor([0, 3, 1], dtype=torch.uint8), torch.tensor(9.0)
    g = rlx.from_torch(module(put), (x, mask, value))
    same(rlx.evaluate(g, {"x": x.numpy(), "mask": mask.numpy(), "values": value.numpy()}), _f32(1, 9, 9))
    with pytest.raises(rlx.UnsupportedError, match="by a mask"):
        rlx.from_torch(module(put), (x, mask, _f32(8, 9)))


def test_steps_along_open_axes() -> None:
    def forward(self: Any, x: Any) -> Any:
        return x[0:5:2], x[::2], x[1::3], x[1:6:4], x[-5::2], x[-5:-1:3]

    m = module(forward)
    n = torch.export.Dim("n", min=6)
    g = rlx.from_torch(m, torch.zeros(8, 2), dynamic_shapes=({0: n},))
    for size in (6, 7, 8, 9, 15):
        x = torch.randn(size, 2)
        same(rlx.evaluate(g, {"x": x.numpy()}), m(x))


# --- conditions on open sizes -----------------------------------------------------------------------

_DIM = torch.export.Dim
# A function and its size, and a number of rows for which the graph differs from the module, with the error at run time.
OPEN: dict[str, tuple[Callable[[Any], Any], Any, tuple[int, str] | None]] = {
    "an even size": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x, _DIM.AUTO, (7, r"s\d+%2 must be 0")),
    "another size": (lambda x: x if x.shape[0] != 5 else x * 2, _DIM.AUTO, (5, r"s\d+ must not be 5")),
    "another than that of an axis": (lambda x: x if x.shape[0] != x.shape[1] else x * 2, _DIM.DYNAMIC, (4, "not be 0")),
    "a sum": (
        lambda x: x if x.shape[0] + x.shape[1] < 13 else x * 2,
        _DIM.DYNAMIC,
        (9, r"s\d+\+s\d+ must be 12 or less"),
    ),
    "a bound": (lambda x: x[:5], _DIM.AUTO, (4, r"s\d+ must be 5 or more")),
    "neither 0 nor 1": (lambda x: x[1:] + 1, _DIM.AUTO, None),
    "a range": (lambda x: x + 1, _DIM("n", min=4, max=8), (9, r"must be 8 or less")),
    "a multiple": (lambda x: x.view(2, -1), 2 * _DIM("half", min=2), None),
}


def _programs(function: Any, x: Any, size: Any, both: bool, folder: Any) -> tuple[Any, list[Callable[[], rlx.Graph]]]:
    """Return a module, and its graph as a module, as a program, and as a program from a file."""
    m, dims = module(lambda self, x: function(x)), ({0: size, 1: size} if both else {0: size},)
    program = torch.export.export(m, (x,), dynamic_shapes=dims, strict=False)
    torch.export.save(program, folder / "program.pt2")
    loaded = torch.export.load(folder / "program.pt2")
    calls = (lambda: rlx.from_torch(m, x, dynamic_shapes=dims), lambda: rlx.from_torch(program))
    return m, [*calls, lambda: rlx.from_torch(loaded)]


@pytest.mark.parametrize("name", OPEN)
def test_what_pytorch_takes_for_granted_of_open_sizes(name: str, tmp_path: Any) -> None:
    function, size, refused = OPEN[name]
    m, calls = _programs(function, torch.randn(6, 4), size, size is _DIM.DYNAMIC, tmp_path)
    for number, call in enumerate(calls):
        if name == "a sum" and number == 2:  # in the file, the guard's text uses `<=`
            with pytest.raises(rlx.UnsupportedError, match="only where"):
                call()
            continue
        g = call()
        for rows in (6, 8):
            given = torch.randn(rows, 4)
            same(rlx.evaluate(g, {"x": given.numpy()}), m(given))
        if refused is not None:
            with pytest.raises(rlx.ShapeError, match=f"input 'x': .*{refused[1]}"):
                rlx.evaluate(g, {"x": np.zeros((refused[0], 4), np.float32)})


def test_sizes_that_have_to_be_equal_are_one_symbol() -> None:
    """Equal sizes, such as the batches of both sides of an attention, become one symbol."""
    m = module(lambda self, q, k: self.both(q, k, k, need_weights=False)[0], both=nn.MultiheadAttention(8, 2))
    batch, length = _DIM("batch"), _DIM.DYNAMIC
    dims = {"q": {0: length, 1: batch}, "k": {0: length, 1: length}}
    g = rlx.from_torch(m, (torch.randn(3, 2, 8), torch.randn(4, 2, 8)), dynamic_shapes=dims)
    assert [str(i.shape.dims[1]) for i in g.inputs] == ["batch", "batch"]
    q, k = torch.randn(4, 3, 8), torch.randn(6, 3, 8)
    same(rlx.evaluate(g, {"q": q.numpy(), "k": k.numpy()}), m(q, k))
    with pytest.raises(rlx.ShapeError, match="batch"):
        rlx.evaluate(g, {"q": q.numpy(), "k": k.numpy()[:, :2]})


def test_what_is_supposed_and_cannot_be_checked_is_refused(tmp_path: Any) -> None:
    _, calls = _programs(lambda x: x * int(x.shape[0] * 1.5), torch.randn(6, 4), _DIM.AUTO, False, tmp_path)
    for call, message in zip(calls, (r"Eq\(TruncToInt.*not for s\d+=2",) * 2 + ("only where",), strict=True):
        with pytest.raises(rlx.UnsupportedError, match=message):
            call()


def test_rows_times_the_matrices_of_their_groups() -> None:
    """Each row is multiplied by the matrix of its group, as in the experts of transformers."""

    def by_experts(self: Any, x: Any, expert: Any) -> Any:
        order = torch.argsort(expert, stable=True)
        counts = torch.histc(expert.float(), bins=4, min=0, max=3)
        ends = counts.cumsum(0).to(torch.int32)
        made = torch._grouped_mm(x[order].bfloat16(), self.w.bfloat16(), ends)
        return counts, torch.zeros_like(x).index_copy(0, order, made.float())

    m = module(by_experts, w=torch.randn(4, 16, 16))
    g = rlx.from_torch(m, (torch.randn(5, 16), torch.zeros(5)), dynamic_shapes=({0: _DIM("n")}, {0: _DIM("n")}))
    for experts in ([2, 0, 3, 0, 2], [1] * 3, [3, 2, 1, 0]):
        given = {"x": torch.randn(len(experts), 16), "expert": torch.tensor(experts, dtype=torch.float32)}
        same(rlx.evaluate(g, {name: t.numpy() for name, t in given.items()}), m(**given), rtol=2e-2)


def test_bags_of_rows() -> None:
    """Empty bags, rows that do not count, weights, and an explicit end. With two axes, each row is a bag."""
    table, index = torch.randn(6, 3), torch.tensor([1, 5, 5, 2, 0, 3, 3])
    starts, ends = torch.tensor([0, 0, 4, 4, 5]), torch.tensor([0, 0, 4, 4, 5, 7])
    for mode in ("sum", "mean", "max"):
        weights = torch.randn(7) if mode == "sum" else None

        def bags(self: Any, index: Any, starts: Any, ends: Any, mode: Any = mode, weights: Any = weights) -> Any:
            bag, rows = fun.embedding_bag, index[:6].reshape(2, 3)
            last = bag(index, self.table, ends, mode=mode, include_last_offset=True, padding_idx=5)
            weighted = bag(index, self.table, starts, mode=mode, per_sample_weights=weights)
            return weighted, last, bag(rows, self.table, mode=mode, padding_idx=3)

        agrees(module(bags, table=table), index=index, starts=starts, ends=ends)


def test_histograms() -> None:
    x = _f32(_NAN, -_INF, -1, -0.999, 0, 0.49, 0.5, 0.51, 1.999, 2, 2.001, _INF)
    for kind in (torch.float32, torch.float16):
        agrees(module(lambda self, x: (torch.histc(x, 6, -1, 2), torch.histc(x, 1, 0, 0.5))), x=x.to(kind))
    with pytest.raises(rlx.UnsupportedError, match="taken from the values"):
        rlx.from_torch(module(lambda self, x: torch.histc(x, 3)), x)


def test_the_identity_of_an_open_size() -> None:
    m = module(lambda self, x: (torch.eye(x.shape[0]), torch.eye(x.shape[0], 3, dtype=torch.int64), torch.eye(2, 3)))
    g = rlx.from_torch(m, torch.zeros(4), dynamic_shapes=({0: _DIM("n")},))
    for size in (1, 3, 5):
        same(rlx.evaluate(g, {"x": np.zeros(size, np.float32)}), m(torch.zeros(size)))


def test_an_open_size_is_searched_for() -> None:
    m = module(lambda self, x: (torch.bucketize(x.shape[0], x[0]), torch.isin(x, x.shape[0])))
    g = rlx.from_torch(m, torch.zeros(3, 4), dynamic_shapes=({0: _DIM("n", min=2)},))
    for size in (2, 3, 5):
        x = torch.arange(4.0 * size).reshape(size, 4)
        same(rlx.evaluate(g, {"x": x.numpy()}), m(x))


def test_what_is_frozen_is_not_trained() -> None:
    network = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)).eval()
    network[0].weight.requires_grad_(False)
    wide = torch.randn(2000)

    def loss(self: Any, x: Any) -> Any:
        return self.network(x).square().mean() + self.offset.mean() + self.wide[0].mean()

    m, x = module(loss, network=network, offset=_ONES, wide=[wide]), torch.randn(3, 2)
    program = torch.export.export(m, (x,))
    for g in (rlx.from_torch(m, x), rlx.from_torch(program), rlx.parse(rlx.from_torch(m, x).text())):
        expected = {"network.0.bias", "network.1.weight", "network.1.bias"}
        assert {a.name for a in g.params if a.trainable} == expected
    g = rlx.from_torch(m, x)
    step = rlx.train.TrainStep(g, rlx.train.AdamW(0.1, weight_decay=0.5))
    step({"x": x.numpy()})
    trained = step.params()
    changed = {name for name, start in g.weights.items() if not np.array_equal(trained[name], np.asarray(start))}
    assert changed == expected
    with pytest.raises(rlx.Error, match="trainable is True or False, not 1"):
        rlx.Graph().param("w", (2,), trainable=1)  # pyright: ignore[reportArgumentType]
