# %% [markdown]
# # Your own torch model
#
# Trained by you on encoded rows, explained along the layer that you name. The method `rsgd-c` measures distances as
# this layer does.

# %%
"""Your own torch model: trained by you on encoded rows, explained along the layer that you name.

python examples/own_torch_model.py
"""

import torch
from torch import Tensor, nn

import counterpath as cp
from counterpath.data.encoding import Encoder


class Net(nn.Module):
    """Any module that takes encoded rows and returns logits will do; this one has a name for its representation."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Linear(width, 32), nn.Tanh(), nn.Linear(32, 16), nn.Tanh())
        self.head = nn.Linear(16, 1)

    def forward(self, x: Tensor) -> Tensor:
        """The log odds of the second class."""
        return self.head(self.features(x))[:, 0]


def train(net: nn.Module, x: Tensor, y: Tensor) -> None:
    """A training loop as you would write it."""
    optimizer = torch.optim.Adam(net.parameters(), lr=5e-3)
    for _ in range(200):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(x), y).backward()
        optimizer.step()


# %% [markdown]
# The explainer encodes what it is given with an encoder of its own, fitted to the same rows: give it these rows.

# %%
torch.manual_seed(0)
data = cp.datasets.load("adult-carla")
rows = data.train.sample(3000, random_state=0).drop(columns="fnlwgt")  # a survey weight, not a property of anybody
schema = cp.Schema.infer(rows, target=data.target)
features = rows.drop(columns=data.target)
encoder = Encoder.fit(features, schema)
net = Net(encoder.width)
train(net, encoder.encode(features), torch.tensor(rows[data.target].to_numpy(), dtype=torch.float32))

# %%
explainer = cp.Explainer(
    method="rsgd-c", representation_layer="features", latent_dim=8, hidden=(96, 48), epochs=100, seed=0, progress=False
)
explainer.fit(rows, target=data.target, schema=schema, model=net)
people = data.test.drop(columns=["fnlwgt", data.target]).head(100)
people = people[explainer.predict(people) == 0].head(25)
result = explainer.explain(people, target_class=1, confidence=0.6)
print("Representation:", result.request["representation_layer"])
result.select(list(people.index[:4]))

# %% [markdown]
# Nothing is taken on trust: encode what was returned, and ask the network.

# %%
with torch.no_grad():
    asked = torch.sigmoid(net(encoder.encode(result.counterfactuals[result.valid])))
low, high = asked.min(), asked.max()
print(f"Your network gives the {len(asked)} counterfactuals probabilities from {low:.2f} to {high:.2f}.")
result.plot_map()
