"""Your own generative model: any torch module with `encode` and `decode` is a space to search in.

Breast tumours, 30 measurements of cell nuclei each (Wolberg et al., 1993; it comes with scikit-learn). What would have
to be otherwise for a tumour to be told benign?

    python examples/own_generator.py
"""

import torch
from sklearn.datasets import load_breast_cancer
from torch import Tensor, nn

import counterpath as cp
from counterpath.data.encoding import Encoder


class Autoencoder(nn.Module):
    """A plain autoencoder. The explainer adds the uncertainty that makes leaving the data expensive."""

    def __init__(self, width: int, latent: int) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(width, 64), nn.Tanh(), nn.Linear(64, latent))
        self.decoder = nn.Sequential(nn.Linear(latent, 64), nn.Tanh(), nn.Linear(64, width), nn.Sigmoid())

    def encode(self, x: Tensor) -> Tensor:
        """Encoded rows (n, D) to codes (n, d)."""
        return self.encoder(x)

    def decode(self, z: Tensor) -> Tensor:
        """Codes to rows in [0, 1]; it must be differentiable."""
        return self.decoder(z)


def train(model: Autoencoder, x: Tensor) -> None:
    """Reconstruct the rows, from codes with some noise, so that the space between codes means something too."""
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(1000):
        optimizer.zero_grad()
        codes = model.encode(x)
        noisy = codes + 0.05 * torch.randn_like(codes)
        loss = (model.decode(noisy) - x).square().sum(1).mean() + 1e-3 * codes.square().sum(1).mean()
        loss.backward()
        optimizer.step()


def main() -> None:
    """Train an autoencoder, search in it, and look at the uncertainty along the way."""
    torch.manual_seed(0)
    table = load_breast_cancer(as_frame=True).data
    labels = load_breast_cancer(as_frame=True).target.map({0: "malignant", 1: "benign"}).rename("tumour")
    schema = cp.Schema.infer(table)
    encoder = Encoder.fit(table, schema)
    generator = Autoencoder(encoder.width, latent=6)
    train(generator, encoder.encode(table))

    explainer = cp.Explainer(seed=0).fit(table, target=labels, schema=schema, generator=generator)
    diagnostics = explainer.diagnostics()
    kept = diagnostics.reconstruction["kept"]
    print(f"Your generator keeps {kept.median():.0%} of a feature's variance (median), at least {kept.min():.0%}.")
    print(f"Our uncertainty tells data from empty space: AUC {diagnostics.calibration.auc:.3f}.\n")

    malignant = table[explainer.predict(table) == "malignant"].head(12)
    result = explainer.explain(malignant, target_class="benign", confidence=0.7)
    print(result.summary().drop(columns="changes most").T.round(3), "\n")
    longest = result.measures()["steps"][result.valid].idxmax()
    print(f"The way of tumour {longest}, the longest:")
    print(result.path(longest)[["step", "mean radius", "mean concavity", "probability", "uncertainty"]][::4].round(3))


if __name__ == "__main__":
    main()
