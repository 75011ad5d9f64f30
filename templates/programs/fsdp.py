"""Trains a small Transformer on synthetic tokens by FSDP2, and continues from its own checkpoint, also with another world size.

It uses the GPUs over NCCL, or without GPUs the CPU over Gloo. --folder is on a file system that all ranks share.
"""
import argparse, os, pathlib, signal
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard
try:
    import muster_client  # reports progress to muster; without it the program runs under any other launcher
except ImportError:
    muster_client = None
options = argparse.ArgumentParser()
options.add_argument("--steps", type=int, default=60)
options.add_argument("--every", type=int, default=10, help="steps between checkpoints")
options.add_argument("--folder", type=pathlib.Path, default="fsdp-checkpoint")
args = options.parse_args()
signals, stop = [], False
signal.signal(signal.SIGTERM, lambda number, _: signals.append(number))
rank, world, gpus = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), torch.cuda.device_count()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]) % gpus) if gpus else torch.device("cpu")
dist.init_process_group("nccl" if gpus else "gloo", device_id=device if gpus else None)
torch.manual_seed(1)
layers = [torch.nn.TransformerEncoderLayer(64, 4, 256, dropout=0.0, batch_first=True) for _ in range(2)]
model = torch.nn.Sequential(torch.nn.Embedding(97, 64), *layers, torch.nn.Linear(64, 97)).to(device)
for part in [*layers, model]:
    fully_shard(part)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
# DCP writes .metadata last, so a folder that has it is a whole checkpoint.
step = max((int(file.parent.name.removeprefix("step-")) for file in args.folder.glob("step-*/.metadata")), default=0)
if step:
    weights, moments = get_state_dict(model, optimizer)  # DCP fills them in place
    dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=args.folder / f"step-{step}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
while step < args.steps and not stop:
    step += 1
    # The data is a function of the step and the rank, so a run that restarts repeats it.
    tokens = torch.randint(97, (8, 32), generator=torch.Generator().manual_seed(step * world + rank)).to(device)
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), (tokens * 5 + 1).flatten() % 97)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    asked = bool(signals) or bool(muster_client and muster_client.should_stop())
    sums = torch.stack([loss.detach(), loss.new_tensor(float(asked))])
    dist.all_reduce(sums)  # all ranks know the same loss, and stop after the same step
    mean, stop = sums[0].item() / world, sums[1].item() > 0
    if rank == 0:
        print(f"step {step} loss {mean:.9g}", flush=True)
    if muster_client:
        muster_client.step(step, loss=mean, tokens=tokens.numel() * world)
    if step % args.every == 0 or step == args.steps or stop:
        weights, moments = get_state_dict(model, optimizer)
        dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=args.folder / f"step-{step}")
        if rank == 0 and muster_client:
            muster_client.checkpoint_saved(str(args.folder / f"step-{step}"), step)
dist.barrier()  # a thread of Gloo that still drops its tensors when Python ends would abort the process
dist.destroy_process_group()
