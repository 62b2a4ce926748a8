"""The same step by `torch.func`, as one would write it without closed-form Jacobians; and the least a step can cost."""

import torch
from torch import Tensor

from counterpath.bench.ours import STEP_SIZE, STEPPING, Step
from counterpath.bench.timing import Task
from counterpath.bench.workload import Workload, vae_of
from counterpath.errors import choose
from counterpath.geometry.linearize import jacobian_autodiff
from counterpath.search.objective import Objective


def eager_step(workload: Workload, method: str) -> Step:
    """One whole step: Jacobians by batched forward mode, the gradient by reverse mode, `torch.linalg.solve`.

    The models are folded: what differs from our own step is how it is differentiated and solved.
    """
    choose("method to time", method, dict.fromkeys(STEPPING))
    classifier, vae = workload.folded.classifier, vae_of(workload.folded)
    objective = Objective(classifier)

    def total(z: Tensor, factual: Tensor) -> Tensor:
        return objective.loss(vae.decode(z), factual)[0].sum()

    def metric(z: Tensor) -> Tensor:
        mean, mean_jac = jacobian_autodiff(vae.decoder, z)
        _, std_jac = jacobian_autodiff(vae.precision, z)
        if method == "rsgd":
            return mean_jac.mT @ mean_jac + std_jac.mT @ std_jac
        _, h_jac = jacobian_autodiff(classifier.representation, mean)
        mean_part, std_part = h_jac @ mean_jac, h_jac @ std_jac
        return mean_part.mT @ mean_part + std_part.mT @ std_part

    def step(z: Tensor, factual: Tensor) -> Tensor:
        direction: Tensor = torch.func.grad(total)(z, factual)  # M = I for sgd
        with torch.no_grad():
            if method != "sgd":
                stiff = metric(z) + workload.damping * torch.eye(z.shape[-1], dtype=z.dtype, device=z.device)
                direction = torch.linalg.solve(stiff, direction)
            moved: Tensor = STEP_SIZE * direction / direction.norm(dim=-1, keepdim=True)
            return z - moved

    return step


def floors(workload: Workload) -> dict[str, Task]:
    """d + 1 plain forward passes of the folded decoder, in one batch and one by one: whichever is faster is the floor.

    A step pushes a value and d tangents through the decoder, so it costs at least as much.
    """
    decoder, z = vae_of(workload.folded).decoder, workload.codes
    passes = z.shape[-1] + 1
    batch = z.repeat(passes, 1)

    def at_once() -> None:
        with torch.inference_mode():
            decoder(batch)

    def one_by_one() -> None:
        with torch.inference_mode():
            for _ in range(passes):
                decoder(z)

    return {"one batch": at_once, "one by one": one_by_one}
