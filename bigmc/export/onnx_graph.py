"""Linear models as ONNX graphs, from features to scores and labels."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigmc.errors import DataError
from bigmc.export.sklearn_pipeline import linear_model
from bigmc.model import LinearModel, Model

OPSET = 18
"""Version of the operators, known to runtimes of 2023 and later."""


def onnx_graph(model: Model) -> bytes:
    """Return the bytes of an ONNX file.

    The input ``X`` is of shape (n_samples, n_features) in single precision, the stored values of the
    features: for text those of `HashingVectorizer` with ``norm=None``, and with ``binary=True`` if the
    weighting is binary, since ONNX has no operator for the hashing of bigmc and scikit-learn. The outputs are
    ``scores``, (n_samples, n_classes), and ``label``, (n_samples,), int64 or texts. Weighting is part of the
    graph. `ModelError` if the model is not linear, its labels are sets, or its features are mapped;
    `DataError` if onnx is not installed.
    """
    try:
        import onnx
        from onnx import TensorProto, helper, numpy_helper
    except ImportError as error:
        raise DataError(
            f"ONNX files need a package that is missing ({error})", "pip install 'bigmc[onnx]'"
        ) from None
    linear = linear_model(model)
    constants: dict[str, np.ndarray[Any, Any]] = {
        "features": linear.features,
        "coef": linear.coef.astype(np.float32),
        "intercept": linear.intercept.astype(np.float32),
        "labels": _labels(linear),
    }
    nodes, weighted = _weighting(linear, constants, helper)
    nodes += [
        helper.make_node("Gather", [weighted, "features"], ["used"], axis=1),
        helper.make_node("MatMul", ["used", "coef"], ["products"]),
        helper.make_node("Add", ["products", "intercept"], ["scores"]),
        helper.make_node("ArgMax", ["scores"], ["best"], axis=1, keepdims=0),
        helper.make_node("Gather", ["labels", "best"], ["label"]),
    ]
    kind = TensorProto.INT64 if constants["labels"].dtype == np.int64 else TensorProto.STRING
    graph = helper.make_graph(
        nodes,
        "bigmc",
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, ["n", linear.n_features])],
        [
            helper.make_tensor_value_info("label", kind, ["n"]),
            helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", linear.n_classes]),
        ],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9, producer_name="bigmc"
    )
    onnx.checker.check_model(made)
    return bytes(made.SerializeToString(deterministic=True))


def _labels(model: LinearModel) -> np.ndarray[Any, Any]:
    """Return the labels as ONNX stores them: integers or texts."""
    if model.classes.dtype.kind in "iu":
        return model.classes.astype(np.int64)
    return np.array([str(label) for label in model.classes.tolist()], dtype=object)


def _weighting(
    model: LinearModel, constants: dict[str, np.ndarray[Any, Any]], helper: Any
) -> tuple[list[Any], str]:
    """Return the nodes that weight the values of ``X``, and the name of their output."""
    nodes, name = [], "X"
    if model.weighting.binary:  # counts differ only where words of one feature cancel out
        nodes += [helper.make_node("Abs", [name], ["sizes"]), helper.make_node("Sign", ["sizes"], ["binary"])]
        name = "binary"
    if model.column_scale is not None:
        constants["idf"] = model.column_scale.astype(np.float32)
        nodes.append(helper.make_node("Mul", [name, "idf"], ["scaled"]))
        name = "scaled"
    if model.weighting.l2:
        constants["axes"] = np.array([1], np.int64)
        constants["smallest"] = np.array([np.finfo(np.float32).tiny], np.float32)
        nodes += [
            helper.make_node("ReduceL2", [name, "axes"], ["norm"], keepdims=1),
            helper.make_node("Max", ["norm", "smallest"], ["divisor"]),  # a row of zeros stays zero
            helper.make_node("Div", [name, "divisor"], ["normed"]),
        ]
        name = "normed"
    return nodes, name
