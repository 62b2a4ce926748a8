# %% [markdown]
# # Digits: 64 pixels, ten classes
#
# Tables of many columns: what would make this 3 an 8? Every pixel is a feature, and the path is a film.

# %%
"""Handwritten digits as a table of 64 pixels: paths from one digit to another, as images.

python examples/digits.py
"""

import numpy as np
import pandas as pd
from sklearn.datasets import load_digits

import counterpath as cp
from counterpath.explanation.plots.shown import ShownFigure

images = load_digits()
pixels = [f"r{row}c{column}" for row in range(8) for column in range(8)]
table = pd.DataFrame(images.data, columns=pixels).assign(digit=images.target)
schema = cp.Schema(tuple(cp.Feature(name, "continuous", lower=0, upper=16) for name in pixels))

# %% [markdown]
# Answers are what the generative model makes, whole, since a digit is more than its pixels: none is put back by itself.

# %%
explainer = cp.Explainer(
    method="rsgd",
    latent_dim=8,
    hidden=(128, 64),
    epochs=60,
    sparsify=False,
    keep_residual=False,
    staged=False,
    avoid_unseen=False,
    fallback=False,
    seed=0,
    progress=False,
)
explainer.fit(table.iloc[:1400], target="digit", schema=schema)
threes = table.iloc[1400:].query("digit == 3").drop(columns="digit")
threes = threes[(explainer.predict(threes) == 3).to_numpy()].head(5)
result = explainer.explain(threes, target_class=8, confidence=0.9)
print(f"{int(result.valid.sum())} of {len(result)} threes became an eight for the model.")

# %% [markdown]
# Each row is one path, from the 3 as it was written to what the model takes for an 8.


# %%
def film(result: cp.Explanation, frames: int = 8) -> ShownFigure:
    """Points of every path as images, evenly spread."""
    figure = ShownFigure(figsize=(frames, len(result)), layout="constrained")
    for row, axes in zip(result.factuals.index, figure.subplots(len(result), frames), strict=True):
        path = result.path(row)
        for point, panel in zip(np.linspace(0, len(path) - 1, frames).round().astype(int), axes, strict=True):
            panel.imshow(path[pixels].iloc[point].to_numpy(float).reshape(8, 8), cmap="gray_r", vmin=0, vmax=16)
            panel.set(xticks=[], yticks=[])
            panel.set_xlabel(f"p {path['probability'].iloc[point]:.2f}", fontsize=7)
    return figure


film(result)

# %%
result.plot_map()
