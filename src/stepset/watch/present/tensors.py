"""The size of a tensor in words."""

from __future__ import annotations

_SIZES = {"double": 8, "float64": 8, "int64": 8, "long": 8, "float": 4, "float32": 4, "int": 4, "int32": 4}
_SIZES |= {"half": 2, "float16": 2, "bfloat16": 2, "short": 2, "int16": 2, "char": 1, "int8": 1, "byte": 1, "uint8": 1}
_SIZES |= {"bool": 1, "complexfloat": 8, "complexdouble": 16}
"""The number of bytes of an element, by the name of the data type in torch and in the dumps of its Flight Recorder."""
_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def tensor_size(dtype: str, elements: int) -> str:
    """Returns the size of tensors, or "" if the data type is unknown.

    >>> tensor_size("float32", 1048576), tensor_size("torch.int8", 1000), tensor_size("quint4x2", 8)
    ('4 MiB', '1000 bytes', '')

    Args:
        dtype: the name of the data type.
        elements: the number of elements of all tensors.
    """
    size = _SIZES.get(dtype.lower().removeprefix("torch."))
    if size is None:
        return ""
    count, unit = float(elements * size), 0
    while count >= 1024 and unit < len(_UNITS) - 1:
        count, unit = count / 1024, unit + 1
    return f"{count:.4g} {_UNITS[unit]}"
