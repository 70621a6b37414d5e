"""The core's error tree: one class for each situation with its own handling and message.

    CoreError
    ├── PublishedFromForeignThread   a thread touched the bus, which belongs to the event loop
    ├── GateUnknown                  an undeclared gate
    ├── ConditionUnknown             a condition code missing from the catalogue
    ├── CatalogueBroken              the catalogue contradicts itself
    ├── SupervisionError
    │   ├── SpecsBroken              components without an order of start or stop
    │   ├── ComponentUnknown         an undeclared component name
    │   ├── ComponentNotRunning      an exception injected into a component at rest
    │   ├── ComponentReturned        a component ended without an order to stop
    │   └── VitalComponentFailed     a vital component is past its crash budget: the process must end
    ├── FrameError
    │   ├── FrameTooLarge            a frame past the agreed size, in either direction
    │   └── FrameCutShort            the stream ended inside a frame
    ├── ChildError
    │   ├── ChildStuck               a request past its deadline; the child is killed
    │   ├── ChildDied                the child ended while a request was pending
    │   └── ChildUnavailable         no child now: not started, waiting for its restart, or ended
    └── WorkerError
        ├── ThreadStuck              a call in a thread past its deadline
        └── WorkersExhausted         too many threads are stuck already

Imports nothing, so that a child process can load the module for the price of one file.
"""


class CoreError(Exception):
    """A refusal or failure of the core."""


class PublishedFromForeignThread(CoreError):
    """The bus was used from another thread than the owning thread."""

    def __init__(self, thread: str, type_name: str) -> None:
        super().__init__(
            f"publishing {type_name} from thread {thread!r} was refused: the bus belongs to the event loop; "
            "hand the value over with loop.call_soon_threadsafe or return it from the worker thread"
        )
        self.thread = thread


class GateUnknown(CoreError):
    """The named gate was never declared."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"gate {name!r} does not exist; declared gates: {', '.join(known) or 'none'}")


class ConditionUnknown(CoreError):
    """The condition set or cleared is missing from the catalogue."""

    def __init__(self, code: str) -> None:
        super().__init__(f"condition {code!r} is not in the catalogue; define it there first")


class CatalogueBroken(CoreError):
    """The catalogue of conditions has a duplicate, a dependency on an undefined code, or a circle."""

    def __init__(self, code: str, problem: str) -> None:
        super().__init__(f"catalogue of conditions: {code!r} {problem}")


class SupervisionError(CoreError):
    """An error about the life of components."""


class SpecsBroken(SupervisionError):
    """The component specifications contradict each other."""

    def __init__(self, name: str, problem: str) -> None:
        super().__init__(f"component {name!r} {problem}")


class ComponentUnknown(SupervisionError):
    """The named component was never declared."""

    def __init__(self, name: str, known: tuple[str, ...]) -> None:
        super().__init__(f"component {name!r} does not exist; declared components: {', '.join(known) or 'none'}")


class ComponentNotRunning(SupervisionError):
    """No exception can be injected into a component at rest."""

    def __init__(self, name: str, phase: str) -> None:
        super().__init__(f"component {name!r} is {phase}, so nothing can be raised in it; wait until it runs")


class ComponentReturned(SupervisionError):
    """A component ended by itself; components run until the order to stop."""

    def __init__(self, name: str) -> None:
        super().__init__(f"component {name!r} returned from run() without being told to stop")


class VitalComponentFailed(SupervisionError):
    """The process has to end, so that the service manager restarts the agent."""

    def __init__(self, name: str, crashes: int, window_seconds: float, last_error: str) -> None:
        super().__init__(
            f"vital component {name!r} crashed {crashes} times within {window_seconds:g} s, last with {last_error}; "
            "the agent ends so that its service manager restarts it"
        )


class FrameError(CoreError):
    """The byte stream between parent and child cannot be read on."""


class FrameTooLarge(FrameError):
    """A frame is over the agreed limit; the header is probably garbage."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"frame of {size_bytes} bytes is over the limit of {limit_bytes}")


class FrameCutShort(FrameError):
    """The stream ended in the middle of a frame."""

    def __init__(self, missing_bytes: int) -> None:
        super().__init__(f"stream ended inside a frame, at least {missing_bytes} bytes short")
        self.missing_bytes = missing_bytes


class ChildError(CoreError):
    """A request to a child process was not answered."""


class ChildStuck(ChildError):
    """The child did not answer in time, has been killed and will be replaced."""

    def __init__(self, name: str, pid: int, timeout_seconds: float, step: str = "") -> None:
        super().__init__(f"child {name!r} (pid {pid}) did not answer within {timeout_seconds:g} s and was killed")
        self.step = step
        """The step that the child announced last."""


class ChildDied(ChildError):
    """The child ended while a request waited for the answer."""

    def __init__(self, name: str, pid: int, how: str, step: str = "") -> None:
        super().__init__(f"child {name!r} (pid {pid}) {how} before it answered")
        self.how, self.step = how, step
        """The step that the child announced last."""


class ChildUnavailable(ChildError):
    """There is no child to answer at the moment."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(f"child {name!r} cannot be asked: {why}")


class WorkerError(CoreError):
    """A call in a worker thread was not finished."""


class ThreadStuck(WorkerError):
    """The call is past the deadline; the thread is set aside and will get no more calls."""

    def __init__(self, name: str, call: str, timeout_seconds: float) -> None:
        super().__init__(
            f"worker {name!r}: {call} did not return within {timeout_seconds:g} s; its thread is set aside"
        )


class WorkersExhausted(WorkerError):
    """The limit of stuck threads is reached; no further thread is started."""

    def __init__(self, name: str, call: str, stuck: tuple[str, ...]) -> None:
        super().__init__(
            f"worker {name!r}: {call} was not tried, because {len(stuck)} threads are stuck already in "
            f"{', '.join(stuck)}; they are released when those calls return"
        )
