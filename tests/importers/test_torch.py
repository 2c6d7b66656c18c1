"""`rlx.from_torch`: names, weights, states, symbolic sizes, control flow, derivatives, and errors."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")

import rlx
from tests.conformance.compiled import compile_graphs

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
nn = torch.nn


def module(forward: Any, **attributes: Any) -> Any:
    """Return a module with the function `forward` of itself and tensors. Tensors among its attributes are buffers."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name, value in attributes.items():
                if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
                    self.register_buffer(name, value)
                else:
                    setattr(self, name, value)

    Made.forward = forward  # pyright: ignore[reportAttributeAccessIssue]
    return Made().eval()


def arrays(values: Mapping[str, Any]) -> dict[str, np.ndarray]:
    return {name: value.detach().numpy() for name, value in values.items()}


def same(got: Any, expected: Any, rtol: float = 1e-5) -> None:
    """Check that results are those of PyTorch, with the same shapes and dtypes."""
    leaves = [t for t in torch.utils._pytree.tree_leaves(expected) if isinstance(t, torch.Tensor)]
    assert len(got) == len(leaves)
    for result, leaf in zip(got, leaves, strict=True):
        array = leaf.detach().numpy()
        assert (result.shape, result.dtype) == (array.shape, array.dtype)
        np.testing.assert_allclose(result, array, rtol=rtol, atol=1e-6)


def agrees(m: Any, **inputs: Any) -> rlx.Graph:
    """Return the graph of a module, after comparing the evaluator with PyTorch."""
    g = rlx.from_torch(m, (), inputs)
    same(rlx.evaluate(g, arrays(inputs)), m(**inputs))
    return g


# --- names and weights ------------------------------------------------------------------------------


def test_names_are_those_of_the_module() -> None:
    def forward(self: Any, x: Any, pair: Any, *, options: Any = None) -> Any:
        y = self.layer(x) * options["scale"] + pair[0] - pair[1]
        return {"y": y, "more": [y + 1, (y * 2, None)]}

    m = module(forward, layer=nn.Linear(4, 3))
    x, scale, a, b = torch.randn(2, 4), torch.randn(3), torch.randn(3), torch.randn(2, 3)
    g = rlx.from_torch(m, (x, [a, b]), {"options": {"scale": scale}})
    assert [i.name for i in g.inputs] == ["x", "pair_0", "pair_1", "options_scale"]
    assert [o.name for o in g.outputs] == ["y", "more_0", "more_1_0"]
    assert list(g.weights) == [p.name for p in g.params] == ["layer.weight", "layer.bias"]
    given = {"x": x, "pair_0": a, "pair_1": b, "options_scale": scale}
    same(rlx.evaluate(g, arrays(given)), m(x, [a, b], options={"scale": scale}))


def test_weights_are_not_copied_and_are_read_only() -> None:
    layer = nn.Linear(3, 2, dtype=torch.bfloat16)
    g = rlx.from_torch(layer, torch.zeros(1, 3, dtype=torch.bfloat16))
    for name, tensor in layer.state_dict().items():
        weight = g.weights[name]
        assert weight.ctypes.data == tensor.data_ptr() and not weight.flags.writeable
        assert weight.dtype == rlx.bf16.numpy


def test_tied_parameters_are_one_and_what_nothing_reads_is_none() -> None:
    embedding, head = nn.Embedding(5, 4), nn.Linear(4, 5, bias=False)
    head.weight = embedding.weight
    m = module(lambda self, x: self.head(self.embedding(x)), embedding=embedding, head=head, unused=nn.Linear(2, 2))
    g = agrees(m, x=torch.tensor([[0, 3, 4]]))
    assert [p.name for p in g.params] == ["embedding.weight"]


def test_constants_of_a_module_are_literals_or_parameters() -> None:
    def forward(self: Any, x: Any) -> Any:
        return x * torch.tensor([1.0, 2.0]) + self.table[:2].sum(1)

    m = module(forward)
    m.table = torch.arange(5000.0).reshape(2, 2500)  # not a buffer
    g = agrees(m, x=torch.ones(2))
    assert [p.name for p in g.params] == ["constant0"]


# --- states -----------------------------------------------------------------------------------------


def test_buffers_that_change_are_states() -> None:
    def forward(self: Any, x: Any) -> Any:
        self.count += 1
        self.cache.index_copy_(0, self.count.reshape(1), x.reshape(1, 2))
        self.last.copy_(x * 2)
        return self.cache.sum(0) + self.last

    def new() -> Any:
        return module(
            forward, count=torch.tensor(-1), cache=torch.zeros(4, 2), last=torch.tensor([3.0, 4.0]), kept=torch.ones(2)
        )

    expected, g = new(), rlx.from_torch(new(), torch.zeros(2))
    assert {s.name for s in g.states} == {"count", "cache", "last", "last.started"}
    compiled = rlx.Session("cpu").compile(g)
    for step in range(3):
        x = torch.full((2,), float(step + 1))
        same(compiled.run({"x": x.numpy()}), expected(x))
    np.testing.assert_array_equal(compiled.state("cache"), expected.cache.numpy())


def test_states_start_as_the_buffer_does() -> None:
    def forward(self: Any, x: Any) -> Any:
        before = self.mean.clone()
        self.mean.mul_(0.5).add_(x)
        return before

    m = module(forward, mean=torch.tensor([3.0, 4.0]))
    compiled = rlx.Session("cpu").compile(rlx.from_torch(m, torch.zeros(2)))
    for expected in ([3, 4], [2.5, 3], [2.25, 2.5]):
        (got,) = compiled.run({"x": np.ones(2, np.float32)})
        np.testing.assert_allclose(got, expected)


def test_batch_norm_in_training_has_running_statistics() -> None:
    torch.manual_seed(0)
    m = nn.Sequential(nn.Conv1d(2, 3, 2), nn.BatchNorm1d(3)).train()
    g = rlx.from_torch(m, torch.randn(4, 2, 5))
    assert {s.name for s in g.states} >= {"1.running_mean", "1.running_var", "1.num_batches_tracked"}
    compiled = rlx.Session("cpu").compile(g)
    for _ in range(2):
        x = torch.randn(4, 2, 5)
        same(compiled.run({"input": x.numpy()}), m(x))
    for name in ("running_mean", "running_var"):
        np.testing.assert_allclose(compiled.state(f"1.{name}"), getattr(m[1], name).numpy(), rtol=1e-5)


# --- updates in place -------------------------------------------------------------------------------


def test_updates_in_place_are_seen_through_all_names() -> None:
    def local(self: Any, x: Any) -> Any:
        h = x * 2
        before = h + 1
        h.add_(3)
        h.relu_()
        after = h * 5
        h += after
        return before, h, after

    def through_views(self: Any, x: Any) -> Any:
        h = x * 2
        row, flat = h[0], h.view(-1)
        h.add_(3)
        flat.mul_(2)
        row[1] = 7
        return row, h, flat

    for forward in (local, through_views):
        agrees(module(forward), x=torch.randn(2, 3))


BOUNDED: dict[str, dict[str, int]] = {"batch": {"min": 3, "max": 9}, "length": {"max": 5}, "half": {"max": 4}}


# --- sizes ------------------------------------------------------------------------------------------


def test_sizes_stay_open_under_their_names() -> None:
    def forward(self: Any, x: Any, y: Any) -> Any:
        n = x.shape[0]
        pieces = torch.cat([x, x]).view(n, 2, -1).transpose(0, 1).reshape(2 * n, -1)
        padded = torch.nn.functional.pad(x, (0, 0, 1, 0))
        return pieces, padded, x[1:] * n, torch.arange(n) + y.shape[0], x.flatten() / (n + 1), y.mean(0), n

    m = module(forward)
    batch, length = torch.export.Dim("batch", min=3), torch.export.Dim("length")
    x, y = torch.randn(5, 4), torch.randn(3, 2)
    g = rlx.from_torch(m, (x, y), dynamic_shapes={"x": {0: batch}, "y": {0: length}})
    assert g.symbols == {"batch", "length"}
    assert [str(o.shape.dims[0]) for o in g.outputs[:3]] == ["2*batch", "batch+1", "batch-1"]
    (program,) = compile_graphs([g])
    assert program.problem is None
    for rows in (3, 7):
        given = {"x": torch.randn(rows, 4), "y": torch.randn(rows + 1, 2)}
        *expected, n = m(**given)
        for got in (rlx.evaluate(g, arrays(given)), program.run(list(arrays(given).values()))):
            same(got, [*expected, torch.tensor(n)])


def test_sizes_without_a_name_have_pytorchs() -> None:
    program = torch.export.export(nn.ReLU(), (torch.zeros(4, 2),), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    (symbol,) = rlx.from_torch(program).symbols
    assert re.fullmatch(r"s\d+", symbol)


def test_bounds_of_sizes_are_checked_when_a_graph_runs() -> None:
    def forward(self: Any, x: Any, pair: Any) -> Any:
        return x[:3] * pair[0].sum() + pair[1].reshape(-1, 2).sum()

    batch, length, half = (torch.export.Dim(n, **k) for n, k in BOUNDED.items())
    dims = {"x": {0: batch}, "pair": [{0: length}, {0: 2 * half}]}
    given = torch.zeros(8, 4), [torch.zeros(2), torch.zeros(4)]
    named = rlx.from_torch(module(forward), given, dynamic_shapes=dims)
    assert [[str(b) for b in i.bounds] for i in named.inputs] == [["3 <= batch <= 9"], ["length <= 5"], ["half <= 4"]]
    found = rlx.from_torch(module(forward), given, dynamic_shapes=({0: torch.export.Dim.AUTO}, [None, None]))
    assert re.fullmatch(r"3 <= s\d+", str(found.inputs[0].bounds[0]))
    for sizes, said in {
        (2, 2, 2): "'x': batch must be 3 or more",
        (10, 2, 2): "'x': batch must be 9 or less",
        (3, 6, 2): "'pair_0': length must be 5 or less",
        (3, 1, 10): "'pair_1': half must be 4 or less .for half = 5",
        (9, 0, 8): None,
    }.items():
        rows, count, pairs = sizes
        values = {"x": np.ones((rows, 4)), "pair_0": np.ones(count), "pair_1": np.ones(pairs)}
        values = {name: array.astype(np.float32) for name, array in values.items()}
        if said is None:
            assert rlx.evaluate(named, values)[0].shape == (3, 4)
            continue
        with pytest.raises(rlx.ShapeError, match=said):
            rlx.evaluate(named, values)


# --- control flow -----------------------------------------------------------------------------------


def _choice(self: Any, x: Any) -> Any:
    return torch.cond(x.sum() > 0, lambda a: (a * self.weight).sin(), lambda a: a - 1, (x,))


def _loop(self: Any, x: Any) -> Any:
    from torch._higher_order_ops.while_loop import while_loop

    return while_loop(lambda n, y: n < 4, lambda n, y: (n + 1, y * self.weight), (torch.tensor(0), x))


def _running(self: Any, x: Any) -> Any:
    from torch._higher_order_ops.scan import scan

    return scan(lambda carry, row: (carry * 0.5 + row, carry * self.weight), torch.zeros(3), x)


def _quietly(self: Any, x: Any) -> Any:
    with torch.no_grad():
        y = x * self.weight
    return x * y


@pytest.mark.parametrize("forward", [_choice, _loop, _running, _quietly])
def test_control_flow(forward: Any) -> None:
    m = module(forward, weight=torch.tensor([1.5, -2.0, 0.5]))
    compiled = rlx.Session("cpu").compile(rlx.from_torch(m, torch.zeros(2, 3)))
    for sign in (1, -1):
        x = sign * torch.rand(2, 3)
        same(compiled.run({"x": x.numpy()}), m(x))
    agrees(m, x=x)


def test_what_is_computed_without_gradients_has_none() -> None:
    def detached(self: Any, x: Any) -> Any:
        return (x * x.detach()).sum()

    def quiet(self: Any, x: Any) -> Any:
        return _quietly(self, x).sum()

    for forward in (detached, quiet):
        m, x = module(forward, weight=torch.tensor(3.0)), torch.randn(3, requires_grad=True)
        m(x).backward()
        g = rlx.grad(rlx.from_torch(m, x.detach()), wrt=["x"])
        same(rlx.evaluate(g, {"x": x.detach().numpy()}), x.grad)


# --- derivatives and training -----------------------------------------------------------------------


def _network() -> Any:
    torch.manual_seed(1)
    layers = (
        nn.Conv2d(1, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.GELU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(16, 3),
    )
    return nn.Sequential(*layers)


def _loss(self: Any, x: Any, target: Any) -> Any:
    return nn.functional.cross_entropy(self.network(x), target)


def test_gradients_are_those_of_autograd() -> None:
    m = module(_loss, network=_network())
    x, target = torch.randn(5, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0])
    m(x, target).backward()
    g = rlx.from_torch(m, (x, target))
    names = [p.name for p in g.params]
    got = rlx.evaluate(rlx.grad(g, wrt=names), {"x": x.numpy(), "target": target.numpy()})
    same(got, [dict(m.named_parameters())[name].grad for name in names], rtol=1e-4)


def test_an_imported_module_trains_as_in_pytorch() -> None:
    m = module(_loss, network=_network())
    x, target = torch.randn(6, 1, 4, 4), torch.tensor([0, 2, 1, 1, 0, 2])
    g = rlx.from_torch(m, (x, target))
    start = {name: np.array(value) for name, value in g.weights.items()}
    step = rlx.train.TrainStep(g, rlx.train.SGD(0.1, momentum=0.9), params=start)
    optimiser = torch.optim.SGD(m.parameters(), 0.1, momentum=0.9)
    for _ in range(4):
        loss = m(x, target)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        got = step({"x": x.numpy(), "target": target.numpy()})
        np.testing.assert_allclose(got["loss"], loss.item(), rtol=1e-4)
    trained = step.params()
    for name, value in m.state_dict().items():
        np.testing.assert_allclose(trained[name], value.numpy(), rtol=1e-3, atol=1e-5)


# --- locations and refusals -------------------------------------------------------------------------


class _Sinh(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.sinh()


class _Unknown(nn.Module):
    def forward(self, x: Any) -> Any:
        return torch.nonzero(x), torch.special.i0(x), torch.special.i0(x + 1)


def test_ops_have_the_users_line_and_the_scope_of_their_module() -> None:
    text = rlx.from_torch(nn.Sequential(_Sinh()), torch.ones(2)).text(locations=True)
    line = _Sinh.forward.__code__.co_firstlineno + 1
    assert re.search(rf'test_torch\.py":{line}:', text) and '"0"(' in text


def test_operators_without_a_rule_are_listed_together() -> None:
    with pytest.raises(rlx.UnsupportedError) as caught:
        rlx.from_torch(_Unknown(), torch.ones(2))
    line = _Unknown.forward.__code__.co_firstlineno + 1
    assert re.search(rf"test_torch\.py:{line}: aten\.i0\.default, 2 in all", str(caught.value))
    assert "3 of 2 kinds" in str(caught.value) and "aten.nonzero.default, 1 in all" in str(caught.value)


def _in_place(self: Any, x: Any) -> Any:
    return x.add_(1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rlx.from_torch(lambda x: x, torch.ones(2)), r"expected a torch\.nn\.Module.*got function"),
        (lambda: rlx.from_torch("model.pt2"), r"got str(.|\n)*torch\.export\.load"),
        (lambda: rlx.from_torch(nn.ReLU(), "x"), r"args is a tuple"),
        (lambda: rlx.from_torch(nn.ReLU(), (torch.ones(2), 3, 4)), r"PyTorch cannot export the module"),
        (
            lambda: rlx.from_torch(nn.Linear(3, 2), torch.ones(2)),
            r"PyTorch cannot export the module: .*same reduction dim",
        ),
        (lambda: rlx.from_torch(nn.ReLU(), torch.ones(2, dtype=torch.complex32)), r"input 'input': torch\.complex32"),
        (lambda: rlx.from_torch(nn.Dropout(0.5).train(), torch.ones(2)), r"training mode(.|\n)*module\.eval\(\)"),
        (lambda: rlx.from_torch(module(_in_place), torch.ones(2)), r"changes its argument 'x' in place(.|\n)*clone"),
        (lambda: rlx.from_torch(module(lambda s, x: x[x > 0]), torch.ones(2)), r"the size u\d+ depends on values"),
        (lambda: rlx.from_torch(module(lambda s, x: torch.rand(2) + x), torch.ones(2)), r"aten\.rand\.default, 1"),
        (lambda: rlx.from_torch(nn.Linear(2, 2, device="meta"), torch.ones(1, 2)), r"meta"),
        (
            lambda: rlx.from_torch(torch.export.export(nn.ReLU(), (torch.ones(2),)), torch.ones(2)),
            r"has its arguments already",
        ),
    ],
)
def test_what_cannot_be_imported_is_said(call: Any, message: str) -> None:
    with pytest.raises(rlx.Error, match=message):
        call()
