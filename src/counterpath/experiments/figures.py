"""The figures of both experiments."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.patches import Circle
from matplotlib.patheffects import withStroke
from torch import Tensor

from counterpath.data.surface import HOLE_RADIUS, chart_of, enters_hole
from counterpath.experiments.surface import Paths, Scene, across, metric_trace
from counterpath.experiments.tables import GLOBAL, OPTIMIZERS, RIEMANNIAN, STEPS
from counterpath.explanation.plots.style import CLASS_COLORS, COLORS, INK, SOFT, figure
from counterpath.geometry.metric import DAMPING, Metric, damped, guided, pullback, volume
from counterpath.models.flow import FlowModel
from counterpath.utils.devices import map_blocks

STARTS = ((0.0, -0.4), (-0.65, -0.45), (0.75, 0.35), (-0.85, 0.6), (0.5, -0.8))
"""Chart points near which the shown paths begin; the first is right behind the hole."""
SIDE_BY_SIDE = ("sgd", "rsgd", "rsgd-c", "geodesic")
"""The methods that search in the latent space of the VAE."""
SHOWN_POINTS = 1500
"""Training points in a figure: more of them hide the paths."""
_GRID = 220
"""Cells of a heat map along either axis: about as many as it has pixels at the usual size of a page."""
_OUTLINE = [withStroke(linewidth=3.2, foreground="white", alpha=0.9)]  # paths stay visible on dark and light
_WIDE_OUTLINE = [withStroke(linewidth=5, foreground="white", alpha=0.9)]  # the same around the teaser's wider lines
_ACROSS = 0.56
"""How far in front of the middle of the hole the teaser's path begins, and behind it ends."""
_LEGEND: Any = {"loc": "lower right", "fontsize": 8, "frameon": True, "framealpha": 0.9}
"""On a heat map: framed, to be read on any colour, and small, to hide little."""
PANELS = {
    "ctr": "share that reaches it",
    "ld_sq": "LD²",
    "path_ld_max_sq": "max LD² on the path",
    "l2_sq": "L2²",
    "steps": "steps needed",
}
"""What is drawn against the confidence, with the titles."""


def draw_surface(scene: Scene, paths: Mapping[str, Paths], folder: Path) -> None:
    """Draw every figure of the surface experiment that there are paths for."""
    starts = [int((scene.chart - scene.chart.new_tensor(start)).norm(dim=-1).argmin()) for start in STARTS]
    latent = {name: paths[name] for name in SIDE_BY_SIDE if name in paths}
    _teaser(scene, folder / "teaser")
    _metrics(scene, folder / "metric")
    _latent_paths(scene, latent, starts, folder / "paths-latent")
    _surface_paths(scene, paths, starts, folder / "paths-surface")
    _side_by_side(scene, latent, starts, folder / "side-by-side")
    _representation(scene, folder / "representation")
    if scene.models.flow is not None:
        _flow(scene, scene.models.flow, paths["flow"], starts, folder / "flow")


def _teaser(scene: Scene, path: Path) -> None:
    """The straight latent line and the path of `geodesic` between the same two points, on either side of the hole."""
    vae = scene.vae
    accepted = scene.models.classifier(scene.train.x) > 0
    below, above = (scene.chart.new_tensor([0.0, side * _ACROSS]) for side in (-1, 1))
    start = int((scene.chart - below).norm(dim=-1).argmin())
    goal = int(((scene.train.chart - above).norm(dim=-1) + 1e6 * ~accepted).argmin())
    curve = across(scene, start, goal, 100)
    straight = torch.lerp(curve[:1], curve[-1:], torch.linspace(0, 1, len(curve)).to(curve)[:, None])
    lines = {"straight in latent space": (straight, COLORS["sgd"]), "geodesic": (curve, COLORS["rsgd"])}
    with figure(path, 9.4, 4.7) as fig:
        left, right = fig.subplots(1, 2)
        uncertainty = _heat(left, scene, lambda z: vae.uncertainty(z).mean(-1).log10())
        _add_scale(fig, uncertainty, left, "log₁₀ σ: how unsure the decoder is", location="left")
        left.set(title="Latent space: bright is where there are no data", xticks=(), yticks=())
        _teaser_data(right, scene)
        for text, (line, color) in lines.items():
            for axes, points in ((left, line), (right, chart_of(vae.decode(line)))):
                axes.plot(*_columns(points), color=color, lw=3, label=text, path_effects=_WIDE_OUTLINE, zorder=4)
        for axes, points in ((left, curve), (right, chart_of(vae.decode(curve)))):
            look: Any = {"color": "black", "edgecolor": "white", "lw": 1, "zorder": 5}
            axes.scatter(*_columns(points[:1]), s=90, label="rejected", **look)
            axes.scatter(*_columns(points[-1:]), s=230, marker="*", label="accepted", **look)
        middle = 0.5 * (curve[0] + curve[-1])
        reach = 1.15 * float((curve - middle).abs().max())
        sign = 1 if curve[0, 1] < curve[-1, 1] else -1  # turn the latent plane so that both begin below
        left.set(xlim=_around(middle[0], sign * reach), ylim=_around(middle[1], sign * reach), aspect="equal")
        fig.legend(*right.get_legend_handles_labels(), loc="outside lower center", ncols=4)


def _teaser_data(axes: Axes, scene: Scene) -> None:
    """All training points seen from above, and nothing where there are none."""
    _scatter_classes(axes, chart_of(scene.train.x), scene.train.y, most=None, s=9, alpha=0.6, lw=0)
    axes.add_patch(Circle((0, 0), HOLE_RADIUS, facecolor="none", edgecolor=INK, lw=1.2, ls="--", zorder=2))
    axes.annotate("hole", (-0.09, 0), ha="center", va="center", color=SOFT, zorder=3)
    axes.set(title="The same, decoded: the data seen from above", xlim=(-0.8, 0.8), ylim=(-0.8, 0.8), aspect="equal")
    axes.set(xticks=(), yticks=())


def _around(middle: Tensor, reach: float) -> tuple[float, float]:
    return float(middle) - reach, float(middle) + reach


def _metrics(scene: Scene, path: Path) -> None:
    """The volume element of both metrics over the latent space, with the codes on top."""
    metrics = {"RSGD: √det M": pullback, "RSGD-C: √det M̂": guided(scene.models.classifier.representation)}
    with figure(path, 9.4, 4.1) as fig:
        for axes, (title, metric) in zip(fig.subplots(1, 2), metrics.items(), strict=True):
            _add_scale(fig, _heat(axes, scene, _log_volume(scene, metric)), axes, "log₁₀ volume element")
            _codes(axes, scene)
            axes.set(title=title, xlabel="z₁", ylabel="z₂")
        axes.legend(**_LEGEND, markerscale=3)


def _latent_paths(scene: Scene, paths: Mapping[str, Paths], starts: list[int], path: Path) -> None:
    with figure(path, 5.6, 4.8) as fig:
        axes = fig.subplots()
        _add_scale(fig, _heat(axes, scene, _log_volume(scene, pullback)), axes, "log₁₀ √det M")
        _codes(axes, scene)
        box = axes.get_xlim(), axes.get_ylim()
        _draw_paths(axes, ((name, one.z) for name, one in paths.items()), starts)
        axes.set(title="Paths in latent space; sgd leaves the picture", xlabel="z₁", ylabel="z₂")
        axes.set(xlim=box[0], ylim=box[1])
        axes.legend(**_LEGEND)


def _side_by_side(scene: Scene, paths: Mapping[str, Paths], starts: list[int], path: Path) -> None:
    """One panel a method: its paths over the volume element, the start behind the hole among them."""
    with figure(path, 3.0 * len(paths) + 0.9, 3.7) as fig:
        panels = fig.subplots(1, len(paths), sharex=True, sharey=True, squeeze=False)[0]
        for axes, (name, its_paths) in zip(panels, paths.items(), strict=True):
            image = _heat(axes, scene, _log_volume(scene, pullback))
            box = axes.get_xlim(), axes.get_ylim()
            _draw_paths(axes, [(name, its_paths.z)], starts)
            entered = int(enters_hole(its_paths.x)[scene.behind].sum())
            axes.set_title(f"{name}\n{entered} of {int(scene.behind.sum())} from behind enter the hole", color=INK)
            axes.set(xlim=box[0], ylim=box[1], xlabel="z₁", xticks=(), yticks=())
        panels[0].set_ylabel("z₂")
        _add_scale(fig, image, list(panels), "log₁₀ √det M", pad=0.01)


def _surface_paths(scene: Scene, paths: Mapping[str, Paths], starts: list[int], path: Path) -> None:
    """The decoded paths on the surface in 3-D, and the same seen from above."""
    with figure(path, 11.4, 5.0) as fig:
        solid: Any = fig.add_subplot(1, 2, 1, projection="3d")
        _scatter_classes(solid, scene.train.x, scene.train.y, s=2, alpha=0.35, depthshade=False)
        extent = np.array([2.1, 2.1, 0.8])
        for name, its_paths in paths.items():
            for start in starts:
                line = its_paths.x[:, start].cpu().numpy()
                inside = np.where((np.abs(line) <= extent).all(1, keepdims=True), line, np.nan)
                solid.plot(*inside.T, color=COLORS[name], lw=1.4)
                solid.scatter(*line[:1].T, s=22, color="black")
        solid.set(xlim=(-2.1, 2.1), ylim=(-2.1, 2.1), zlim=(-0.8, 0.8), zticks=(-0.5, 0, 0.5))
        solid.set(xlabel="x₁", ylabel="x₂", zlabel="x₃", title="On the surface")
        solid.set_box_aspect((1, 1, 0.38))
        solid.view_init(elev=42, azim=-75)
        above = fig.add_subplot(1, 2, 2)
        _chart(above, scene)
        _draw_paths(above, ((name, chart_of(its_paths.x)) for name, its_paths in paths.items()), starts)
        above.set(title="Seen from above", xlim=(-1.3, 1.3), ylim=(-1.3, 1.3))
        fig.legend(*above.get_legend_handles_labels(), loc="outside right center")


def _representation(scene: Scene, path: Path) -> None:
    """The representation of the classifier with its linear boundary, and M_X against the distance to the boundary."""
    classifier, x, labels = scene.models.classifier, scene.test.x, scene.test.y
    hidden = map_blocks(classifier.representation, x)
    mean = hidden.mean(0)
    components = torch.linalg.svd(hidden - mean, full_matrices=False)[2][:2]
    flat = (hidden - mean) @ components.T
    weight = (components @ classifier.head.weight[0]).cpu().numpy()
    offset = float(classifier.head.weight[0] @ mean + classifier.head.bias)
    with figure(path, 9.0, 3.9) as fig:
        left, right = fig.subplots(1, 2)
        _scatter_classes(left, flat, labels, most=None, s=4, labelled=True)
        reach = np.array([value.item() for value in flat[:, 1].aminmax()], dtype=np.float32)
        left.plot(-(offset + weight[1] * reach) / weight[0], reach, color="black", lw=1.5, label="wᵀh + b = 0")
        title = "Representation h(x), first two principal components"
        left.set(title=title, xlabel="component 1", ylabel="component 2")
        left.legend(loc="best", fontsize=8, markerscale=3)
        log_odds, trace = classifier(x).cpu().numpy(), metric_trace(classifier, x).cpu().numpy()
        right.scatter(log_odds, trace, s=4, color=COLORS["rsgd-c"], alpha=0.5)
        right.axvline(0, color="black", lw=1)
        right.set(title="M_X is larger near the decision boundary", xlabel="log odds wᵀh(x) + b")
        right.set(ylabel="tr M_X(x)", yscale="log")


def _flow(scene: Scene, flow: FlowModel, paths: Paths, starts: list[int], path: Path) -> None:
    """Samples of the flow's prior seen from above, and its paths in its own latent space."""
    prior = torch.randn(SHOWN_POINTS * 2, 3, generator=torch.Generator().manual_seed(0)).to(scene.train.x)
    codes = map_blocks(flow.encode, scene.train.x[:SHOWN_POINTS])
    with figure(path, 9.4, 4.4) as fig:
        left, right = fig.subplots(1, 2)
        left.scatter(*_columns(chart_of(map_blocks(flow.decode, prior))), s=3, color=COLORS["flow"], alpha=0.6)
        _ring(left)
        left.set(title="Samples of the flow's prior, seen from above", xlabel="u₁", ylabel="u₂", aspect="equal")
        left.set(xlim=(-1.35, 1.35), ylim=(-1.35, 1.35))
        _scatter_classes(right, codes[:, :2], scene.train.y, s=3, alpha=0.5)
        right.set(xlim=(-5, 5), ylim=(-5, 5))
        _draw_paths(right, [("flow", paths.z)], starts)
        right.set(title="Its paths in its latent space (first two of three axes)", xlabel="z₁", ylabel="z₂")
        right.legend(**_LEGEND)


def _draw_paths(axes: Axes, lines: Iterable[tuple[str, Tensor | None]], starts: list[int]) -> None:
    for name, line in lines:
        assert line is not None
        for order, start in enumerate(starts):
            x, y = _columns(line[:, start, :2])
            axes.plot(x, y, color=COLORS[name], lw=1.7, label=name if order == 0 else None, path_effects=_OUTLINE)
            axes.scatter(x[-1:], y[-1:], s=26, marker="s", color=COLORS[name], edgecolor="white", lw=0.8, zorder=4)
            axes.scatter(x[:1], y[:1], s=26, color="white", edgecolor="black", lw=1.1, zorder=5)


def _heat(axes: Axes, scene: Scene, field: Callable[[Tensor], Tensor]) -> Any:
    """The rim of the hole on a heat map over the box of the codes and a margin.

    What rises beyond the shown range has the last colour.
    """
    codes = map_blocks(scene.vae.encode, scene.train.x)
    lower, upper = codes.amin(0), codes.amax(0)
    margin = 0.1 * (upper - lower)
    first, second = (
        torch.linspace(float(a), float(b), _GRID) for a, b in zip(lower - margin, upper + margin, strict=True)
    )
    grid = torch.cartesian_prod(first, second).to(codes)
    away = chart_of(map_blocks(scene.vae.decode, grid)).norm(dim=-1)
    values, distance = (x.reshape(_GRID, _GRID).T.cpu().numpy() for x in (map_blocks(field, grid), away))
    on_data = map_blocks(field, codes).cpu().numpy()
    low, high = (float(np.quantile(on_data, share)) for share in (0.01, 0.99))
    rim: Any = {"levels": [HOLE_RADIUS], "colors": "white", "linestyles": "--", "linewidths": 1.2, "zorder": 3}
    axes.contour(first.numpy(), second.numpy(), distance, **rim)  # above the codes and paths that crowd there
    look: Any = {"cmap": "magma", "rasterized": True, "shading": "gouraud"}
    norm = Normalize(low, high + 0.8 * (high - low))
    return axes.pcolormesh(first.numpy(), second.numpy(), values, norm=norm, **look)


def _add_scale(fig: Any, image: Any, axes: Axes | Sequence[Axes], label: str, **options: Any) -> None:
    fig.colorbar(image, ax=axes, label=label, extend="max", shrink=0.85, **options)


def _log_volume(scene: Scene, metric: Metric) -> Callable[[Tensor], Tensor]:
    return lambda z: volume(damped(metric(scene.vae.linearize(z))), floor=DAMPING).log10()


def _codes(axes: Axes, scene: Scene) -> None:
    codes = map_blocks(scene.vae.encode, scene.train.x)
    _scatter_classes(axes, codes, scene.train.y, ("#9fd3ff", CLASS_COLORS[1]), labelled=True, s=2, alpha=0.8)


def _chart(axes: Axes, scene: Scene) -> None:
    _scatter_classes(axes, chart_of(scene.train.x), scene.train.y, s=3, alpha=0.45)
    _ring(axes)
    axes.set(xlabel="u₁", ylabel="u₂", aspect="equal")


def _scatter_classes(
    axes: Any,
    points: Tensor,
    labels: Tensor,
    colors: Sequence[str] = CLASS_COLORS,
    *,
    most: int | None = SHOWN_POINTS,
    labelled: bool = False,
    **style: Any,
) -> None:
    """Points in the colour of their class, the first of them only."""
    points, labels = points[:most], labels[:most]
    for label, color in enumerate(colors):
        name = {"label": f"class {label}"} if labelled else {}
        axes.scatter(*_columns(points[labels == label]), color=color, **name, **style)


def _ring(axes: Axes) -> None:
    angle = np.linspace(0, 2 * np.pi, 100)
    axes.plot(HOLE_RADIUS * np.cos(angle), HOLE_RADIUS * np.sin(angle), color="black", lw=1, ls="--")


def _columns(points: Tensor) -> tuple[Any, ...]:
    return tuple(points.detach().cpu().numpy().T)


def draw_tabular(results: Mapping[str, Any], folder: Path) -> None:
    """Draw every figure of a tabular experiment."""
    _by_step(results, folder / "ld-by-step")
    _by_confidence(results, folder / "by-confidence")
    _curve(results, folder / "bandwidth")


def _by_step(results: Mapping[str, Any], path: Path) -> None:
    table = pd.json_normalize(results["by_step"])
    with figure(path, 8.4, 3.4) as fig:
        panels = zip(fig.subplots(1, 2, sharey=True), ("no", "yes"), ("Without", "With"), strict=True)
        for axes, constraint, title in panels:
            for name in OPTIMIZERS:
                rows = table[(table["constraint"] == constraint) & (table["optimizer"] == name)]
                steps, mean, std = rows["steps"], rows["ld_sq.mean"], rows["ld_sq.std"]
                axes.plot(steps, mean, color=COLORS[name], label=name)
                axes.fill_between(steps, mean - std, mean + std, color=COLORS[name], alpha=0.2, lw=0)
            _finish(axes, title=f"{title} fidelity term", xlabel="gradient steps")
        fig.axes[0].set_ylabel("squared distance to the closest training row")
        fig.axes[0].legend()


def _by_confidence(results: Mapping[str, Any], path: Path) -> None:
    table = pd.json_normalize(results["by_confidence"]).rename(columns=lambda name: name.removesuffix(".mean"))
    lines = table.astype(dict.fromkeys(PANELS, float)).set_index(["subset", "constraint", "optimizer"])
    with figure(path, 13.2, 3.3) as fig:
        for axes, (key, title) in zip(fig.subplots(1, len(PANELS)), PANELS.items(), strict=True):
            for constraint, look, more in (("no", "-", ""), ("yes", "--", ", fidelity")):
                for name in (*OPTIMIZERS, *(GLOBAL if constraint == "no" else ())):
                    points = lines.loc[("reached", constraint, name), ["threshold", key]].dropna()
                    if len(points):  # a path over a graph has no steps
                        axes.plot(*points.to_numpy().T, color=COLORS[name], ls=look, label=f"{name}{more}")
            _finish(axes, title=title, xlabel="confidence", ylim=(0, 1.03 if key == "ctr" else None))
        fig.legend(*fig.axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=8)


def _curve(results: Mapping[str, Any], path: Path) -> None:
    with figure(path, 5.4, 3.9) as fig:
        axes = fig.subplots()
        for name in RIEMANNIAN:
            points = [(row[f"flip_ratio {name}"], row[f"ld_sq {name}"]) for row in results["curve"]]
            axes.plot(*zip(*points, strict=True), "o-", color=COLORS[name], label=f"{name}, over λ")
            for row, point in zip(results["curve"], points, strict=True):
                axes.annotate(f"{row['bandwidth']:g}", point, textcoords="offset points", xytext=(4, 4), fontsize=7)
        for row in results["table"]:
            name, key = row["optimizer"], (row["steps"], row["constraint"], row["subset"])
            if key == (STEPS[-1], "no", "valid") and name in OPTIMIZERS:
                star = (row["flip_ratio"], row["ld_sq"]["mean"])
                axes.scatter(*star, marker="*", s=130, color=COLORS[name], zorder=5)
                axes.annotate(name, star, textcoords="offset points", xytext=(6, -10), fontsize=8)
        title = "Bandwidth λ (stars: the table's rows)"
        _finish(axes, title=title, xlabel="flip ratio after 150 steps", ylabel="LD² after 150 steps")
        axes.legend()


def _finish(axes: Axes, *, ylim: tuple[float, float | None] = (0, None), **texts: str) -> None:
    axes.set(ylim=ylim, **texts)
    axes.grid(alpha=0.3)
