"""A loss of energies and forces, for interatomic potentials."""

from __future__ import annotations

from typing import Any

from rlx.blocks.graph_module import GraphModule
from rlx.ir.calls import with_call_errors
from rlx.ir.graph.graph import Graph
from rlx.support.errors import Error
from rlx.support.short import short_repr
from rlx.train.schedules import check_number
from rlx.transforms.base import tensor_graph
from rlx.transforms.grad import grad_with_loss

_TOTAL = "total_energy"


@with_call_errors
def force_energy_loss(
    energy_graph: Any,
    positions: str = "positions",
    *,
    energy: str | None = None,
    force_weight: float = 1.0,
    energy_weight: float = 1.0,
    reference_forces: str = "reference_forces",
    reference_energy: str = "reference_energy",
) -> Any:
    """Return a graph of `force_weight · mean((F - F_ref)²) + energy_weight · mean((E - E_ref)²)`, where `F = -dE/dx`.

    It is an ordinary graph: `TrainStep` trains it, and differentiates the forces with respect to the parameters.

    Args:
        energy_graph: A `Graph` or `GraphModule`, HIR or MIR, with the energy among its outputs. The energy is a scalar,
            or one number per structure of a batch that depends only on the positions of that structure.
        positions: The input `x`.
        energy: The name of the energy output; the first output by default.
        force_weight: The weight of the forces.
        energy_weight: The weight of the energy.
        reference_forces: The name of the new input with `F_ref`, which has the shape of the positions.
        reference_energy: The name of the new input with `E_ref`, which has the shape of the energy.

    Returns:
        A graph with the outputs `loss`, `force_mse`, `energy_mse`, `energy` and `forces`.

    Raises:
        Error: The input or output does not exist or does not hold floats, or a weight is negative.
    """
    for name, weight in (("force_weight", force_weight), ("energy_weight", energy_weight)):
        if check_number(name, weight) < 0:
            raise Error(f"{name} must not be negative, got {weight!r}")
    summed = tensor_graph(energy_graph).clone()
    outputs = dict(zip([o.name for o in summed.outputs], summed.output_tensors, strict=True))
    chosen = next(iter(outputs), None) if energy is None else energy
    if not isinstance(chosen, str) or chosen not in outputs:
        raise Error(f"the graph has no output {short_repr(chosen)}; it has {', '.join(outputs) or 'none'}")
    if not outputs[chosen].dtype.is_float:
        raise Error(f"the energy '{chosen}' must hold floats, it is {outputs[chosen].shape}")
    if not isinstance(positions, str) or positions not in {a.name for a in summed.inputs}:
        input_names = ", ".join(a.name for a in summed.inputs)
        raise Error(f"the graph has no input {short_repr(positions)}; it has {input_names or 'none'}")
    # The gradient of the sum over a batch contains the gradients of all its structures.
    summed.set_outputs({_TOTAL: summed.sum(outputs[chosen]), "energy": outputs[chosen]})

    g: Graph = grad_with_loss(summed, [positions], loss=_TOTAL)
    _, gradient, energies = g.output_tensors
    forces = -gradient
    force_error = forces - g.input(reference_forces, forces.shape)
    energy_error = energies - g.input(reference_energy, energies.shape)
    force_mse, energy_mse = g.mean(force_error * force_error), g.mean(energy_error * energy_error)
    loss = force_weight * force_mse + energy_weight * energy_mse
    g.set_outputs(
        {"loss": loss, "force_mse": force_mse, "energy_mse": energy_mse, "energy": energies, "forces": forces}
    )
    g.verify()
    return GraphModule(g) if isinstance(energy_graph, GraphModule) else g
