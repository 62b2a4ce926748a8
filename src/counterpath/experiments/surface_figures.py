"""The figures of the surface experiment."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patheffects import withStroke
from torch import Tensor

from counterpath.data.surface import HOLE_RADIUS, chart_of, enters_hole
from counterpath.explanation.plots.style import CLASS_COLORS, COLORS, INK, figure
from counterpath.geometry.curve import geodesic, metric_field
from counterpath.geometry.linearize import jacobian
from counterpath.geometry.metric import DAMPING, Metric, damped, guided, pullback, volume
from counterpath.models.flow import FlowModel
from counterpath.models.vae import VAE
from counterpath.utils.blocks import map_blocks

if TYPE_CHECKING:
    from counterpath.experiments.surface import Paths, Scene

STARTS = ((0.0, -0.4), (-0.65, -0.45), (0.75, 0.35), (-0.85, 0.6), (0.5, -0.8))
"""Chart points near which the shown paths begin; the first is right behind the hole."""

SIDE_BY_SIDE = ("sgd", "rsgd", "rsgd-c", "geodesic")
"""The methods that walk in the latent space of the VAE."""

SHOWN_POINTS = 1500

_CASING = [withStroke(linewidth=3.2, foreground="white", alpha=0.9)]


def draw_all(scene: "Scene", paths: Mapping[str, "Paths"], folder: Path) -> list[Path]:
    """Draw every figure that the walked methods allow, and return where they are."""
    vae = scene.parts.vae
    assert vae is not None
    starts = [int((scene.chart - scene.chart.new_tensor(start)).norm(dim=-1).argmin()) for start in STARTS]
    drawn = [
        _teaser(scene, vae, starts[0], folder / "teaser"),
        _metrics(scene, vae, folder / "metric"),
        _latent_paths(scene, vae, paths, starts, folder / "paths-latent"),
        _surface_paths(scene, paths, starts, folder / "paths-surface"),
        _side_by_side(scene, vae, paths, starts, folder / "side-by-side"),
        _representation(scene, folder / "representation"),
    ]
    if scene.parts.flow is not None:
        drawn.append(_flow(scene, scene.parts.flow, paths, starts, folder / "flow"))
    return drawn


def _teaser(scene: "Scene", vae: VAE, start: int, path: Path) -> Path:
    """The straight latent line and the geodesic between the same two points, in latent space and on the surface."""
    ends = _ends(scene, vae, start)
    field = metric_field(vae.linearize, pullback)
    times = torch.linspace(0, 1, 65, dtype=ends.dtype, device=ends.device)[:, None]
    straight = ends[0] * (1 - times) + ends[1] * times
    # A curve of least energy is a local minimum: begin with a detour to either side, and keep the shorter one.
    across = torch.stack([-(ends[1] - ends[0])[1], (ends[1] - ends[0])[0]])
    detours = torch.stack([straight + side * torch.sin(torch.pi * times) * across for side in (-0.5, 0.5)])
    curves = geodesic(ends[:1].expand(2, -1), ends[1:].expand(2, -1), field, segments=64, initial=detours)
    curve = curves.points[curves.length.argmin()]
    with figure(path, 8.4, 3.9) as fig:
        left, right = fig.subplots(1, 2)
        _background(
            fig, left, vae, scene, lambda z: vae.uncertainty(z).mean(-1).log10(), "log₁₀ σ: how unsure the decoder is"
        )
        left.set(title="Latent space", xlabel="z₁", ylabel="z₂")
        _chart(right, scene)
        right.set(title="Seen from above: the data, and their hole", xlim=(-0.75, 0.75), ylim=(-0.75, 0.75))
        for line, color, text in (
            (straight, COLORS["sgd"], "straight in latent space"),
            (curve, COLORS["rsgd"], "geodesic of the metric"),
        ):
            left.plot(*_columns(line), color=color, lw=2.2, label=text)
            right.plot(*_columns(chart_of(vae.decode(line))), color=color, lw=2.2, label=text)
        for axes, points in ((left, ends), (right, chart_of(vae.decode(ends)))):
            axes.scatter(*_columns(points[:1]), s=60, color="black", zorder=5, label="rejected")
            axes.scatter(*_columns(points[1:]), s=110, marker="*", color="black", zorder=5, label="accepted")
        middle, reach = ends.mean(0).tolist(), 1.3 * float((ends[1] - ends[0]).norm())
        left.set(xlim=(middle[0] - reach, middle[0] + reach), ylim=(middle[1] - reach, middle[1] + reach))
        fig.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)
    return path


def _ends(scene: "Scene", vae: VAE, start: int) -> Tensor:
    """The codes of a factual and of an accepted training row straight across the hole."""
    accepted = scene.parts.classifier(scene.train.x) > 0
    aim = scene.chart.new_tensor([0.0, 0.45])
    goal = int(((scene.train.chart - aim).norm(dim=-1) + 1e6 * ~accepted).argmin())
    rows = torch.stack([scene.factual[start], scene.train.x[goal]])
    return vae.encode(rows)


def _metrics(scene: "Scene", vae: VAE, path: Path) -> Path:
    """The volume element of both metrics over the latent space, with the codes on top."""
    shown: tuple[tuple[str, Metric], ...] = (
        ("RSGD: √det M", pullback),
        ("RSGD-C: √det M̂", guided(scene.parts.classifier.representation)),
    )
    with figure(path, 9.4, 4.1) as fig:
        for axes, (title, metric) in zip(fig.subplots(1, 2), shown, strict=True):
            _background(fig, axes, vae, scene, _log_volume(vae, metric), "log₁₀ volume element")
            _codes(axes, vae, scene)
            axes.set(title=title, xlabel="z₁", ylabel="z₂")
        axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.9, markerscale=3)
    return path


def _latent_paths(scene: "Scene", vae: VAE, paths: Mapping[str, "Paths"], starts: list[int], path: Path) -> Path:
    shown = [name for name in SIDE_BY_SIDE if name in paths]
    with figure(path, 5.6, 4.8) as fig:
        axes = fig.subplots()
        _background(fig, axes, vae, scene, _log_volume(vae, pullback), "log₁₀ √det M")
        _codes(axes, vae, scene)
        shown_box = axes.get_xlim(), axes.get_ylim()
        _draw_paths(axes, ((name, paths[name].z) for name in shown), starts)
        axes.set(title="Paths in latent space; sgd leaves the picture", xlabel="z₁", ylabel="z₂")
        axes.set(xlim=shown_box[0], ylim=shown_box[1])
        axes.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.9)
    return path


def _side_by_side(scene: "Scene", vae: VAE, paths: Mapping[str, "Paths"], starts: list[int], path: Path) -> Path:
    """One panel a method: its paths over the volume element, the start behind the hole among them."""
    shown = [name for name in SIDE_BY_SIDE if name in paths]
    with figure(path, 3.0 * len(shown) + 0.9, 3.7) as fig:
        panels = fig.subplots(1, len(shown), sharex=True, sharey=True, squeeze=False)[0]
        for axes, name in zip(panels, shown, strict=True):
            image = _heat(axes, vae, scene, _log_volume(vae, pullback))
            box = axes.get_xlim(), axes.get_ylim()
            _draw_paths(axes, [(name, paths[name].z)], starts)
            entered = int(enters_hole(paths[name].x)[scene.behind].sum())
            axes.set_title(f"{name}\n{entered} of {int(scene.behind.sum())} from behind enter the hole", color=INK)
            axes.set(xlim=box[0], ylim=box[1], xlabel="z₁", xticks=(), yticks=())
        panels[0].set_ylabel("z₂")
        fig.colorbar(image, ax=list(panels), label="log₁₀ √det M", extend="max", shrink=0.85, pad=0.01)
    return path


def _surface_paths(scene: "Scene", paths: Mapping[str, "Paths"], starts: list[int], path: Path) -> Path:
    """The decoded paths on the surface in 3-D, and the same seen from above."""
    with figure(path, 11.4, 5.0) as fig:
        solid: Any = fig.add_subplot(1, 2, 1, projection="3d")
        points, labels = scene.train.x[:SHOWN_POINTS].cpu().numpy(), scene.train.y[:SHOWN_POINTS].cpu().numpy()
        for label in (0, 1):
            solid.scatter(*points[labels == label].T, s=2, color=CLASS_COLORS[label], alpha=0.35, depthshade=False)
        extent = np.array([2.1, 2.1, 0.8])
        for name, walked in paths.items():
            for start in starts:
                line = walked.x[:, start].cpu().numpy()
                inside = np.where((np.abs(line) <= extent).all(1, keepdims=True), line, np.nan)
                solid.plot(*inside.T, color=COLORS[name], lw=1.4)
                solid.scatter(*line[:1].T, s=22, color="black")
        solid.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), zlim=(-0.8, 0.8), zticks=(-0.5, 0, 0.5))
        solid.set(xlabel="x₁", ylabel="x₂", zlabel="x₃", title="On the surface")
        solid.set_box_aspect((1, 1, 0.38))
        solid.view_init(elev=42, azim=-75)
        above = fig.add_subplot(1, 2, 2)
        _chart(above, scene)
        _draw_paths(above, ((name, chart_of(walked.x)) for name, walked in paths.items()), starts)
        above.set(title="Seen from above", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        fig.legend(*above.get_legend_handles_labels(), loc="outside right center")
    return path


def _representation(scene: "Scene", path: Path) -> Path:
    """The representation of the classifier with its linear boundary, and M_X against the distance to the boundary."""
    classifier, x = scene.parts.classifier, scene.test.x
    hidden = map_blocks(classifier.representation, x)
    mean = hidden.mean(0)
    components = torch.linalg.svd(hidden - mean, full_matrices=False)[2][:2]
    flat = ((hidden - mean) @ components.T).cpu().numpy()
    weight = (components @ classifier.head.weight[0]).cpu().numpy()
    offset = float(classifier.head.weight[0] @ mean + classifier.head.bias)
    trace = map_blocks(lambda rows: jacobian(classifier.representation, rows)[1].square().sum((1, 2)), x).cpu().numpy()
    logit, labels = classifier(x).cpu().numpy(), scene.test.y.cpu().numpy()
    with figure(path, 9.0, 3.9) as fig:
        left, right = fig.subplots(1, 2)
        for label in (0, 1):
            left.scatter(*flat[labels == label].T, s=4, color=CLASS_COLORS[label], label=f"class {label}")
        reach = np.linspace(flat[:, 1].min(), flat[:, 1].max(), 2)
        left.plot(-(offset + weight[1] * reach) / weight[0], reach, color="black", lw=1.5, label="wᵀh + b = 0")
        left.set(
            title="Representation h(x), first two principal components", xlabel="component 1", ylabel="component 2"
        )
        left.legend(loc="best", fontsize=8, markerscale=3)
        right.scatter(logit, trace, s=4, color=COLORS["rsgd-c"], alpha=0.5)
        right.axvline(0, color="black", lw=1)
        right.set(
            title="M_X is larger near the decision boundary",
            xlabel="log odds wᵀh(x) + b",
            ylabel="tr M_X(x)",
            yscale="log",
        )
    return path


def _flow(scene: "Scene", flow: FlowModel, paths: Mapping[str, "Paths"], starts: list[int], path: Path) -> Path:
    """Samples of the flow's prior seen from above, and its paths in its own latent space."""
    generator = torch.Generator().manual_seed(0)
    prior = torch.randn(SHOWN_POINTS * 2, 3, generator=generator).to(scene.train.x)
    samples = chart_of(map_blocks(flow.decode, prior))
    codes = map_blocks(flow.encode, scene.train.x[:SHOWN_POINTS])
    labels = scene.train.y[:SHOWN_POINTS]
    with figure(path, 9.4, 4.4) as fig:
        left, right = fig.subplots(1, 2)
        left.scatter(*_columns(samples), s=3, color=COLORS["flow"], alpha=0.6)
        _ring(left)
        left.set(title="Samples of the flow's prior, seen from above", xlabel="u₁", ylabel="u₂", aspect="equal")
        left.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        for label in (0, 1):
            right.scatter(*_columns(codes[labels == label][:, :2]), s=3, color=CLASS_COLORS[label], alpha=0.5)
        right.set(xlim=(-5, 5), ylim=(-5, 5))
        _draw_paths(right, [("flow", paths["flow"].z)], starts)
        right.set(title="Its paths in its latent space (first two of three axes)", xlabel="z₁", ylabel="z₂")
        right.legend(loc="lower right", fontsize=8, frameon=True, framealpha=0.9)
    return path


def _draw_paths(axes: Axes, lines: Iterable[tuple[str, Tensor | None]], starts: list[int]) -> None:
    for name, line in lines:
        assert line is not None
        for order, start in enumerate(starts):
            x, y = _columns(line[:, start, :2])
            axes.plot(x, y, color=COLORS[name], lw=1.7, label=name if order == 0 else None, path_effects=_CASING)
            axes.scatter(x[-1:], y[-1:], s=26, marker="s", color=COLORS[name], edgecolor="white", lw=0.8, zorder=4)
            axes.scatter(x[:1], y[:1], s=26, color="white", edgecolor="black", lw=1.1, zorder=5)


def _background(fig: Any, axes: Axes, vae: VAE, scene: "Scene", field: Callable[[Tensor], Tensor], label: str) -> None:
    """A heat map with its scale."""
    fig.colorbar(_heat(axes, vae, scene, field), ax=axes, label=label, extend="max", shrink=0.85)


def _heat(axes: Axes, vae: VAE, scene: "Scene", field: Callable[[Tensor], Tensor]) -> Any:
    """The rim of the hole on a heat map over the box of the codes and a margin.

    What rises beyond the shown range has the last colour.
    """
    codes = map_blocks(vae.encode, scene.train.x)
    lower, upper = codes.amin(0), codes.amax(0)
    margin = 0.1 * (upper - lower)
    first, second = (
        torch.linspace(float(a), float(b), 220) for a, b in zip(lower - margin, upper + margin, strict=True)
    )
    grid = torch.cartesian_prod(first, second).to(codes)
    values = map_blocks(field, grid).reshape(220, 220).T.cpu().numpy()
    on_data = map_blocks(field, codes).cpu().numpy()
    low, high = float(np.quantile(on_data, 0.01)), float(np.quantile(on_data, 0.99))
    norm = Normalize(low, high + 0.8 * (high - low))
    away = chart_of(map_blocks(vae.decode, grid)).norm(dim=-1).reshape(220, 220).T.cpu().numpy()
    rim: Any = {"levels": [HOLE_RADIUS], "colors": "white", "linestyles": "--", "linewidths": 1.2, "zorder": 3}
    axes.contour(first.numpy(), second.numpy(), away, **rim)  # above the codes and paths that crowd there
    return axes.pcolormesh(
        first.numpy(), second.numpy(), values, norm=norm, cmap="magma", rasterized=True, shading="nearest"
    )


def _log_volume(vae: VAE, metric: Metric) -> Callable[[Tensor], Tensor]:
    return lambda z: volume(damped(metric(vae.linearize(z))), floor=DAMPING).log10()


def _codes(axes: Axes, vae: VAE, scene: "Scene") -> None:
    codes, labels = map_blocks(vae.encode, scene.train.x)[:SHOWN_POINTS], scene.train.y[:SHOWN_POINTS]
    for label, color in ((0, "#9fd3ff"), (1, CLASS_COLORS[1])):
        axes.scatter(*_columns(codes[labels == label]), s=2, color=color, alpha=0.8, label=f"class {label}")


def _chart(axes: Axes, scene: "Scene") -> None:
    u, labels = chart_of(scene.train.x[:SHOWN_POINTS]), scene.train.y[:SHOWN_POINTS]
    for label in (0, 1):
        axes.scatter(*_columns(u[labels == label]), s=3, color=CLASS_COLORS[label], alpha=0.45)
    _ring(axes)
    axes.set(xlabel="u₁", ylabel="u₂", aspect="equal")


def _ring(axes: Axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 100)
    axes.plot(HOLE_RADIUS * np.cos(angle), HOLE_RADIUS * np.sin(angle), color="black", lw=1, ls="--")


def _columns(points: Tensor) -> tuple[Any, Any]:
    x, y = points.detach().cpu().numpy().T
    return x, y
