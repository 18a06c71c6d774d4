"""Run one measurement: forward, loss against a fixed target, backward."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TypeVar

import pandas

from gradlab.activity import ForwardActivity, LayerActivity
from gradlab.batches import loss_function, sample_input, target
from gradlab.capture import OutputGradient, ParameterGradient, capture_gradients
from gradlab.capture.records import status_of
from gradlab.networks import DeepNetwork, build_network
from gradlab.spec import ExperimentSpec
from gradlab.statistics import scaled
from gradlab.tables import records_table


@dataclass(frozen=True, kw_only=True)
class ExperimentResult:
    """What one measurement gave, as plain numbers: it can be pickled, cached and drawn without a tensor."""

    spec: ExperimentSpec
    output: tuple[tuple[float, ...], ...]
    """The network's output, one row per sample."""
    loss: float
    """The scalar loss that was differentiated."""
    outputs: tuple[OutputGradient, ...]
    """The gradient at every layer's output, in forward order."""
    parameters: tuple[ParameterGradient, ...]
    """The gradient of every parameter, in the order of `named_parameters()`."""
    layers: tuple[LayerActivity, ...]
    """What went forward through every layer, the first layer first."""
    filled_before: int
    """How many parameters had a `.grad` before backward."""
    filled_after: int
    """How many had one after it."""

    @property
    def arrival_order(self) -> tuple[str, ...]:
        """The layers in the order in which gradients arrived at their outputs."""
        arrived = [record for record in self.outputs if record.backward_index is not None]
        return tuple(record.layer for record in sorted(arrived, key=lambda record: record.backward_index or 0))

    @property
    def linear_outputs(self) -> tuple[OutputGradient, ...]:
        """The gradient at the output of every layer's linear map, the first layer first."""
        return tuple(record for record in self.outputs if record.module_type == "Linear")

    @property
    def linear_weights(self) -> tuple[ParameterGradient, ...]:
        """The gradient of every linear map's weight, the first layer first; no normalisation's weight."""
        linear = {record.layer for record in self.linear_outputs}
        return tuple(record for record in self.parameters if record.role == "weight" and record.layer in linear)

    def output_table(self) -> pandas.DataFrame:
        """One row per layer output: the record's fields and one column per statistic."""
        return records_table(self.outputs, OutputGradient)

    def weight_table(self) -> pandas.DataFrame:
        """One row per weight (no biases), first layer first: the record's fields and one column per statistic."""
        return records_table([record for record in self.parameters if record.role == "weight"], ParameterGradient)

    def parameter_table(self) -> pandas.DataFrame:
        """One row per parameter, biases too."""
        return records_table(self.parameters, ParameterGradient)


def with_loss_times(result: ExperimentResult, factor: float) -> ExperimentResult:
    """The result of the same run with its loss multiplied by a factor above 0, without running it again.

    A gradient is linear in the loss, so every reading is multiplied; what went forward stays. Kept gradients are dropped.
    """
    return replace(
        result,
        loss=result.loss * factor,
        outputs=tuple(_times(record, factor) for record in result.outputs),
        parameters=tuple(_times(record, factor) for record in result.parameters),
    )


Record = TypeVar("Record", OutputGradient, ParameterGradient)


def _times(record: Record, factor: float) -> Record:
    if record.statistics is None:
        return replace(record, gradient=None)
    statistics = scaled(record.statistics, factor)
    return replace(record, statistics=statistics, status=status_of(statistics), gradient=None)


def run_experiment(spec: ExperimentSpec, *, keep_gradients: bool = False) -> ExperimentResult:
    """The result of building the network, running it on the sample input, and differentiating the loss once.

    Everything random comes from the specification's seed; global random state is neither read nor changed, so that
    experiments in several threads do not disturb each other.
    """
    network = build_network(spec)
    batch, wanted, loss_of = sample_input(spec), target(spec), loss_function(spec)
    with capture_gradients(network, spec.capture_method, keep_gradients=keep_gradients) as capture:
        with ForwardActivity(network, spec.network) as activity:
            output = network(batch)
            layers = activity.layers()
        loss = loss_of(output, wanted)
        filled_before = _filled(network)
        loss.backward()
    last = capture.passes[-1]
    return ExperimentResult(
        spec=spec,
        output=tuple(map(tuple, output.tolist())),
        loss=loss.item(),
        outputs=last.outputs,
        parameters=last.parameters,
        layers=layers,
        filled_before=filled_before,
        filled_after=_filled(network),
    )


def _filled(network: DeepNetwork) -> int:
    return sum(parameter.grad is not None for parameter in network.parameters())
