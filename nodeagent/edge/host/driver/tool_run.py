"""Runs one command for the agent, in a process of its own: a command that never returns holds that process only.

`tool_child` is the parent's side. Refuses every import but the standard library's and the frame codec, and to end with
the agent: a reset that is cut short leaves the GPU worse than before.
"""

import json
import os
import subprocess

from nodeagent.core.children.child_setup import claim_answers
from nodeagent.core.children.frames import read_frames, write_frame

SAID_MOST = 4096
"""Characters of what a command wrote that are passed on, the last ones."""
NOT_STARTED = 127


def run_command(argv: list[str]) -> dict[str, object]:
    """The exit code and what the command wrote; for a command that could not be started the code that shells use."""
    try:
        done = subprocess.run(  # noqa: S603  # the command is the agent's, or the settings'
            argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
        )
    except OSError as error:
        return {"code": NOT_STARTED, "said": f"{argv[0]} cannot be started: {os.strerror(error.errno or 0)}"}
    return {"code": done.returncode, "said": done.stdout.decode("utf-8", "replace")[-SAID_MOST:]}


def main() -> None:
    """The child: run each command asked for, until the agent closes the pipe."""
    answers = claim_answers()
    for request, payload in read_frames(0):
        write_frame(answers, request, json.dumps(run_command(json.loads(payload))).encode())
    os.close(answers)


if __name__ == "__main__":
    main()
