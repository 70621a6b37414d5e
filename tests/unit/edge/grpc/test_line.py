"""What a peer may send that is no message."""

from nodeagent.edge.grpc.line import BURST_BYTES, BYTES_PER_CALL, BYTES_PER_SECOND, FRAME_BYTES, Allowance


def test_a_burst_is_allowed_and_a_flood_is_not() -> None:
    """Beyond the burst, and a frame of which the first bytes may have come, it is over."""
    allowance = Allowance(lambda: 0.0)
    assert allowance.spend(BURST_BYTES + FRAME_BYTES - 1)
    assert not allowance.spend(1)


def test_calls_and_time_earn_more() -> None:
    """Whoever asks may go on for ever, and so may who says little."""
    now = 0.0
    allowance = Allowance(lambda: now)
    for _ in range(1000):
        assert allowance.spend(BYTES_PER_CALL)
        allowance.earn()
    for _ in range(1000):
        now += 1.0
        assert allowance.spend(BYTES_PER_SECOND)


def test_nobody_saves_up_more_than_a_burst() -> None:
    """A day of silence and a thousand calls are no right to a flood."""
    now = 0.0
    allowance = Allowance(lambda: now)
    now = 86_400.0
    for _ in range(1000):
        allowance.earn()
    assert not allowance.spend(BURST_BYTES + FRAME_BYTES)


def test_a_message_that_turns_out_to_be_one_is_given_back() -> None:
    """A frame of data counts until it is whole."""
    allowance = Allowance(lambda: 0.0)
    for _ in range(1000):
        assert allowance.spend(16_384)
        assert allowance.spend(-16_384)
