"""A DataLoader of PyTorch whose workers are forked beside a started driver, and others that start anew."""

import importlib
import sys


class Numbers:
    """A set of data: its numbers are its places."""

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, place: int) -> int:
        return place


def main() -> None:
    torch = importlib.import_module("torch")
    loaders = importlib.import_module("torch.utils.data")
    held = torch.ones(1 << 20, device="cuda")
    for start in ("fork", "spawn"):
        loader = loaders.DataLoader(
            Numbers(), batch_size=10, num_workers=2, pin_memory=True, multiprocessing_context=start
        )
        total = sum(batch.cuda(non_blocking=True).sum().item() for batch in loader)
        assert total == 499500, total
        sys.stdout.write(f"{start}\n")
    assert held.sum().item() == 1 << 20


if __name__ == "__main__":
    main()
