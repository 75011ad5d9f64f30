/*
 * ckpt — checkpoints that are proven.
 *
 * A checkpoint is a folder DIR/step-00000400 with
 *     shard-00003.safetensors   what world rank 3 wrote: its own slices
 *     tokenizer.json, …         files that came with the model (carry.h), by world rank 0
 *     MANIFEST.json             written last: step and state, model, layout, every file with its
 *                               size, every tensor slice with its global shape, box, file, offset
 *                               and XXH3-128 digest (taken from the snapshot in memory), and a
 *                               digest of itself
 * (manifest.h and safetensors.h specify both). It is written as an attempt
 * (.attempt-STEP-GENERATION-NONCE), proven to cover every tensor exactly once, synced, renamed. A
 * folder without a valid MANIFEST is not a checkpoint. `latest` is found by reading manifests:
 * highest step, never by time or by a pointer file.
 *
 * The shards are safetensors files that any reader of the format opens. A slice that is a whole
 * tensor bears its name, a part of one its name and box, such as
 * "layers.0.attn.q.weight[0:64,0:128]". A rank without slices writes no file.
 *
 * Any layout loads any other's: a loader asks for boxes of global tensors. It reads the slices that
 * its boxes touch, each whole and once for the boxes of a tensor that follow one another, in pieces
 * of 1 MiB, because the digest is over the whole slice; slices that no box touches are not read.
 *
 * When anything fails on any rank (disk full, a write error, no memory for the snapshot, a hole in
 * the coverage), the attempt fails on all ranks with that cause and rank, its folder is removed,
 * and earlier checkpoints stay as they are. What a killed writer leaves is removed when the next
 * writer opens, and after each commit. The ranks wait for each other's writes inside a collective,
 * so the world's time-out must exceed the difference between the fastest and the slowest rank's
 * writing.
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_CKPT_H
#define MUSTER_AGENT_ENGINE_CKPT_CKPT_H

#include "base/err.h"
#include "libcomm/comm.h"
#include "plan/spec/job/job.h"
#include "plan/spec/model/model.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Memory that is not the host's: copies out of it and into it, and memory of the host that
 * copies go fast from and to (NULL: there is none). */
struct ckpt_memory {
	int (*get)(void *arg, void *to, const void *from, size_t bytes, struct err *e);
	int (*put)(void *arg, void *to, const void *from, size_t bytes, struct err *e);
	void *(*take)(void *arg, size_t bytes);
	void (*give_back)(void *arg, void *p);
	void *arg;
};

/* A box of a global tensor in this rank's memory: row-major, dense, fp32. */
struct ckpt_tensor {
	char name[96];        /* "layers.0.attn.q.weight", "optim.m.layers.0.attn.q.weight" */
	int dims;             /* 1 or 2 */
	int64_t shape[2];     /* global */
	int64_t lo[2], hi[2]; /* the box */
	float *data;
	/* where data is; NULL: in the host's memory. Borrowed for the call. */
	const struct ckpt_memory *there;
	/* the optimizer's: a checkpoint of CKPT_NO_OPTIMIZER lacks it, and loading leaves data
	 * as it is */
	bool moment;
};

enum { CKPT_WORD = 32, CKPT_NUMBERS = 8 };

/* Everything that is not a tensor. */
struct ckpt_state {
	int64_t step;    /* finished steps */
	int64_t samples; /* consumed */
	uint64_t seed;
	int64_t total_steps; /* the learning-rate schedule's length when it was written */
	/* The data that the samples are of: with another split, positions stand for other
	 * samples. */
	struct ckpt_data {
		char path[JOB_PATH]; /* data.path as the job gave it */
		double validation;   /* the share held out */
		/* of the training split; 0: not told (an older muster's checkpoint) */
		int64_t samples;
	} data;
	/* Whose moments it holds: "adamw", "sgd"; "": not told (an older muster's, which is
	 * adamw). */
	char optimizer[CKPT_WORD];
#define CKPT_NO_OPTIMIZER "none" /* it holds no moments */
	/* A few more numbers of the run by name, such as a loss scale, or the weight of the
	 * balancing loss, for an export: see ckpt_number. */
	struct ckpt_number {
		char name[CKPT_WORD];
		double value;
	} numbers[CKPT_NUMBERS];
	int n_numbers;
};

/* The number of this name; `otherwise` when there is none. */
double ckpt_number(const struct ckpt_state *s, const char *name, double otherwise);
/* Sets it. A name is of [a-z0-9_] and shorter than CKPT_WORD, a value is finite; names beyond
 * CKPT_NUMBERS and what is not so are ERR_INTERNAL. */
int ckpt_number_set(struct ckpt_state *s, const char *name, double value, struct err *e);

/* Hears of every piece that is written or read, on the thread that does it: a slow disk is no
 * hang. */
struct ckpt_watch {
	void (*moved)(void *arg);
	void *arg;
};

/* Asked by rank 0 once a checkpoint is complete and proven, before it gets its name; on the
 * writer's thread. A failure fails the checkpoint on all ranks. */
struct ckpt_gate {
	int (*pass)(void *arg, int64_t step, struct err *e);
	void *arg;
};

struct ckpt_writer; /* one an agent; its functions are called from one thread */
struct ckpt_io;
struct attached;

struct ckpt_options {
	const char *dir; /* holds the step- folders */
	/* the run that alone writes here: kept in DIR/RUN, another one is refused; NULL: not
	 * looked at */
	const char *owner;
	int64_t keep; /* newest ones kept after a success; 0: all */
	uint32_t generation;
	json_t *model;  /* what must be equal to load it: family and sizes; borrowed */
	json_t *layout; /* tp, dp, pp: for people; borrowed */
	/* What a whole checkpoint holds, by name and shape (boxes and data are not looked at); rank
	 * 0's counts. Without it a tensor that no rank gives is only missed when it is loaded.
	 * NULL: whatever is given. Borrowed. */
	const struct ckpt_tensor *expect;
	int n_expect;
	/* Files that go into each checkpoint (carry.h); rank 0's count. May be filled in until
	 * the first save. NULL: none. Borrowed. */
	const struct attached *attached;
	const struct ckpt_watch *watch;     /* NULL: nobody; borrowed */
	const struct ckpt_gate *gate;       /* NULL: none; borrowed */
	const struct ckpt_storage *storage; /* of `dir`; NULL: the one that its scheme names */
};

/* Collective over `world`; the writer keeps a group of its own for its background thread. Makes
 * the folder and removes what dead writers left in it. */
int ckpt_writer_open(struct comm *world, const struct ckpt_options *opt, struct ckpt_writer **out,
		     struct err *e);
/* Waits for a write under way. Takes NULL. */
void ckpt_writer_close(struct ckpt_writer *w);

/* Collective. Copies the tensors to host memory and returns (the stall); a thread digests, writes,
 * proves and commits. The union over ranks must cover each tensor exactly once: the caller gives
 * each slice on one dp rank only; empty boxes are left out. Waits for the previous save when that
 * is still under way, and fails when it failed (on all ranks alike; the failure is told once, here
 * or by ckpt_wait, and the next save may succeed). A failure of this save comes from the next call:
 * no rank stays behind in the collective. */
int ckpt_save(struct ckpt_writer *w, const struct ckpt_state *state,
	      const struct ckpt_tensor *tensors, int n, struct err *e);
/* Waits until the last save is committed. */
int ckpt_wait(struct ckpt_writer *w, struct err *e);

struct ckpt_report {
	int64_t step;
	char path[1024];
	int64_t bytes;
	/* from the call of ckpt_save until it is committed; the call itself */
	double seconds, stall_s;
	char note[256]; /* "", or why older checkpoints could not be removed */
};
/* 1 once for each commit since the last call (on world rank 0), else 0. Never waits. */
int ckpt_committed(struct ckpt_writer *w, struct ckpt_report *out);

/* The newest valid checkpoint under dir for this model; *path is to be freed, NULL when there is
 * none. Damaged ones are skipped, each with a line to `note` (may be NULL), and so are those of
 * another model; when no valid one fits but some is of another model, that is an error, ERR_USAGE,
 * and when none is valid, ERR_CORRUPT: a run must not start over on top of them unasked. Only the
 * manifest and file sizes are read. model NULL: any. */
int ckpt_latest(const char *dir, json_t *model, char **path,
		void (*note)(const char *text, void *arg), void *arg, struct err *e);

/* Fills the boxes from whichever shards hold them; digests of the slices read are verified.
 * ERR_CORRUPT names file and tensor, ERR_USAGE the first field of the model, or the shape of the
 * tensor, that differs, as have and want. Boxes may be partly filled after a failure. Not
 * collective. n may be 0: only the state. watch may be NULL. */
int ckpt_load(const char *path, json_t *model, struct ckpt_state *state,
	      struct ckpt_tensor *tensors, int n, const struct ckpt_watch *watch, struct err *e);

/* Reads everything and compares: sizes, digests, headers, coverage. */
int ckpt_verify(const char *path, struct err *e);

#endif
