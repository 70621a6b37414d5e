"""NCCL through PyTorch, a process for each GPU that it sees: NCCL refuses two on one GPU, so on one it is alone."""

import importlib
import socket
import sys


def reduce(rank: int, world: int, port: int) -> None:
    torch = importlib.import_module("torch")
    distributed = importlib.import_module("torch.distributed")
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world)
    one = torch.full((1 << 20,), rank + 1.0, device="cuda")
    distributed.all_reduce(one)
    assert one[0].item() == world * (world + 1) / 2
    distributed.destroy_process_group()


def main() -> None:
    torch = importlib.import_module("torch")
    processes = importlib.import_module("torch.multiprocessing")
    world = torch.cuda.device_count()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    processes.spawn(reduce, args=(world, port), nprocs=world)
    sys.stdout.write(f"reduced {world}\n")


if __name__ == "__main__":
    main()
