"""The norms of a model's gradients, in a file beside it: the next point of a path needs no pass to know them.

The file is a ``.npy`` file and 32 bytes more: a SHA-256 of it and of the weights that it belongs to.
"""

from __future__ import annotations

import hashlib
import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bigmc.errors import ModelError
from bigmc.model import LinearModel, Model, ModelSource
from bigmc.store.files.atomic import replacing
from bigmc.store.files.npy import read_npy

_CURE = "delete it: without it training takes a pass more"


def norms_beside(model: Path) -> Path:
    """Return the file of the norms of the final gradients of a training."""
    return model.with_suffix(".norms.npy")


def save_norms(model: Model, target: Path) -> None:
    """Store the norms of the gradients, if the model has any."""
    if not isinstance(model, LinearModel) or model.gradient_norms is None:
        return
    stream = io.BytesIO()
    np.save(stream, model.gradient_norms)
    content = stream.getvalue()
    with replacing(norms_beside(target)) as file:
        file.write(content + digest_of(content, model))


def with_norms(model: Model, path: Path) -> Model:
    """Return a model with the norms beside its file, if there are any; raises as `read_norms`."""
    file = norms_beside(path)
    if not isinstance(model, LinearModel) or not file.exists():
        return model
    return replace(model, gradient_norms=read_norms(file, model))


def model_to_start_from(source: ModelSource) -> Model:
    """Return a model with the norms beside its file, if there are any; raises as `read_norms`.

    `ModelError` if its file has changed since its digest was recorded.
    """
    model = source.load()
    return model if source.path is None else with_norms(model, source.path)


def digest_of(content: bytes, model: LinearModel) -> bytes:
    """Return the SHA-256 of norms, as a ``.npy`` file, and of the weights of their model."""
    digest = hashlib.sha256(content)
    coef = np.add(model.coef, 0.0, dtype=np.float64)  # -0.0 becomes 0.0, as in a model stored as non-zeros
    for array in (model.features, coef, model.intercept):
        digest.update(array.tobytes())
    return digest.digest()


def read_norms(path: Path, model: LinearModel) -> NDArray[np.float32]:
    """Return the norms stored beside a model.

    `ModelError` if the file is damaged, belongs to other weights, or does not have a norm for every feature.
    """
    try:
        stored = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error})", _CURE) from None
    content, digest = stored[:-32], stored[-32:]
    if digest != digest_of(content, model):
        raise ModelError(f"{path} is damaged, or the norms of another model", _CURE)
    try:
        norms = read_npy(content)
    except (ValueError, EOFError) as error:
        raise ModelError(f"{path} is damaged ({error})", _CURE) from None
    if norms.shape != (model.n_features,) or norms.dtype != np.float32:
        raise ModelError(f"{path} does not hold the norms of {model.n_features} features", _CURE)
    if not np.isfinite(norms).all() or norms.min(initial=0.0) < 0:
        raise ModelError(f"{path} holds norms that are negative or not finite", _CURE)
    return norms
