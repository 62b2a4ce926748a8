import torch

from counterpath.data.surface import Surface
from counterpath.search.method import SearchModels
from counterpath.search.methods import geometry_of
from counterpath.search.objective import Objective
from counterpath.search.traverse import Trajectory, at_confidence, sweep, traverse


def test_chunks_end_where_all_rows_together_end(search_models: SearchModels, surface: Surface) -> None:
    x, (model, metric), objective = (
        surface.x[:200],
        geometry_of("rsgd", search_models),
        Objective(search_models.classifier),
    )
    options = {"stop": at_confidence(0.6), "steps": 20, "block_size": 64}
    whole = traverse(model, metric, objective, x, **options)
    chunks = sweep(model, metric, objective, x.split(70), device=x.device, **options)
    found = list(chunks)
    assert [len(part.end) for part in found] == [70, 70, 60]
    assert all(part.x.shape[0] == 1 for part in found), "only ends are kept"
    assert torch.equal(torch.cat([part.end for part in found]), whole.end)
    assert torch.equal(torch.cat([part.reason for part in found]), whole.reason)


def test_one_chunk_is_held_at_a_time(search_models: SearchModels, surface: Surface) -> None:
    (model, metric), asked = geometry_of("sgd", search_models), []

    def chunks() -> object:
        for number in range(3):
            asked.append(number)
            yield surface.x[:10]

    ends = sweep(model, metric, Objective(search_models.classifier), chunks(), device=surface.x.device, steps=1)  # type: ignore[arg-type]
    assert isinstance(next(ends), Trajectory)
    assert asked == [0]
