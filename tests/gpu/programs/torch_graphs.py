"""A CUDA graph that PyTorch captures and replays: the same result each time, within the part."""

import importlib
import sys


def main() -> None:
    torch = importlib.import_module("torch")
    limit = int(sys.argv[1])
    given = torch.zeros(1 << 20, device="cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        given.mul(2).add(1)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = given.mul(2).add(1)
    for number in range(100):
        given.fill_(number)
        graph.replay()
        assert result.sum().item() == (2 * number + 1) * (1 << 20)
    free, total = torch.cuda.mem_get_info()
    assert (total, free < limit) == (limit, True), (free, total)
    sys.stdout.write("replayed\n")


if __name__ == "__main__":
    main()
