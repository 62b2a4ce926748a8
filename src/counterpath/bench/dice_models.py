"""A classifier of encoded rows, as DiCE asks models: for rows that it scaled itself, or for tables."""

from collections.abc import Sequence

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from counterpath.data.axes import on_grid
from counterpath.data.encoding import Encoder
from counterpath.models.classifier import Classifier, probabilities


class ScaledClassifier(nn.Module):
    """The probability of class 1 for rows as DiCE's gradient method has them, differentiable.

    A number comes min-max scaled to the range of the training rows, which is what the encoder does, too, apart from its
    transform. A category comes one-hot, and need not be 0 or 1 during the descent; it is encoded by the same mixture of
    its categories' codes. So all but the transforms is one matrix.

    Args:
        classifier: Of encoded rows.
        encoder: Encodes them.
        columns: DiCE's columns in order: the names of numbers, and "feature_category".
    """

    translation: Tensor

    def __init__(self, classifier: Classifier, encoder: Encoder, columns: Sequence[str]) -> None:
        super().__init__()
        self.classifier = classifier
        translation = torch.zeros(len(columns), encoder.width)
        self.bent = {}
        layout = zip(encoder.schema, encoder.axes, encoder.layout, encoder.low, encoder.high, strict=True)
        for feature, axis, place, low, high in layout:
            if feature.categories:
                for number, value in enumerate(feature.categories):
                    if f"{feature.name}_{value}" in columns:  # DiCE knows none that the training rows have not
                        code = axis.points(torch.tensor([float(number)]))
                        translation[columns.index(f"{feature.name}_{value}"), place] = code[0].float()
            else:
                translation[columns.index(feature.name), place] = 1
                if feature.transform != "identity":
                    self.bent[columns.index(feature.name)] = (axis, low, high - low)
        self.register_buffer("translation", translation)

    def encode(self, scaled: Float[Tensor, "n K"]) -> Float[Tensor, "n D"]:
        """The same rows as the classifier knows them."""
        parts = list(scaled.split(1, dim=-1))
        for column, (axis, low, reach) in self.bent.items():
            parts[column] = axis.points(low + reach * parts[column][:, 0])
        return torch.cat(parts, dim=-1) @ self.translation

    def forward(self, scaled: Float[Tensor, "*n K"]) -> Float[Tensor, "*n 1"]:
        """The probability of class 1, for rows or for a single one, as DiCE has both."""
        rows = torch.atleast_2d(scaled)
        return self.classifier.probability(self.encode(rows)).view(*scaled.shape[:-1], 1)


class TableClassifier:
    """The probabilities of both classes for tables, as scikit-learn's classifiers give them.

    Args:
        classifier: Of encoded rows.
        encoder: Encodes them.
    """

    def __init__(self, classifier: Classifier, encoder: Encoder) -> None:
        self.classifier, self.encoder = classifier, encoder
        self.classes_ = np.array([0, 1])

    def predict_proba(self, frame: pd.DataFrame) -> NDArray[np.float32]:
        """One row a row of the table, one column a class."""
        with torch.no_grad():
            answer: NDArray[np.float32] = probabilities(self.classifier(encode_text(self.encoder, frame))).numpy()
        return answer

    def predict(self, frame: pd.DataFrame) -> NDArray[np.int64]:
        """The class of every row."""
        answer: NDArray[np.int64] = self.predict_proba(frame).argmax(1)
        return answer


def encode_text(encoder: Encoder, frame: pd.DataFrame) -> Float[Tensor, "n D"]:
    """Encode a table as DiCE returns it: categories as text, numbers of any dtype, other columns besides.

    `Encoder.encode` would check the table first, which takes longer than all the rest for a single row, and DiCE asks
    for single rows thousands of times.
    """
    parts = []
    for feature, axis in zip(encoder.schema, encoder.axes, strict=True):
        column = frame[feature.name].tolist()
        if feature.categories:
            places = {str(value): place for place, value in enumerate(feature.categories)}
            column = [places[str(value)] for value in column]
        parts.append(axis.points(torch.tensor(column, dtype=torch.float64)))
    return on_grid(torch.cat(parts, dim=1), torch.float32)
