"""Trains a small model on synthetic data by DistributedDataParallel, and continues from its own checkpoint.

It uses the GPUs over NCCL, or without GPUs the CPU over Gloo. --folder is on a file system that all ranks share.
"""
import argparse, os, signal
import torch
import torch.distributed as dist
try:
    import muster_client  # reports progress to muster; without it the program runs under any other launcher
except ImportError:
    muster_client = None

options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=200)
options.add_argument("--every", type=int, default=20, help="steps between checkpoints")
options.add_argument("--folder", default="ddp-checkpoint")
args = options.parse_args()
signals = []
signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))

rank, world, gpus = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), torch.cuda.device_count()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus) if gpus else torch.device("cpu")
dist.init_process_group("nccl" if gpus else "gloo", device_id=device if gpus else None)
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.Linear(256, 64)).to(device)
model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
file, step, stop = os.path.join(args.folder, "checkpoint.pt"), 0, False
os.makedirs(args.folder, exist_ok=True)
if os.path.exists(file):
    state = torch.load(file, map_location=device, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    step = state["step"]

while step < args.steps and not stop:
    step += 1
    # The data is a function of the step and the rank, so a run that restarts repeats it.
    x = torch.randn(32, 64, generator=torch.Generator().manual_seed(step * world + rank)).to(device)
    loss = torch.nn.functional.mse_loss(model(x), torch.sin(x).cumsum(1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    asked = bool(signals) or bool(muster_client and muster_client.should_stop())
    sums = torch.stack([loss.detach(), loss.new_tensor(float(asked))])
    dist.all_reduce(sums)  # all ranks know the same loss, and stop after the same step
    mean, stop = sums[0].item() / world, sums[1].item() > 0
    if muster_client:
        muster_client.step(step, loss=mean, tokens=x.numel() * world)
    if rank == 0:
        print(f"step {step} loss {mean:.9g}", flush=True)
        if step % args.every == 0 or step == args.steps or stop:
            torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, file + ".new")
            os.replace(file + ".new", file)  # the old checkpoint or the new one, whenever the program is killed
            if muster_client:
                muster_client.checkpoint_saved(file, step)
dist.barrier()  # a thread of Gloo that still drops its tensors when Python ends would abort the process
dist.destroy_process_group()
