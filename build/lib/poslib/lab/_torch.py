"""torch, or a sentence that says how to have it."""

try:
    import torch
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("poslib.lab's experiments need torch: pip install torch") from error

__all__ = ["torch"]
