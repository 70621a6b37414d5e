"""When a GPU that was silent is asked again."""

from nodeagent.edge.nvml.agent.suspects import Suspects


def test_an_unknown_gpu_is_trusted() -> None:
    """Nothing is held against a GPU that was never silent."""
    suspects = Suspects()
    assert suspects.is_due(0, now=0.0)
    assert (suspects.is_suspect(0), suspects.describe(0), suspects.count_silences(0)) == (False, "", 0)


def test_a_silent_gpu_is_left_alone_for_longer_each_time() -> None:
    """The pause doubles from one second and stays at a minute."""
    suspects = Suspects()
    pauses = []
    now = 100.0
    for _ in range(9):
        suspects.note_silence(3, "hung", now)
        pause = 0.0
        while not suspects.is_due(3, now + pause):
            pause += 0.5
        pauses.append(pause)
    assert pauses == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert suspects.count_silences(3) == 9


def test_one_answer_clears_a_suspect() -> None:
    """Afterwards it is trusted as any other, and a new silence counts as the first."""
    suspects = Suspects()
    suspects.note_silence(1, "hung", 0.0)
    suspects.note_silence(1, "hung again", 5.0)
    assert suspects.describe(1) == "hung again"
    suspects.note_answer(1)
    assert not suspects.is_suspect(1)
    suspects.note_silence(1, "once more", 10.0)
    assert suspects.is_due(1, 11.0)


def test_clear_forgets_everyone() -> None:
    """Another driver starts afresh."""
    suspects = Suspects()
    suspects.note_silence(1, "hung", 0.0)
    suspects.clear()
    assert suspects.is_due(1, 0.0)
