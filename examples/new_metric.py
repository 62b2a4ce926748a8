# %% [markdown]
# # A new metric in ten lines
#
# Say what is hard for people to change, and the search prefers what is easy:
#
# $$M(z) = J_\mu^\top W J_\mu + J_\sigma^\top J_\sigma, \qquad W = \mathrm{diag}(w)$$
#
# Features with a weight $w_j$ above 1 make latent directions that move them longer, so the way leads round them. With
# $w = 1$ this is the metric of `rsgd`.

# %%
"""A new metric in ten lines: say what is hard for people to change, and the search prefers what is easy.

    M(z) = JμᵀWJμ + JσᵀJσ,   W = diag(w)

python examples/new_metric.py
"""

import torch

import counterpath as cp
from counterpath.data.encoding import Encoder
from counterpath.geometry.metric import Linearization, Metric, gram
from counterpath.search.descent import Descent

HARD = {"age": 100.0, "education-num": 30.0, "marital-status": 30.0, "relationship": 30.0}


def effort(encoder: Encoder, hard: dict[str, float]) -> Metric:
    """The pull-back metric with the features weighed by how hard they are to change."""
    weights = torch.ones(encoder.width)
    for name, weight in hard.items():
        weights[encoder.columns(name)] = weight

    def metric(lin: Linearization) -> torch.Tensor:
        mean, *uncertainty = lin.factors
        return gram(weights.sqrt()[:, None] * mean) + sum(gram(factor) for factor in uncertainty)

    return metric


# %%
data = cp.datasets.load("adult-carla")
rows = data.train.sample(3000, random_state=0).drop(columns="fnlwgt")  # a survey weight, not a property of anybody
schema = cp.Schema.infer(rows, target=data.target)
encoder = Encoder.fit(rows.drop(columns=data.target), schema)

explainer = cp.Explainer(latent_dim=8, hidden=(96, 48), epochs=100, seed=0, progress=False)
explainer.fit(rows, target=data.target, schema=schema)
people = data.test.drop(columns=["fnlwgt", data.target]).head(200)
people = people[explainer.predict(people) == 0].head(60)
print(f"{'method':8} {'found':>6} {'hard':>6} {'other':>6}   mean distance that features move, of their range")
for method in ("rsgd", Descent("effort", metric=effort(encoder, HARD))):
    result = explainer.explain(people, target_class=1, confidence=0.6, method=method, paths="end")
    old, new = (encoder.encode(f[result.valid]) for f in (result.factuals, result.counterfactuals))
    moved = (new - old).abs().mean(0)
    hard = torch.zeros(encoder.width, dtype=torch.bool)
    hard[encoder.columns(*HARD)] = True
    means = f"{moved[hard].mean():6.3f} {moved[~hard].mean():6.3f}"
    print(f"{result.request['method']:8} {result.valid.mean():6.0%} {means}")

# %%
result.plot_importance()
