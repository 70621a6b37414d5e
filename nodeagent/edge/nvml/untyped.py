"""`Any` for values of a C library, without `typing`, whose import would cost the worker 0.7 MB.

Type checkers take the first branch by the name of the variable.
"""

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any as Any  # noqa: PLC0414 -- the alias is what says that others may import it from here
else:
    Any = object
