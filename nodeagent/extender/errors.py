"""The errors of questions to the extender, and of answers.

ExtenderError
├── QuestionMalformed    the request is no question
├── QuestionTooLarge     the question names more than possible
├── PodUnknown           the API server has reported no such pod
├── ChoiceNotWritten     the choice could not be written on the pod, so it must not be answered
├── KeysInvalid          the file of keys has no usable key
└── SetupInvalid         the extender cannot run with these settings
"""

from nodeagent.model.errors import NodeagentError


class ExtenderError(NodeagentError):
    """Any error of the extender itself."""


class QuestionMalformed(ExtenderError):
    """The request is no question of kube-scheduler's."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"cannot read the request: {reason}: send ExtenderArgs as kube-scheduler does")
        self.reason = reason


class QuestionTooLarge(ExtenderError):
    """A question with more nodes than the cluster has, or with a pod too large for the API server."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the request is too large: {reason}")
        self.reason = reason


class PodUnknown(ExtenderError):
    """The pod is unknown to the API server, so it holds no GPU."""

    def __init__(self, pod: str) -> None:
        super().__init__(f"the API server has told of no pod {pod} yet: the scheduler asks again")
        self.pod = pod


class ChoiceNotWritten(ExtenderError):
    """The choice could not be written on the pod: unwritten, its GPUs would be given to the next pod too."""

    def __init__(self, pod: str, reason: str) -> None:
        super().__init__(f"cannot write the choice for pod {pod}: {reason}: the scheduler asks again")
        self.pod, self.reason = pod, reason


class KeysInvalid(ExtenderError):
    """A file of keys that can prove no choice."""


class SetupInvalid(ExtenderError):
    """A necessary part of the extender's setup is missing or invalid."""
