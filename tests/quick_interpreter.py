"""Triton's interpreter, without a quarter of its time. Importing this is all.

Of every function that a kernel calls it replaces the language anew, though the kernel's launch has done so.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import triton.language as tl
from triton.runtime import interpreter

patch = interpreter._patch_lang


def patch_once(function: Callable[..., Any]) -> Any:
    """What is replaced already is left: a launch puts all back at its end."""
    languages = [value for value in function.__globals__.values() if inspect.ismodule(value) and value in (tl, tl.core)]
    if any(tl.core.is_builtin(language.load) for language in languages):
        return patch(function)
    return interpreter._LangPatchScope()


interpreter._patch_lang = patch_once
