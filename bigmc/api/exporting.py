"""Export models to other formats."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from bigmc.api.evaluation import evaluate
from bigmc.api.resolve import Size, model_of, model_source
from bigmc.errors import DataError
from bigmc.printable import printable

if TYPE_CHECKING:
    from sklearn.pipeline import Pipeline

    from bigmc.api.resolve import AnyModel
    from bigmc.store.dataset import Dataset


def to_sklearn(model: AnyModel) -> Pipeline:
    """Return a linear model as a fitted pipeline of scikit-learn's own classes.

    :func:`bigmc.export.sklearn_pipeline.to_sklearn` describes the pipeline and the supported models.

    Raises
    ------
    ModelError
        If scikit-learn has no equivalent.
    """
    from bigmc.export import to_sklearn as converted

    return converted(model_of(model))


def export(
    model: AnyModel,
    to: str | Path,
    *,
    dataset: str | Path | Dataset | None = None,
    split: str = "test",
    overwrite: bool = False,
    memory_limit: Size = None,
) -> dict[str, Any]:
    """Write a model in another format, given by the extension of the name.

    Parameters
    ----------
    model : path, Model or fitted classifier
        Model.
    to : path
        ``.md``: a model card in Markdown, with certificate, data and, given a dataset, the figures of an
        evaluation. ``.onnx``: an ONNX graph that computes scores and labels of a linear model from its
        features, without hashing; needs ``bigmc[onnx]``.
    dataset : path or Dataset, optional
        Dataset for the figures of a model card.
    split : str, default="test"
        Split of the dataset.
    overwrite : bool, default=False
        Replace another file at `to`; by default this is refused.
    memory_limit : str or int, optional
        For the evaluation.

    Returns
    -------
    dict
        ``export`` and ``bytes``.

    Raises
    ------
    DataError
        If the extension is unknown or another file is at `to`.
    ModelError
        If the model cannot be exported to this format.
    """
    from bigmc.export import model_card
    from bigmc.store.files.outputs import IfExists, Output, refuse_inputs

    refuse_inputs(to, [model, dataset])
    output, ending = Output.at(to), Path(to).suffix
    if ending == ".md":
        figures = None
        name = printable(Path(model).name) if isinstance(model, str | Path) else "model"
        with model_source(model) as source:
            if dataset is not None:
                # Given by its path, so a model too large for the limit is not read.
                figures = evaluate(model, dataset, memory_limit=memory_limit, split=split)
            content = model_card(source.load(), name, figures).encode()
    elif ending == ".onnx":
        from bigmc.export.onnx_graph import onnx_graph

        content = onnx_graph(model_of(model))
    else:
        raise DataError(f"{to}: unknown export format", "give a name that ends with .md or .onnx")
    output.write_new(content, IfExists(overwrite))
    return {"export": str(to), "bytes": len(content)}
