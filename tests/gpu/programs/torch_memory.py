"""PyTorch within its part, whose bytes are the only word: it sees that as the card, is refused past it, and goes on."""

import importlib
import sys


def main() -> None:
    torch = importlib.import_module("torch")
    limit = int(sys.argv[1])
    free, total = torch.cuda.mem_get_info()
    assert (total, free <= limit) == (limit, True), (free, total)
    one = torch.arange(1 << 20, dtype=torch.float32, device="cuda")
    assert one.double().sum().item() == (1 << 19) * ((1 << 20) - 1)
    held = torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
    try:
        torch.empty(limit, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError:
        sys.stdout.write("refused\n")
    del held
    torch.cuda.empty_cache()
    torch.empty(limit // 2, dtype=torch.uint8, device="cuda")
    sys.stdout.write("went on\n")


if __name__ == "__main__":
    main()
