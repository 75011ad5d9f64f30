#include "plan/spec/job/keys.h"

#include <string.h>

#define FIELD(s, k) \
	.section = #s, .name = #k, .offset = offsetof(struct job, s.k), \
	.size = sizeof(((struct job *)0)->s.k)
#define INT(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_INT, .def = d, .lo = l, .hi = h, .doc = text \
	}
#define REAL(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = l, .hi = h, .doc = text \
	}
#define ABOVE(s, k, d, l, h, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = l, .hi = h, .above = true, \
			     .doc = text \
	}
#define SHARE(s, k, d, text) \
	{ \
		FIELD(s, k), .type = JOB_REAL, .def = d, .lo = 0, .hi = 1, .below = true, \
			     .doc = text \
	}
#define ENUM(s, k, d, list, text) \
	{ \
		FIELD(s, k), .type = JOB_ENUM, .def = d, .words = list, .doc = text \
	}
#define WORD(s, k, d, list, text) \
	{ \
		FIELD(s, k), .type = JOB_WORD, .def = d, .words = list, .doc = text \
	}
#define BOOL(s, k, d, text) \
	{ \
		FIELD(s, k), .type = JOB_BOOL, .def = d, .words = bools, .doc = text \
	}
#define TEXT(s, k, t, d, text) \
	{ \
		FIELD(s, k), .type = t, .def = d, .doc = text \
	}

/* In the order of the enums of job.h. */
#define FAMILY_WORD(id, word, ...)       word,
#define FAMILY_HELP(id, word, help, ...) " " word ": " help "."
static const char *const families[] = { SHAPE_FAMILIES(FAMILY_WORD) NULL };
static const char *const ties[] = { "auto", "yes", "no", NULL };
static const char *const rope_scalings[] = { "none", "linear", "llama3", NULL };
static const char *const routers[] = { "after", "before", NULL };
static const char *const zero_shards[] = { "all", "node", NULL };
static const char *const syncs[] = { "all-reduce", "server", NULL };
static const char *const recomputes[] = { "none", "selective", "full", NULL };
static const char *const dtypes[] = { "fp32", "bf16", "fp16", NULL };
static const char *const fp8s[] = { "off", "e4m3", "hybrid", NULL };
static const char *const lr_schedules[] = { "cosine",       "linear", "constant",
					    "inverse-sqrt", "wsd",    NULL };
static const char *const documents[] = { "mix", "mask", NULL };
static const char *const launchers[] = { "auto", "local", "slurm", NULL };
static const char *const binds[] = { "auto", "none", "core", NULL };
static const char *const devices[] = { "cpu", "cuda", NULL };
static const char *const levels[] = { "debug", "info", "warn", "error", NULL };
static const char *const transports[] = { "auto", "shm", "tcp", NULL };
static const char *const integrities[] = { "none", "checksum", "seal", NULL };
static const char *const bools[] = { "no", "yes", "false", "true", "off", "on", NULL };

#define SCHEDULE_DOC(name, row, word, doc) " " word ": " doc

/* Limits keep every product of sizes inside 63 bits. */
/* clang-format off */
const struct job_key job_keys[] = {
	TEXT(job, name, JOB_NAME, "muster", "Name of the run: its folder is run_dir/name. Default: the job file's name without .ini."),
	TEXT(job, run_dir, JOB_LINE, "runs", "Folder in which run folders are made. Relative paths, here and in all keys, start at the current directory."),
	INT(job, steps, "200", 1, 1e12, "Optimizer steps in the whole run."),
	{ FIELD(job, seed), .type = JOB_SEED, .def = "1", .doc = "Everything random (initial weights, data order) is a function of it, whatever the layout." },
	ENUM(job, device, "cpu", devices, "What computes: the CPU's cores or NVIDIA GPUs."),
	BOOL(job, graphs, "yes", "cuda: whether passes in which ranks exchange nothing are recorded as CUDA graphs, once, and replayed. The same bits either way."),

	ENUM(model, family, "gpt2", families, "The kind of Transformer." SHAPE_FAMILIES(FAMILY_HELP)),
	INT(model, layers, "4", 1, 10000, "Transformer layers."),
	INT(model, hidden, "128", 1, 1048576, "Width of the model."),
	INT(model, heads, "4", 1, 8192, "Attention heads."),
	INT(model, kv_heads, "0", 0, 8192, "Key/value heads (grouped-query attention); divides heads. 0: as many as heads."),
	INT(model, head_dim, "0", 0, 256, "Width of a head, even. 0: hidden / heads."),
	INT(model, ffn, "0", 0, 4194304, "Width of the feed-forward part. 0: 4 × hidden with GELU, 8/3 × hidden rounded up to 256 with SwiGLU."),
	INT(model, vocab, "256", 2, 16777216, "Token ids; 256 for bytes. Need not divide by anything: nothing is padded."),
	INT(model, seq, "128", 1, 16777216, "Tokens of a sequence."),
	ENUM(model, tie_head, "auto", ties, "Whether the output head is the token embedding. auto: yes for gpt2, no for the others."),
	ABOVE(model, norm_eps, "1e-05", 0, 1, "Added to the variance in norms."),
	ABOVE(model, rope_theta, "10000", 0, 1e12, "Base of the rotary positions."),
	ENUM(model, rope_scaling, "none", rope_scalings, "How rotary positions are stretched beyond the context of pretraining."),
	ABOVE(model, rope_factor, "1", 0, 1e6, "By how much rope_scaling stretches."),
	ABOVE(model, rope_low, "1", 0, 1e6, "llama3: low frequency factor."),
	ABOVE(model, rope_high, "4", 0, 1e6, "llama3: high frequency factor."),
	INT(model, rope_original, "8192", 1, 16777216, "llama3: tokens of the context of pretraining."),
	SHARE(model, dropout, "0", "Dropout of the embedding and of each sublayer's result."),
	SHARE(model, attn_dropout, "0", "Dropout of attention's weights."),
	INT(model, experts, "8", 1, 4096, "Experts of each layer (mixtral)."),
	INT(model, experts_per_token, "2", 1, 64, "Experts that a token goes to (mixtral)."),
	ENUM(model, router, "after", routers, "Whether the router's softmax comes after or before the choice of the experts."),
	REAL(model, aux_loss, "0.01", 0, 100, "Weight of the loss that balances the experts' load, summed over layers."),
	REAL(model, z_loss, "0", 0, 100, "Weight of the loss that keeps the router's logits small."),
	REAL(model, capacity, "0", 0, 1000, "Most tokens of an expert, as a multiple of its fair share; those beyond are dropped. 0: none is."),
	ABOVE(model, init_std, "0.02", 0, 100, "Standard deviation of initial weights."),

	{ .section = "parallel", .name = "auto", .offset = offsetof(struct job, parallel.automatic), .size = sizeof(bool), .type = JOB_BOOL,
	  .def = "no", .words = bools, .doc = "Whether muster decides those keys that are not given: tp, cp, pp, dp, ep, chunks, stages, schedule, sp, zero, zero_shard; all of [recompute] and [offload]; batch.micro. A single one is left to it by the value auto, such as pp = auto." },
	INT(parallel, tp, "1", 1, 1024, "Tensor parallel degree: ranks that share each layer. Keep it inside a node."),
	INT(parallel, cp, "1", 1, 1024, "Context parallel degree: ranks that share each sequence."),
	INT(parallel, pp, "1", 1, 1024, "Pipeline parallel degree: stages of consecutive layers."),
	INT(parallel, dp, "0", 0, 65536, "Data parallel degree: replicas that share the global batch. 0: as many as the devices allow."),
	INT(parallel, ep, "1", 1, 1024, "Expert parallel degree: ranks that share a layer's experts; divides dp."),
	INT(parallel, chunks, "0", 0, 64, "Virtual stages per rank, for schedules that have several. 0: the least that the schedule takes."),
	TEXT(parallel, stages, JOB_LINE, "", "Layers of each stage, such as 3,5,4, in the order of the model. Empty: balanced by cost."),
	ENUM(parallel, schedule, "1f1b", schedule_words, "Order of the forward and backward passes in the pipeline." SCHEDULE_LIST(SCHEDULE_DOC)),
	BOOL(parallel, sp, "no", "Sequence parallel: tp ranks share the norms and the residual stream too."),
	BOOL(parallel, overlap, "yes", "Whether tp's and ZeRO's transfers overlap the matrix products."),
	INT(parallel, zero, "0", 0, 3, "ZeRO stage: 1 shards the optimizer's state over dp, 2 also gradients, 3 also parameters."),
	ENUM(parallel, zero_shard, "all", zero_shards, "Over which replicas ZeRO shards: all, or those of a node, with copies across nodes."),
	ENUM(parallel, sync, "all-reduce", syncs, "How replicas agree: all-reduce; or server: each keeps a shard of the parameters and updates it as gradients come, so that none waits for another that is a little behind."),
	INT(parallel, staleness, "1", 0, 1000000, "Server: most steps that a replica may be ahead of the slowest. 0: all go together and compute what all-reduce does; above it no two runs are the same."),

	ENUM(recompute, mode, "none", recomputes, "What the backward pass computes again: nothing; norms, activation functions and attention; whole layers."),
	INT(recompute, every, "1", 1, 10000, "Layers between those that recompute."),

	BOOL(offload, activations, "no", "Whether layers' activations wait for the backward pass in host memory (device cpu: in a mapped file)."),
	BOOL(offload, optimizer, "no", "Whether the optimizer's state lies in host memory (device cpu: in a mapped file)."),

	ENUM(precision, dtype, "fp32", dtypes, "Type of weights and activations. Sums, gradients, master weights and optimizer state are fp32."),
	ENUM(precision, fp8, "off", fp8s, "Whether the layers' linear products (not experts', router's and head's) multiply numbers of 8 bits: e4m3, or hybrid: e5m2 for gradients. Fast on GPUs of compute capability 8.9 and later."),
	REAL(precision, loss_scale, "0", 0, 1e12, "fp16: factor of the loss. 0: dynamic."),
	INT(precision, loss_scale_window, "1000", 1, 1e9, "Steps without overflow after which a dynamic loss scale doubles."),
	BOOL(precision, stochastic_rounding, "no", "Whether weights are rounded from their master at random instead of to the nearest."),

	INT(batch, micro, "4", 1, 1048576, "Sequences that a rank takes through the model at once."),
	INT(batch, global, "32", 1, 1073741824, "Sequences in an optimizer step, over all ranks; a multiple of micro × dp."),

	ENUM(optimizer, kind, "adamw", optimizer_words, "The optimizer."),
	SHARE(optimizer, momentum, "0.9", "SGD's momentum."),
	ABOVE(optimizer, lr, "0.001", 0, 100, "Highest learning rate."),
	REAL(optimizer, min_lr, "0", 0, 100, "Learning rate at the end of the decay."),
	INT(optimizer, warmup, "0", 0, 1e12, "Steps in which the rate rises linearly to lr."),
	ENUM(optimizer, schedule, "cosine", lr_schedules, "How the rate falls from lr to min_lr."),
	INT(optimizer, decay_steps, "0", 0, 1e12, "Step at which the rate has reached min_lr. 0: job.steps."),
	INT(optimizer, cooldown, "0", 0, 1e12, "wsd: steps at the end in which the rate falls to min_lr; before them it is lr."),
	SHARE(optimizer, beta1, "0.9", "Decay of the gradient's mean; adamw and muon use it."),
	SHARE(optimizer, beta2, "0.95", "Decay of the gradient's square; adamw and muon use it."),
	ABOVE(optimizer, eps, "1e-08", 0, 1, "Term against division by zero; adamw and muon use it."),
	REAL(optimizer, weight_decay, "0.1", 0, 100, "Weight decay of matrices; vectors have none."),
	REAL(optimizer, clip, "1", 0, 1e9, "Largest global norm of the gradient. 0: no clipping."),

	TEXT(data, path, JOB_LINE, "", "Packed tokens: the prefix of PREFIX.bin and PREFIX.idx (muster data pack), an llm.c FILE.bin, or several with weights: 0.7 A 0.3 B. Needed to train."),
	REAL(data, validation, "0.05", 0, 0.5, "Share of the samples held out for evaluation."),
	INT(data, eval_every, "0", 0, 1e12, "Steps between evaluations. 0: never."),
	INT(data, eval_batches, "1", 1, 1e9, "Global batches that an evaluation reads."),
	ENUM(data, documents, "mix", documents, "Whether a token attends over its document's edge: mix, it does; mask, it does not."),
	INT(data, prefetch, "2", 0, 1024, "Steps whose tokens are read ahead."),

	TEXT(checkpoint, dir, JOB_LINE, "", "Folder of the checkpoints, of this run alone. Empty: ckpt in the run folder."),
	INT(checkpoint, every, "100", 0, 1e12, "Steps between checkpoints. 0: only when stopping and at the end."),
	INT(checkpoint, keep, "3", 0, 1e9, "Newest checkpoints kept. 0: all."),
	ABOVE(checkpoint, node_bandwidth, "1", 0, 1e6, "To predict with: GB/s that one node writes to and reads from the checkpoints' storage while all nodes do. 1: Llama 3's share (arXiv 2407.21783, section 3.3.1)."),
	ABOVE(checkpoint, bandwidth, "2000", 0, 1e9, "To predict with: GB/s of the checkpoints' storage for all nodes together. 2000: what Llama 3's sustained."),
	TEXT(checkpoint, resume, JOB_LINE, "auto", "Where a run without checkpoints begins: auto or none: anew; else the folder of a checkpoint. A run that has some goes on from its newest good one; none refuses to."),

	ENUM(launch, launcher, "auto", launchers, "Who starts the agents. auto: slurm inside an allocation, else local."),
	INT(launch, devices, "0", 0, 65536, "Local: how many agents this host may hold. 0: as many as the degrees need."),
	TEXT(launch, threads, JOB_LINE, "0", "Threads of an agent, or of each in the order of the ranks, such as 2,1. 0: cores / agents, at least 1."),
	TEXT(launch, speeds, JOB_LINE, "", "Relative speed of each device in the order of the ranks, such as 2,1,1,1: unequal ones get unequal stages and micro-batches. Empty: as their threads, where these differ."),
	ENUM(launch, bind, "auto", binds, "Binding of agents to cores. auto: when there are enough for all agents' threads."),
	TEXT(launch, cluster, JOB_LINE, "auto", "Machine to plan for: auto, local, slurm, or a preset such as dgx-h100:128 (128 nodes). A run is planned on the machine that it runs on."),
	TEXT(launch, calibration, JOB_LINE, "auto", "What this host was measured at, to plan with, as muster bench calibrate writes it: auto (its default file, when it is there and this machine's), none, or a file."),

	INT(slurm, nodes, "1", 1, 100000, "Nodes to ask for."),
	INT(slurm, gpus_per_node, "0", 0, 1024, "GPUs to ask for on each node. 0: none."),
	INT(slurm, cpus_per_task, "1", 1, 4096, "Cores to ask for, for each agent."),
	TEXT(slurm, time, JOB_TIME, "", "Time limit: minutes, hours:minutes:seconds, days-hours. Empty: the partition's."),
	TEXT(slurm, partition, JOB_ATOM, "", "Partition. Empty: the cluster's default."),
	TEXT(slurm, account, JOB_ATOM, "", "Account to charge. Empty: yours."),
	TEXT(slurm, qos, JOB_ATOM, "", "Quality of service. Empty: the default."),
	TEXT(slurm, constraint, JOB_ATOM, "", "Features that the nodes must have. Empty: any node."),
	TEXT(slurm, reservation, JOB_ATOM, "", "Reservation to run in. Empty: none."),
	INT(slurm, signal_before, "120", 0, 65535, "Seconds before the time limit at which to checkpoint and stop."),
	BOOL(slurm, requeue, "yes", "Whether Slurm may put the job back into the queue after a node failed or it was preempted."),

	INT(restart, max_restarts, "10", 0, 1e6, "Restarts before giving up."),
	REAL(restart, backoff, "1", 0, 60, "Seconds before the second restart in a row without progress; doubles, at most 60."),
	INT(restart, max_futile, "3", 1, 1e6, "Restarts in a row that went no step further before giving up."),
	REAL(restart, hang_timeout, "300", 0, 1e6, "Seconds without progress of any rank after which the run counts as hung. 0: never. A stop may take as long, and at least two minutes."),
	REAL(restart, node_mtbf, "6300", 0, 1e9, "To predict with: hours between failures of one node, in the mean, that stop the run. 6300: Llama 3's, 419 in 54 days of 2,048 nodes (arXiv 2407.21783, section 3.3.4). 0: none fails."),
	REAL(restart, respawn, "30", 0, 1e6, "To predict with: seconds from a failure until the agents run again and load the newest checkpoint; muster drill measures yours. 30: communicators of 10,000 GPUs (MegaScale, arXiv 2402.15627, section 3.5)."),

	WORD(network, backend, "auto", transports, "How ranks talk: auto is shared memory inside a host and TCP across; shm or tcp alone."),
	TEXT(network, interface, JOB_ATOM, "", "Network interface between nodes, such as ib0. Empty: the address of the host's name."),
	INT(network, sockets, "0", 0, 16, "TCP connections between two ranks of different hosts; more than one may fill a fast network better. 0: the default."),
	WORD(network, integrity, "none", integrities, "What protects the data between hosts, beyond TCP's 16-bit checksum: checksum finds whatever hardware and software change, drop or repeat by accident; seal encrypts too, against those who can read or change the traffic. Broken data ends the generation, and the run goes on from its last checkpoint. muster bench comm --integrity measures the price."),
	ABOVE(network, timeout, "600", 0, 1e6, "Seconds that a collective operation may wait for a rank."),

	INT(log, every, "10", 1, 1e9, "Steps between progress lines."),
	WORD(log, level, "info", levels, "Least level of the lines in the logs."),
};
/* clang-format on */

const int job_n_keys = sizeof job_keys / sizeof *job_keys;

_Static_assert(sizeof job_keys / sizeof *job_keys <= JOB_KEYS_MOST, "raise JOB_KEYS_MOST");

int job_key_find(const char *section, const char *name)
{
	for (int i = 0; i < job_n_keys; i++)
		if (!strcmp(job_keys[i].section, section) && !strcmp(job_keys[i].name, name))
			return i;
	return -1;
}

int job_key_at(size_t offset)
{
	for (int i = 0; i < job_n_keys; i++)
		if (job_keys[i].offset == offset)
			return i;
	return -1;
}

static const struct {
	size_t offset;
	enum job_open bit;
	const char *word;
} opens[] = {
	{ offsetof(struct job, parallel.tp), OPEN_TP, "parallel.tp=auto" },
	{ offsetof(struct job, parallel.cp), OPEN_CP, "parallel.cp=auto" },
	{ offsetof(struct job, parallel.pp), OPEN_PP, "parallel.pp=auto" },
	{ offsetof(struct job, parallel.dp), OPEN_DP, "parallel.dp=auto" },
	{ offsetof(struct job, parallel.ep), OPEN_EP, "parallel.ep=auto" },
	{ offsetof(struct job, parallel.chunks), OPEN_CHUNKS, "parallel.chunks=auto" },
	{ offsetof(struct job, parallel.stages), OPEN_STAGES, "parallel.stages=auto" },
	{ offsetof(struct job, parallel.schedule), OPEN_SCHEDULE, "parallel.schedule=auto" },
	{ offsetof(struct job, parallel.sp), OPEN_SP, "parallel.sp=auto" },
	{ offsetof(struct job, parallel.zero), OPEN_ZERO, "parallel.zero=auto" },
	{ offsetof(struct job, parallel.zero_shard), OPEN_ZERO_SHARD, "parallel.zero_shard=auto" },
	{ offsetof(struct job, recompute.mode), OPEN_MODE, "recompute.mode=auto" },
	{ offsetof(struct job, recompute.every), OPEN_EVERY, "recompute.every=auto" },
	{ offsetof(struct job, offload.activations), OPEN_ACTIVATIONS, "offload.activations=auto" },
	{ offsetof(struct job, offload.optimizer), OPEN_OPTIMIZER, "offload.optimizer=auto" },
	{ offsetof(struct job, batch.micro), OPEN_MICRO, "batch.micro=auto" },
};
enum { OPENS = sizeof opens / sizeof *opens };
_Static_assert((int)OPENS == (int)JOB_OPEN_MOST, "every key that may be open has its word");

uint32_t job_key_open(const struct job_key *key)
{
	for (int i = 0; i < OPENS; i++)
		if (opens[i].offset == key->offset)
			return opens[i].bit;
	return 0;
}

int job_open_words(const char *words[JOB_OPEN_MOST])
{
	for (int i = 0; i < OPENS; i++)
		words[i] = opens[i].word;
	return OPENS;
}

bool job_section_known(const char *section)
{
	for (int i = 0; i < job_n_keys; i++)
		if (!strcmp(job_keys[i].section, section))
			return true;
	return false;
}
