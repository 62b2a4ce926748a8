"""A user's own torch module as the classifier under explanation."""

import copy
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from counterpath.errors import CounterpathWarning, InputError

_PROBE = 64
_EDGE = 1e-7


class TorchClassifier(nn.Module):
    """A torch module on encoded rows, and the layer of it that is taken as the representation h.

    The module returns logits: one number a row (the log odds of the second class) or one a class; log probabilities are
    logits, too. A module that ends in Sigmoid or Softmax, or whose K outputs sum to 1, is taken to return probabilities
    and turned back into logits. It is copied, frozen and used in evaluation mode.

    Args:
        module: The user's module.
        rows: Some encoded rows, to see what it returns.
        layer: Name of the layer, as in `named_modules`, whose output is the representation; by default what goes into
            the last linear layer.

    Attributes:
        layer: In words, which representation is used.
        asked: The layer that was asked for by name; None for none.
        classes: How many classes it tells apart.
    """

    def __init__(self, module: nn.Module, rows: Tensor, layer: str | None = None) -> None:
        super().__init__()
        self.module = copy.deepcopy(module).to(rows).eval().requires_grad_(False)
        calls = _calls(self.module, rows[:_PROBE])
        with torch.no_grad():
            outputs = _checked(self.module(rows), rows)
        self.kind = _kind(outputs, calls[-1] if calls else None)
        self.asked = layer
        self.classes = 2 if outputs.ndim == 1 else outputs.shape[-1]
        self.representation, self.layer = _representation(self.module, calls, layer)

    def forward(self, x: Tensor) -> Tensor:
        """The log odds of the second class `(n,)`, or one logit a class `(n, K)`."""
        out = _flat(self.module(x))
        if self.kind == "logits":
            return out
        return torch.logit(out, _EDGE) if out.ndim == 1 else out.clamp_min(_EDGE).log()


def _checked(out: Any, rows: Tensor) -> Tensor:
    if not isinstance(out, Tensor) or out.ndim not in (1, 2) or len(out) != len(rows):
        given = tuple(out.shape) if isinstance(out, Tensor) else type(out).__name__
        raise InputError(
            f"the torch model maps rows {tuple(rows.shape)} to {given}; expected one logit a row, or one for each class"
        )
    if not out.isfinite().all():
        raise InputError("the torch model returns values that are not finite on the training rows")
    return _flat(out)


def _flat(out: Tensor) -> Tensor:
    return out[:, 0] if out.ndim == 2 and out.shape[-1] == 1 else out


class _Captured(nn.Module):
    """What goes into a layer, or comes out of it, when the module runs."""

    def __init__(self, module: nn.Module, layer: nn.Module, *, before: bool) -> None:
        super().__init__()
        self.module, self.layer, self.before = module, layer, before

    def forward(self, x: Tensor) -> Tensor:
        seen: list[Tensor] = []
        hook = self.layer.register_forward_hook(lambda _, given, out: seen.append(given[0] if self.before else out))
        try:
            self.module(x)
        finally:
            hook.remove()
        return seen[-1].flatten(1)


def _calls(module: nn.Module, rows: Tensor) -> list[nn.Module]:
    """The layers without parts of their own, in the order in which they run."""
    order: list[nn.Module] = []
    leaves = [part for part in module.modules() if not list(part.children())]
    hooks = [part.register_forward_hook(lambda part, *_: order.append(part)) for part in leaves]
    try:
        with torch.no_grad():
            module(rows)
    except (RuntimeError, TypeError) as error:
        raise InputError(
            f"the torch model cannot be run on encoded rows of {rows.shape[-1]} columns ({error}); "
            "it must take what Encoder.fit(table, schema).encode(table) gives"
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    return order


def _kind(outputs: Tensor, last: nn.Module | None) -> str:
    if isinstance(last, nn.Sigmoid | nn.Softmax):
        return "probabilities"
    inside = bool(((outputs >= 0) & (outputs <= 1)).all())
    if outputs.ndim == 2 and inside and bool(((outputs.sum(-1) - 1).abs() < 1e-4).all()):
        return "probabilities"
    if outputs.ndim == 1 and inside:
        warnings.warn(
            "the torch model's outputs all lie between 0 and 1, and are taken to be log odds; if they are "
            "probabilities, let the module end in torch.nn.Sigmoid",
            CounterpathWarning,
            stacklevel=4,
        )
    return "logits"


def _representation(module: nn.Module, calls: list[nn.Module], layer: str | None) -> tuple[nn.Module, str]:
    if layer is not None:
        parts: dict[str, Any] = dict(module.named_modules())
        if layer not in parts or not layer:
            names = ", ".join(name for name in parts if name)
            raise InputError(f"the torch model has no layer {layer!r}; choose one of: {names}")
        return _Captured(module, parts[layer], before=False), f"the output of the layer {layer!r}"
    linear = [part for part in calls if isinstance(part, nn.Linear)]
    if not linear:
        raise InputError("the torch model has no linear layer to take the representation from: name a layer")
    words = f"the input of the last linear layer, {next(n for n, p in module.named_modules() if p is linear[-1])!r}"
    if isinstance(module, nn.Sequential) and linear[-1] in list(module):
        return module[: list(module).index(linear[-1])], words  # closed-form Jacobians where the layers have them
    return _Captured(module, linear[-1], before=True), words
