"""`rlx.from_torch` at the edges: NaN, zeros, narrow floats, masks, steps of open axes, derivatives where formulas have none."""

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


def _plain(results: Any) -> Any:
    return torch.utils._pytree.tree_map(lambda t: t.resolve_conj(), results)


# Of numbers whose squares are beyond f16, and whose sums are.
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
    # PyTorch adds in another order, and takes some means in the narrow float itself.
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
    "svd": lambda x: [t.abs() for t in linalg.svd(x[..., :2])],  # the signs of vectors are anyone's
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
}


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


# --- what open sizes have to be ---------------------------------------------------------------------

_DIM = torch.export.Dim
OPEN: dict[str, tuple[Callable[[Any], Any], Any, str | None]] = {
    "a number of a size": (lambda x: x * int(x.shape[0] * 1.5), _DIM.AUTO, r"Eq\(TruncToInt.*not for s\d+=2"),
    "an even size": (lambda x: x * 2 if x.shape[0] % 2 == 0 else x, _DIM.AUTO, r"Mod\(s\d+, 2\).*not for s\d+=3"),
    "another than that of an axis": (lambda x: x if x.shape[0] != x.shape[1] else x * 2, _DIM.DYNAMIC, r"not for s"),
    "a bound": (lambda x: x[:5], _DIM.AUTO, None),
    "neither 0 nor 1": (lambda x: x[1:] + 1, _DIM.AUTO, None),
    "a range": (lambda x: x + 1, _DIM("n", min=4, max=8), None),
    "a multiple": (lambda x: x.view(2, -1), 2 * _DIM("half", min=2), None),
}


@pytest.mark.parametrize("name", OPEN)
def test_what_pytorch_takes_for_granted_of_open_sizes(name: str, tmp_path: Any) -> None:
    function, size, message = OPEN[name]
    m, x, dims = module(lambda self, x: function(x)), torch.randn(6, 4), ({0: size},)
    if "axis" in name:
        dims = ({0: size, 1: size},)
    program = torch.export.export(m, (x,), dynamic_shapes=dims, strict=False)
    torch.export.save(program, tmp_path / "program.pt2")
    loaded = torch.export.load(tmp_path / "program.pt2")
    calls = [lambda: rlx.from_torch(m, x, dynamic_shapes=dims), lambda: rlx.from_torch(program)]
    for call in (*calls, lambda: rlx.from_torch(loaded)):
        if message is None:
            for rows in (6, 8):
                given = torch.randn(rows, 4)
                same(rlx.evaluate(call(), {"x": given.numpy()}), m(given))
        else:
            with pytest.raises(rlx.UnsupportedError, match="only where" if call not in calls else message):
                call()


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
