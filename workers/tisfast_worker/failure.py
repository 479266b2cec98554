"""How a failure of user code is told: Triton's one text for clients, and for the log a traceback without our frames."""

import os
import traceback

from tisfast_worker import limits

_OURS = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_PACKAGE = __name__.partition(".")[0]


class WireError(Exception):
    """A message of the server breaks WIRE.md: a bug of ours."""


class Refusal(Exception):  # noqa: N818 - it is what is said, and the end of it
    """Its text says all: people read it as it is, without its type and without a traceback."""

    code = None
    """An ErrorCode for the clients of an execution; None: INTERNAL."""


class FrameworkMissing(Refusal, ModuleNotFoundError):
    """The package that a backend runs its models with cannot be imported."""


class ReturnError(Exception):
    """execute returned something else than its contract says; the text follows Triton's."""


def last_line(error):
    """`TypeError: bad`, as Triton writes it."""
    try:
        text = str(error) or "<EMPTY MESSAGE>"
    except Exception:
        text = "<MESSAGE UNAVAILABLE DUE TO ANOTHER EXCEPTION>"
    if isinstance(error, Refusal):
        return cut(text)
    return cut(f"{type(error).__name__}: {text}")


def triton_text(error):
    r"""The exception, a blank line, `At:` and its frames innermost first: the form that clients know."""
    if isinstance(error, Refusal):
        return last_line(error)
    frames = [
        f"  {frame.f_code.co_filename}({line}): {frame.f_code.co_name}\n"
        for frame, line in traceback.walk_tb(_user_traceback(error))
        if not _is_runtime(frame)  # as the C++ frames of Triton's own classes
    ]
    if not frames:
        return last_line(error)
    return cut(last_line(error) + "\n\nAt:\n" + "".join(reversed(frames)))


def failure_texts(error):
    """The text for clients of a failed execution, and for the log its traceback (of ReturnError none) and last line."""
    if isinstance(error, (ReturnError, Refusal)):
        return cut(str(error)), "", cut(str(error))
    text, line, where = triton_text(error), last_line(error), looked_in(error)
    if where:
        text, line = f"{text.rstrip()}\n{where}", f"{line} ({where})"
    return text, traceback_text(error), line


def missing_module(error):
    """The name of the module that could not be found, however deep below `error`; "" when that was not it."""
    found = _below(error, ModuleNotFoundError)
    return "" if found is None else str(found.name or "")


def looked_in(error):
    """Where a file was looked for whose path is relative, and where a model's own are; "" when that was not it."""
    found = _below(error, FileNotFoundError)
    path = getattr(found, "filename", None)
    if not isinstance(path, (str, bytes)) or not path or os.path.isabs(path) or _sought_a_program(found):
        return ""
    try:
        folder = os.getcwd()
    except OSError:
        folder = "a folder that is gone"
    return (
        f"{os.fsdecode(path)!r} was looked for in {folder}, where the server was started; the folder of the model's "
        "files is pb_utils.get_model_dir()"
    )


def _below(error, kind):
    """The first error of this kind among an error and what it came of, or None."""
    seen = []
    while error is not None and error not in seen:
        if isinstance(error, kind):
            return error
        seen.append(error)
        error = error.__cause__ or error.__context__
    return None


def _sought_a_program(error):
    """Programs are looked for along PATH."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    return bool(frames) and frames[-1].f_globals.get("__name__") == "subprocess"


def traceback_text(error):
    """The whole traceback for the log, from the first frame of user code; "" of a Refusal."""
    if isinstance(error, Refusal):
        return ""
    try:
        lines = traceback.format_exception(type(error), error, _user_traceback(error))
    except Exception:  # a model's __str__ or source lines may raise anything
        lines = traceback.format_tb(_user_traceback(error))
    return cut("".join(lines))


def _user_traceback(error):
    """The traceback from the first frame that is neither this runtime's nor the import machinery's."""
    at = error.__traceback__
    while at is not None and _is_ours(at.tb_frame):
        at = at.tb_next
    return at


def _is_ours(frame):
    filename = frame.f_code.co_filename
    if filename.startswith("<frozen importlib") or os.path.dirname(filename).endswith(os.sep + "asyncio"):
        return True
    return _is_runtime(frame)


def _is_runtime(frame):
    """Whether the code is of a module of ours.  The compiled ones are known by name: their files lay elsewhere when
    they were compiled.
    """
    ours = str(frame.f_globals.get("__name__")).partition(".")[0] == _PACKAGE
    return ours or frame.f_code.co_filename.startswith(_OURS)


def cut(text):
    """At most what one message of the control socket may carry."""
    if len(text) <= limits.CONTROL_TEXT_CHARS_MAX:
        return text
    return text[: limits.CONTROL_TEXT_CHARS_MAX] + " ... (cut)"
