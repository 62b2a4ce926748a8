import pytest
import torch

import counterpath as cp
from counterpath.fitting.fitted import LatentMap


@pytest.mark.parametrize("width", [1, 2])
def test_flat_codes_are_shown_as_they_are(width: int) -> None:
    codes = torch.randn(20, width)
    view = LatentMap.of(codes)
    torch.testing.assert_close(view.points[:, :width], codes.double())
    assert view.points.shape == (20, 2)
    assert view.note == "the latent space itself"
    torch.testing.assert_close(view.project(codes), view.points)


def test_other_codes_are_shown_by_the_plane_of_most_variance() -> None:
    generator = torch.Generator().manual_seed(0)
    codes = torch.randn(500, 4, generator=generator, dtype=torch.float64) * torch.tensor([1.0, 5.0, 0.1, 3.0]) + 7
    view = LatentMap.of(codes)
    assert view.axes.abs().argmax(0).tolist() == [1, 3]
    torch.testing.assert_close(view.axes.T @ view.axes, torch.eye(2).double(), atol=1e-12, rtol=0)
    assert (view.axes.sum(0) > 0).all()
    torch.testing.assert_close(view.project(codes), view.points)
    torch.testing.assert_close(view.points.mean(0), torch.zeros(2).double(), atol=1e-9, rtol=0)
    assert view.note == "2 of 4 latent dimensions: the principal components, 97 % of the variance"


def test_the_landscape_is_a_sample_of_the_training_rows(explainer: cp.Explainer) -> None:
    models = explainer.models_
    some, all_ = models.landscape(50), models.landscape(10_000)
    assert (len(some), len(all_)) == (50, 600)
    assert set(some["predicted"]) <= set(explainer.classes_)
    assert models.predict_proba(models.rows) is models.probabilities
    torch.testing.assert_close(models.predict_proba(models.rows.clone()), models.probabilities)
