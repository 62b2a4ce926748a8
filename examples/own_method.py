# %% [markdown]
# # A method of your own
#
# In one class: the smallest straight step towards somebody who was accepted. All that a method needs is in the
# `Problem`: what each row may become, the target, the models, the training rows.

# %%
"""A method of your own in one class: the smallest straight step towards somebody who was accepted.

python examples/own_method.py
"""

import torch

import counterpath as cp
from counterpath.geometry.graph import Neighbours
from counterpath.search.method import Problem
from counterpath.search.paths import Paths
from counterpath.search.traverse import StopReason

STEPS, CANDIDATES = 20, 10  # points on a line, and lines that are tried for each row


class TowardsAccepted(cp.Method):
    """Lines to the ten nearest training rows that the model accepts, cut off at their first valid point."""

    name = "towards-accepted"

    def search(self, problem: Problem) -> Paths:
        """One path for each row: of its lines the one whose end costs least."""
        feasible, setup = problem.feasible, problem.setup
        accepted = setup.rows[problem.target.is_reached(setup.probabilities)]
        near = Neighbours(accepted, feasible.weights).nearest(feasible.factual, CANDIDATES)[1]
        times = torch.linspace(0, 1, STEPS + 1)[:, None]
        row = torch.arange(len(problem)).repeat_interleave(STEPS + 1)
        reason = torch.full((len(problem),), StopReason.ALL_STEPS_TAKEN)
        best: Paths | None = None
        for goal in accepted[near].unbind(1):
            x = feasible.legal(torch.lerp(feasible.factual[:, None], goal[:, None], times).flatten(0, 1), row)
            x[:: STEPS + 1] = feasible.factual  # a path begins at the row itself
            paths = problem.paths(row, x, reason).truncate()
            if best is not None:
                cost, its_cost = (feasible.cost(each.x[each.last]) for each in (best, paths))
                paths = best.replace_where(paths.found & (~best.found | (its_cost < cost)), paths)
            best = paths
        assert best is not None
        return best


# %% [markdown]
# Beside the methods that are there, on the same people; every answer is checked as those of any method are.

# %%
data = cp.datasets.load("adult-carla")
explainer = cp.Explainer(method=TowardsAccepted(), hidden=(96, 48), epochs=60, seed=0, progress=False)
explainer.fit(data.train.sample(3000, random_state=0), target=data.target, schema=data.schema)
rows = data.test.head(120)[explainer.predict(data.test.head(120)) == 0].head(50)
results = {}
for method in (None, "nearest", "geodesic"):
    result = explainer.explain(rows, target_class=1, method=method, paths="all")
    results[result.request["method"]] = result
    means = result.measures()[result.valid.to_numpy()][["l0", "l1", "ld_sq"]].mean()
    shown = ", ".join(f"{name} {value:.3f}" for name, value in means.items())
    print(f"{result.request['method']:17} found {result.valid.mean():4.0%}: {shown}")

# %%
results["towards-accepted"].plot_map(rows.index[:15])
