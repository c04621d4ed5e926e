"""Find everything in a model that cannot be trained privately, before training starts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.lazy import LazyModuleMixin

from hushgraph.errors import ModelError
from hushgraph.gradients import probe
from hushgraph.gradients.tape import TAPED
from hushgraph.graph.records import RelationInfo
from hushgraph.models.gnn import Scale

_PARAMETERS: dict[type[nn.Module], set[str]] = {
    nn.Linear: {"weight", "bias"},
    nn.LayerNorm: {"weight", "bias"},
    nn.Embedding: {"weight"},
    Scale: {"epsilon"},
}

_SUPPORTED = "Linear, LayerNorm, Embedding or Scale layers"

_INSTEAD: tuple[tuple[tuple[type, ...], str], ...] = (
    ((LazyModuleMixin,), "use the layer that is not lazy, with its sizes given"),
    ((nn.Linear, nn.LayerNorm, nn.Embedding, Scale), "use the layer itself, not a subclass"),
    ((nn.GroupNorm, nn.RMSNorm), "use LayerNorm"),
    (
        (nn.MultiheadAttention,),
        "use Linear layers for query, key and value and Reads.softmax, as GATLayer does",
    ),
    ((nn.EmbeddingBag,), "use Embedding and sum its rows"),
    ((nn.PReLU,), "use ReLU or Tanh"),
    ((_ConvNd, nn.RNNBase, nn.RNNCellBase, nn.Bilinear), "use Linear layers"),
)


def check_model(
    model: nn.Module,
    *,
    num_features: int,
    num_outputs: int,
    depth: int,
    relations: Sequence[RelationInfo] = (),
) -> None:
    """Refuse a model whose gradients cannot be clipped root by root.

    Args:
        model: called as model(x, blocks), with features [rows, num_features] of the deepest level and `depth`
            `Reads`, roots first; gives scores [roots, num_outputs]. It is left as it was.
        num_features: columns of the features.
        num_outputs: columns of the scores.
        depth: r, how many levels of reads the trees have.
        relations: what records are, where they are more than a list of nodes.

    Guarantees:
        Every parameter is in a supported layer (Linear, LayerNorm, Embedding, Scale; no subclasses), is
        trained, and belongs to one layer. On made-up data the scores of a root depend on its own tree alone,
        and the fast clipped sum is that of one root at a time. No private data is read.

    Raises:
        ModelError: naming every offender and what to use instead.
    """
    offences = [*_layers(model), *_tied(model)]
    if not offences:
        offences = probe.find_offences(
            model,
            num_features=num_features,
            num_outputs=num_outputs,
            depth=depth,
            relations=relations,
        )
    if offences:
        raise ModelError(f"the model cannot be trained privately: {'; '.join(offences)}")


def _layers(model: nn.Module) -> Iterator[str]:
    """What is wrong with single modules."""
    if next(model.parameters(), None) is None:
        yield "it has no parameters: there is nothing to train"
    if type(model) in TAPED:
        yield f"it is a single {type(model).__name__}: put it into a module with forward(x, blocks)"
    refused: list[str] = []
    for name, module in model.named_modules():
        # The inner parts of a layer that is refused as a whole are not the user's to change.
        if any(name.startswith(prefix) for prefix in refused):
            continue
        named = f"{name} ({type(module).__name__})" if name else f"the model itself ({type(module).__name__})"
        own = dict(module.named_parameters(recurse=False))
        if isinstance(module, _NormBase):
            yield f"{named} mixes examples: use LayerNorm"
        elif type(module) in TAPED:
            yield from _supported(name, named, module, own)
        elif own:
            if type(module).__module__.startswith("torch.nn."):
                refused.append(f"{name}.")
            yield f"{named} holds {', '.join(own)}: {_instead(module)}"


def _instead(module: nn.Module) -> str:
    for types, advice in _INSTEAD:
        if isinstance(module, types):
            return advice
    return f"keep parameters in {_SUPPORTED}"


def _supported(name: str, named: str, layer: nn.Module, own: dict[str, nn.Parameter]) -> Iterator[str]:
    """What is wrong with a layer of a supported type."""
    strange = sorted(set(own) - _PARAMETERS[type(layer)])
    if strange:
        yield f"{named} has {', '.join(strange)}: use it without re-parametrisation such as weight_norm"
    for parameter, value in own.items():
        if not value.requires_grad:
            yield (
                f"{name}.{parameter} is frozen: set requires_grad=True, or run the frozen part before and "
                "give what it makes as features"
            )
        if value.dtype != torch.float32:
            yield f"{name}.{parameter} is {value.dtype}: use model.float()"
    if isinstance(layer, nn.LayerNorm) and len(layer.normalized_shape) != 1:
        yield f"{named} has normalized_shape={layer.normalized_shape}: use LayerNorm over the last dimension"
    if isinstance(layer, nn.Embedding):
        options = {
            "max_norm": layer.max_norm is not None,
            "padding_idx": layer.padding_idx is not None,
            "scale_grad_by_freq": layer.scale_grad_by_freq,
            "sparse": layer.sparse,
        }
        used = [option for option, given in options.items() if given]
        if used:
            yield f"{named} uses {', '.join(used)}: use Embedding without these options"


def _tied(model: nn.Module) -> Iterator[str]:
    """Parameters that several layers hold."""
    holders: dict[int, list[str]] = {}
    for name, module in model.named_modules():
        for parameter, value in module.named_parameters(recurse=False, remove_duplicate=False):
            holders.setdefault(id(value), []).append(f"{name}.{parameter}" if name else parameter)
    for names in holders.values():
        if len(names) > 1:
            yield f"{' and '.join(names)} are one parameter: use one layer twice, or a parameter for each"
