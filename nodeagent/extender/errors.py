"""What can go wrong with a question to the extender, and with answering it.

ExtenderError
├── QuestionMalformed    what was asked is no question
├── QuestionTooLarge     what was asked names more than there can be
├── PodUnknown           the API server has told of no such pod
├── ChoiceNotWritten     the choice could not be written on the pod, so it must not be answered
├── KeysInvalid          the file of keys holds none that can be used
└── SetupInvalid         the extender cannot run with these settings
"""

from nodeagent.model.errors import NodeagentError


class ExtenderError(NodeagentError):
    """Anything that the extender itself says went wrong."""


class QuestionMalformed(ExtenderError):
    """What was asked is no question of kube-scheduler's."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot read the request: {reason}: send ExtenderArgs as kube-scheduler does")
        self.reason = reason


class QuestionTooLarge(ExtenderError):
    """A question that names more nodes than the cluster has, or a pod that the API server would not take."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the request is too large: {reason}")
        self.reason = reason


class PodUnknown(ExtenderError):
    """A pod that the API server does not know holds nothing, whoever asks about it."""

    def __init__(self, pod: str) -> None:
        super().__init__(f"the API server has told of no pod {pod} yet: the scheduler asks again")
        self.pod = pod


class ChoiceNotWritten(ExtenderError):
    """A choice that stands nowhere would be given to the next pod too."""

    def __init__(self, pod: str, reason: str) -> None:
        super().__init__(f"cannot write the choice for pod {pod}: {reason}: the scheduler asks again")
        self.pod, self.reason = pod, reason


class KeysInvalid(ExtenderError):
    """A file of keys by which no choice can be proved."""


class SetupInvalid(ExtenderError):
    """Something that the extender cannot do without is not there."""
