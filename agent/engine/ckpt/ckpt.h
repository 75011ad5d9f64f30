/*
 * ckpt — distributed checkpoints that are proven complete and intact.
 *
 * A checkpoint is an entry DIR/step-00000400 with
 *     shard-00003.safetensors   the slices that world rank 3 wrote
 *     shard-00003-still.safetensors
 *                               those of them that have not changed since the checkpoint before: a
 *                               hard link to its file (still.h)
 *     tokenizer.json, …         files that belong to the model (attached.h), written by world rank 0
 *     MANIFEST.json             written last: step and state, model, layout, every file with its
 *                               size, every tensor slice with its global shape, box, file, offset
 *                               and XXH3-128 digest (computed from the snapshot in memory), and a
 *                               digest of itself; and a digest of the whole state, which does not
 *                               depend on the layout (state_digest.h)
 * (manifest.h and safetensors.h specify both). It is written as an attempt
 * (.attempt-STEP-GENERATION-NONCE), proven to cover every tensor exactly once, made durable, and
 * then published (commit.h). All accesses go through the storage of DIR (storage.h). An entry
 * without a valid MANIFEST is not a checkpoint. The latest checkpoint is found by reading
 * manifests: the highest step wins, never a time or a pointer file.
 *
 * The shards are safetensors files that any reader of the format can open. A slice that is a whole
 * tensor has the tensor's name; another slice has its name and box, such as
 * "layers.0.attn.q.weight[0:64,0:128]". A rank without slices writes no file.
 *
 * The folders:
 *     format/    what a checkpoint contains: manifest, shards, digests, the proof of coverage
 *     storage/   where bytes go: folders of this machine, and object stores
 *     save/      from the tensors of the ranks to a checkpoint
 *     load/      from a checkpoint to the tensors of the ranks, in any layout
 *     memory/    copies of the state in the memory of the ranks
 *     places/    whole checkpoints, in a DIR, on nodes and in remote places: list, prune, copy,
 *                upload, compare, repair
 *
 * Any layout loads the checkpoints of all others: a loader requests boxes of global tensors. It
 * reads each slice that a box touches once for all consecutive boxes of its tensor, in pieces of 1
 * MiB, and always completely, because the digest covers the whole slice. It does not read other
 * slices. The ranks of a run load together (exchange.h): each slice is read once, by one rank, and
 * the others receive from it what they need.
 *
 * If anything fails on any rank (a full disk, a write error, no memory for the snapshot, a hole in
 * the coverage), the attempt fails on all ranks with that cause and rank, it is removed, and
 * earlier checkpoints stay as they are. The attempts of killed writers are removed when the next
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

/* Device memory: functions that copy out of it and into it, and that allocate host memory which
 * such copies are fast with (take, give_back; NULL: there is none). */
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
	/* the device memory that holds data; NULL: host memory. Borrowed for the call. */
	const struct ckpt_memory *there;
	/* it is optimizer state: a checkpoint of CKPT_NO_OPTIMIZER does not have it, and loading
	 * leaves data as it is */
	bool moment;
};

/* Whether a tensor of this name is optional (the scales of 8-bit training, fp8.*): a run may
 * have it and its checkpoint not, or the other way round. Loading then leaves data as it is. */
bool ckpt_optional(const char *name);

enum { CKPT_WORD = 32, CKPT_NUMBERS = 8 };

/* The part of a checkpoint that is not tensors. */
struct ckpt_state {
	int64_t step;    /* finished steps */
	int64_t samples; /* consumed */
	uint64_t seed;
	int64_t total_steps; /* length of the learning-rate schedule at the time of writing */
	/* The data of the samples. With another split, positions mean other samples. */
	struct ckpt_data {
		char path[JOB_PATH]; /* data.path of the job */
		double validation;   /* the share that is held out */
		/* of the training split; 0: unknown (written by an older version) */
		int64_t samples;
	} data;
	/* The optimizer of its states, a name of plan/spec/optimizers.h; "": written by an older
	 * version, adamw. */
	char optimizer[CKPT_WORD];
#define CKPT_NO_OPTIMIZER "none" /* it holds no moments */
	/* More numbers of the run by name (ckpt_number), such as a loss scale, or the weight of the
	 * balancing loss for an export. */
	struct ckpt_number {
		char name[CKPT_WORD];
		double value;
	} numbers[CKPT_NUMBERS];
	int n_numbers;
};

/* The number of this name; `otherwise` if there is none. */
double ckpt_number(const struct ckpt_state *s, const char *name, double otherwise);
/* The same for a count. 0 unless there is such a number that a count can be: 0 to 2^53, up to which
 * a double is exact. */
int64_t ckpt_count(const struct ckpt_state *s, const char *name);
/* Sets the number of this name. ERR_INTERNAL unless the name consists of [a-z0-9_] and is shorter
 * than CKPT_WORD, the value is finite, and there are at most CKPT_NUMBERS names. */
int ckpt_number_set(struct ckpt_state *s, const char *name, double value, struct err *e);

/* Called for every piece that is written or read, on the thread that does it, so that a slow disk
 * is not taken for a hang. */
struct ckpt_watch {
	void (*moved)(void *arg);
	void *arg;
};

/* Called by rank 0, on the writer's thread, when a checkpoint is complete and before it is
 * published. A failure fails the checkpoint on all ranks. */
struct ckpt_gate {
	int (*pass)(void *arg, int64_t step, struct err *e);
	void *arg;
};

struct ckpt_writer; /* one an agent; its functions are called from one thread */
struct ckpt_io;
struct upload_rules;
struct ckpt_local;
struct attached;

struct ckpt_options {
	const char *dir;  /* holds the step- entries */
	const char *node; /* of this rank, for messages; NULL: unknown. Borrowed. */
	/* the only run that may write here, recorded in DIR/RUN; NULL: not checked */
	const char *owner;
	int64_t keep; /* checkpoints kept after a commit, those of the highest steps; 0: all */
	int64_t keep_every; /* those of its multiples are kept for good; 0: none */
	/* what is copied to a remote place (upload.h), and stays in DIR until then; NULL: nothing.
	 * Borrowed. */
	const struct upload_rules *uploads;
	/* the folder of this rank's node (local.h); NULL: there is no local tier. Borrowed. */
	const struct ckpt_local *local;
	uint32_t generation;
	json_t *model;  /* must be equal to load it: family and sizes; borrowed */
	json_t *layout; /* tp, dp, pp: only shown to users; borrowed */
	/* The tensors of a whole checkpoint by name and shape (boxes and data are ignored); only
	 * rank 0's is used. NULL: not checked; a tensor that no rank saves is then missed only when
	 * it is loaded. Borrowed. */
	const struct ckpt_tensor *expect;
	int n_expect;
	/* Files that go into each checkpoint (attached.h); only rank 0's are used. They may be set
	 * until the first save. NULL: none. Borrowed. */
	const struct attached *attached;
	const struct ckpt_watch *watch;     /* NULL: none; borrowed */
	const struct ckpt_gate *gate;       /* NULL: none; borrowed */
	const struct ckpt_storage *storage; /* of `dir`; NULL: the one that its scheme names */
};

/* Collective over `world`; the writer makes a group of its own for its background thread. Makes DIR
 * and removes the attempts of dead writers. ERR_NOTFOUND: a rank does not see rank 0's DIR. An
 * error of one rank is ERR_PEER on the others. A local tier that cannot be used is a warning,
 * unless its folder belongs to another run or to several nodes (ERR_USAGE). */
int ckpt_writer_open(struct comm *world, const struct ckpt_options *opt, struct ckpt_writer **out,
		     struct err *e);
/* Waits for a save in progress. Takes NULL. */
void ckpt_writer_close(struct ckpt_writer *w);

/* Allocates the host memory that saves of these tensors need, behind the caller, so that the first
 * save takes no longer than the others. Their data is not read. It changes nothing else: if there is
 * no memory, the save reports that. */
void ckpt_writer_prepare(struct ckpt_writer *w, const struct ckpt_tensor *tensors, int n);

/* Collective. Copies the tensors to host memory and returns (the stall); a thread then computes the
 * digests, writes, proves and commits. The boxes of all ranks must cover each tensor exactly once:
 * each slice is saved by one dp rank only; empty boxes are left out. The call waits for a previous
 * save that is in progress, and fails on all ranks if that one failed. A failure is returned once,
 * here or by ckpt_wait, and the next save may succeed. A failure of this save is returned by the
 * next call, so that no rank waits in the collective. ERR_NUMERIC: a tensor holds NaN or
 * infinity. */
int ckpt_save(struct ckpt_writer *w, const struct ckpt_state *state,
	      const struct ckpt_tensor *tensors, int n, struct err *e);
/* The same for a choice of tiers: one snapshot serves both. The local one is written first. Its
 * failure is a warning, once until it works again, and changes nothing else. */
enum ckpt_where { CKPT_TO_DIR = 1, CKPT_TO_LOCAL = 2 };
int ckpt_save_to(struct ckpt_writer *w, unsigned where, const struct ckpt_state *state,
		 const struct ckpt_tensor *tensors, int n, struct err *e);
/* Whether a save to DIR is in progress on this rank. Never waits. */
bool ckpt_saving(const struct ckpt_writer *w);
/* Why the last save to DIR has failed, which the next call returns; NULL: it has not, or is in
 * progress. Never waits; the text is valid until that call. */
const char *ckpt_failure(const struct ckpt_writer *w);
/* Waits until the last save is committed. */
int ckpt_wait(struct ckpt_writer *w, struct err *e);
/* `e` is the failure of a save, which all ranks got from one of them, and which ends this rank. On
 * the others it becomes ERR_PEER, so that they do not pass for the cause. */
void ckpt_blame(const struct ckpt_writer *w, struct err *e);

struct ckpt_report {
	bool local; /* it is in the local tier */
	int64_t step;
	char path[1024];
	int64_t bytes;
	/* from the call of ckpt_save until it is committed; the call itself */
	double seconds, stall_s;
	char note[256]; /* why older checkpoints could not be removed; "": they were */
};
/* On world rank 0: returns 1 once for each commit, otherwise 0. Never waits. */
int ckpt_committed(struct ckpt_writer *w, struct ckpt_report *out);

/* Finds the valid checkpoint of the highest step in `dir` for this model (NULL: any model). The
 * caller frees *path; NULL if `dir` has no checkpoints. Damaged checkpoints and those of another
 * model are skipped, each with a line to `note` (may be NULL). If none is left, the error is
 * ERR_USAGE if one is of another model, otherwise ERR_CORRUPT: a run must not start over on top of
 * them unless its user requests it. A checkpoint that cannot be read (ERR_IO, ERR_DENIED, …) fails
 * the search, because it may be valid. Only manifests and file sizes are read. */
int ckpt_latest(const char *dir, json_t *model, char **path,
		void (*note)(const char *text, void *arg), void *arg, struct err *e);

/* Which checkpoints a search accepts. */
struct ckpt_wish {
	json_t *model; /* NULL: every one */
	/* Those it rejects count as absent. NULL: every one. */
	bool (*accepts)(const void *arg, int64_t step, uint32_t generation);
	const void *arg;
	/* Called for each checkpoint that is skipped; may be NULL. */
	void (*note)(const char *text, void *note_arg);
	void *note_arg;
	/* Set to the step of the checkpoint that could not be read, and failed the search. NULL:
	 * not needed. */
	int64_t *unread;
};
/* The same with a choice. */
int ckpt_latest_of(const char *dir, const struct ckpt_wish *wish, char **path, struct err *e);

/* Fills the boxes from the shards that hold them and verifies the digests of all slices that it
 * reads. ERR_CORRUPT names file and tensor; ERR_USAGE names the first field of the model, or the
 * tensor's shape, that differs. Boxes may be partly filled after a failure. Not collective. With
 * n = 0 it reads only the state. watch may be NULL. */
int ckpt_load(const char *path, json_t *model, struct ckpt_state *state,
	      struct ckpt_tensor *tensors, int n, const struct ckpt_watch *watch, struct err *e);

/* Collective. Proves that the ranks hold in memory what the checkpoint `path`, which they have
 * loaded, holds (state_digest.h). The boxes of all ranks must cover each tensor exactly once, as in
 * ckpt_save. ERR_CORRUPT on all ranks names a tensor that differs; the failure of one rank is
 * ERR_PEER on the others. Checkpoints of older versions have nothing to compare with. Only rank 0
 * reads the manifest. watch may be NULL. */
int ckpt_check_loaded(struct comm *world, const char *path, const struct ckpt_tensor *tensors,
		      int n, const struct ckpt_watch *watch, struct err *e);

/* Reads the whole checkpoint and verifies sizes, digests, headers and coverage. */
int ckpt_verify(const char *path, struct err *e);

#endif
