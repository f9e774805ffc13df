"""A drop-in for scikit-learn's HashingVectorizer, bit for bit, many times faster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np
import pyarrow as pa
import scipy.sparse
from numpy.typing import NDArray
from sklearn.feature_extraction import FeatureHasher
from sklearn.feature_extraction import text as sklearn_text
from sklearn.preprocessing import normalize
from sklearn.utils.metaestimators import available_if
from sklearn.utils.sparsefuncs_fast import inplace_csr_row_normalize_l1, inplace_csr_row_normalize_l2
from sklearn.utils.validation import check_is_fitted

from bigmc.errors import DataError
from bigmc.ingestion.hashing.feature_names import NameCounter
from bigmc.ingestion.hashing.hasher import ANALYZERS, MAX_HASH_BITS, TextHasher

NAMES_KEPT = 1 << 16
"""Number of n-grams whose names are kept, the most frequent."""

_NORMALIZERS: dict[str | None, Any] = {"l1": inplace_csr_row_normalize_l1, "l2": inplace_csr_row_normalize_l2}
_WORDS = r"(?u)\b\w\w+\b"


class HashingVectorizer(sklearn_text.HashingVectorizer):  # type: ignore[misc]
    """Drop-in for :class:`sklearn.feature_extraction.text.HashingVectorizer`.

    The same parameters give the same matrix, bit for bit. Compiled code hashes texts with
    ``input="content"``, one of the three analyzers by name, the default token pattern, no custom functions
    or stop words, no stripping of accents, alternating signs, and a power of two as `n_features`.
    With other parameters scikit-learn hashes them.

    Parameters
    ----------
    keep_names : bool, default=False
        Count n-grams in `fit`, so that `get_feature_names_out` can name features, for the 65,536 most
        frequent n-grams. Other parameters are those of scikit-learn.

    Examples
    --------
    >>> HashingVectorizer(n_features=2**10).transform(["a text", "another one"]).shape
    (2, 1024)
    """

    def __init__(
        self,
        *,
        input: str = "content",
        encoding: str = "utf-8",
        decode_error: str = "strict",
        strip_accents: Any = None,
        lowercase: bool = True,
        preprocessor: Any = None,
        tokenizer: Any = None,
        stop_words: Any = None,
        token_pattern: str | None = _WORDS,
        ngram_range: tuple[int, int] = (1, 1),
        analyzer: Any = "word",
        n_features: int = 2**20,
        binary: bool = False,
        norm: str | None = "l2",
        alternate_sign: bool = True,
        dtype: Any = np.float64,
        keep_names: bool = False,
    ) -> None:
        super().__init__(
            input=input,
            encoding=encoding,
            decode_error=decode_error,
            strip_accents=strip_accents,
            lowercase=lowercase,
            preprocessor=preprocessor,
            tokenizer=tokenizer,
            stop_words=stop_words,
            token_pattern=token_pattern,
            ngram_range=ngram_range,
            analyzer=analyzer,
            n_features=n_features,
            binary=binary,
            norm=norm,
            alternate_sign=alternate_sign,
            dtype=dtype,
        )
        self.keep_names = keep_names

    def fit(self, X: Any, y: Any = None) -> Self:
        """Check the parameters; with `keep_names` also count the n-grams of the texts.

        Raises
        ------
        DataError
            If names are to be kept, but only scikit-learn can hash the texts.
        """
        super().fit(X, y)
        if self.keep_names:
            hasher, texts = self._hasher(), _as_texts(X)
            if hasher is None or texts is None:
                raise DataError("keep_names works only with compiled hashing", "leave keep_names out")
            counter = NameCounter(hasher, NAMES_KEPT)
            counter.update(texts)
            self.names_ = counter.table()
        return self

    def fit_transform(self, X: Any, y: Any = None) -> Any:
        """Fit, then transform the same texts."""
        texts = X if isinstance(X, str | list | np.ndarray) or hasattr(X, "__len__") else list(X)
        return self.fit(texts, y).transform(texts)

    def transform(self, X: Any) -> Any:
        """Return the weighted counts of texts, a sparse CSR matrix of shape (n_samples, n_features)."""
        if isinstance(X, str):
            return super().transform(X)  # raises the error
        documents = X if hasattr(X, "__len__") else list(X)
        hasher = self._hasher()
        texts = None if hasher is None else _as_texts(documents)
        if hasher is None or texts is None or not len(texts):
            return super().transform(documents)
        rows = hasher.transform(texts)
        matrix = scipy.sparse.csr_array(
            (rows.data.astype(self.dtype), rows.indices, _narrow(rows.indptr)), (rows.n_rows, self.n_features)
        )
        matrix.has_canonical_format = True
        if self.binary:
            matrix.data.fill(1)
        weighted = _like_scikit_learn(matrix)
        scale = _NORMALIZERS.get(self.norm) if matrix.dtype.kind == "f" else None
        if scale is not None:
            scale(weighted)  # `normalize` has checks that take as long as the division
            return weighted
        return weighted if self.norm is None else normalize(weighted, norm=self.norm, copy=False)

    def _keeps_names(self) -> bool:
        return bool(self.keep_names)

    @available_if(_keeps_names)  # type: ignore[untyped-decorator]
    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return a name for each feature: its most frequent n-gram, or its number if none is known.

        Parameters
        ----------
        input_features : ignored
        """
        check_is_fitted(self, "names_")
        names = np.array([f"hash_{j}" for j in range(self.n_features)], object)
        table = self.names_.sort_by([("count", "ascending"), ("name", "descending")])
        names[table.column("bucket").to_numpy()] = table.column("name").to_numpy(zero_copy_only=False)
        return names

    def _hasher(self) -> TextHasher | None:
        """Return the compiled hasher for these parameters, or None."""
        bits = int(self.n_features).bit_length() - 1
        own = (self.strip_accents, self.preprocessor, self.tokenizer, self.stop_words)
        known = (
            self.input == "content"
            and isinstance(self.analyzer, str)
            and self.analyzer in ANALYZERS
            and all(option is None for option in own)
            and (self.analyzer != "word" or self.token_pattern == _WORDS)
            and self.alternate_sign
            and self.n_features == 1 << bits
            and 1 <= bits <= MAX_HASH_BITS
        )
        if not known:
            return None
        smallest, largest = self.ngram_range
        if not 1 <= smallest <= largest:
            return None  # scikit-learn raises the error
        return TextHasher(self.analyzer, (smallest, largest), bits, bool(self.lowercase))


def _as_texts(documents: Iterable[Any]) -> pa.Array | None:
    """Return texts as an Arrow array; None if some are not valid Unicode texts."""
    if isinstance(documents, pa.Array | pa.ChunkedArray):
        return documents
    if not isinstance(documents, list | tuple):
        documents = documents.tolist() if hasattr(documents, "tolist") else list(documents)
    try:
        texts = pa.array(documents, pa.large_string())
    except (pa.ArrowInvalid, pa.ArrowTypeError, UnicodeEncodeError):
        return None
    # Arrow accepts bytes as texts; scikit-learn must decode them.
    return None if texts.null_count or isinstance(next(iter(documents), ""), bytes) else texts


def _narrow(indptr: NDArray[np.int64]) -> NDArray[Any]:
    return indptr.astype(np.int32) if indptr[-1] < 2**31 else indptr


def _like_scikit_learn(matrix: scipy.sparse.csr_array) -> Any:
    """Return a sparse array or matrix, whichever scikit-learn is configured to return."""
    kind = type(FeatureHasher(n_features=2).transform([{}]))
    return matrix if isinstance(matrix, kind) else kind(matrix)
