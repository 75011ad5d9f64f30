/*
 * upload — copies the checkpoints of a DIR to a remote place, behind training.
 *
 * One process per run copies (the tool `ckpt upload`, which the supervisor starts), one checkpoint
 * after the other. A checkpoint is due if its step is a multiple of `every`, or the last step of the
 * job. Of those that are due, the last `keep` are wanted in the remote place, and those that are
 * kept for good. A newer one therefore takes the place of an older one that was not copied yet, so
 * a slow or broken remote place does not fill DIR.
 *
 * DIR/UPLOADS says what has been copied, for the agent that prunes DIR: it keeps every checkpoint
 * that is wanted and not copied yet, and the one that is being copied. The file is text of at most
 * UPLOADS_BYTES bytes, one line each:
 *
 *     uploading STEP          being copied, or the copy was interrupted
 *     done STEP DIGEST        copied; DIGEST is the one in the first line of its manifest
 *     damaged STEP DIGEST     the original is damaged, and is not tried again
 *
 * Lines of another form are ignored. A file that cannot be read counts as empty: checkpoints are
 * then kept too long rather than removed too early, and what the remote place has already is not
 * sent again, because a copy begins with a comparison (copy.h).
 */
#ifndef MUSTER_AGENT_ENGINE_CKPT_PLACES_UPLOAD_H
#define MUSTER_AGENT_ENGINE_CKPT_PLACES_UPLOAD_H

#include "agent/engine/ckpt/places/copy.h"
#include "agent/engine/ckpt/places/folder.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define UPLOADS_NAME "UPLOADS"
enum { UPLOADS_BYTES = 1 << 20, UPLOADS_DIGEST = 33 };

/* Which checkpoints are copied, and how many stay. */
struct upload_rules {
	int64_t every;      /* steps; 0: all are due */
	int64_t last;       /* the last step of the job */
	int64_t keep;       /* in the remote place; 0: all */
	int64_t keep_every; /* multiples of it are kept for good; 0: none */
};

/* What UPLOADS says. */
struct upload_line {
	int64_t step;
	char digest[UPLOADS_DIGEST];
	bool damaged;
};
struct upload_log {
	int64_t uploading; /* -1: none */
	struct upload_line *lines;
	int64_t n;
};

/* Parses the text of UPLOADS. */
int ckpt_upload_parse(const char *text, size_t n, struct upload_log *out, struct err *e);
void ckpt_upload_log_fini(struct upload_log *log);

/* The names in `list` (folder.h: the last step first) that are wanted in the remote place. */
void ckpt_upload_wanted(const struct upload_rules *rules, const struct folder_entry *list,
			int64_t n, bool *wanted);

/* The steps that DIR must keep for the uploads, in *steps (the caller frees them) and *n. */
int ckpt_upload_needs(const struct ckpt_storage *s, const char *dir,
		      const struct upload_rules *rules, int64_t **steps, int64_t *n, struct err *e);

struct upload_options {
	const char *dir, *remote;
	const char *owner; /* the run; no other one may write to the remote place */
	struct upload_rules rules;
	int64_t bytes_per_s;       /* 0: no limit */
	const atomic_bool *cancel; /* as in copy.h; NULL: none */
};
struct upload_result {
	struct ckpt_copy_result copy;
	int64_t left;   /* checkpoints that are wanted and not copied yet */
	char note[256]; /* why older ones could not be removed there; "": they were */
};

/* Copies the newest checkpoint that is wanted and not there yet, then removes those in the remote
 * place that are not kept. 1: copied; 0: nothing is left to copy; -1: *result.left is set if it is
 * known, otherwise -1. ERR_CORRUPT: the original is damaged; the next call leaves it out. */
int ckpt_upload_one(const struct upload_options *opt, struct upload_result *result, struct err *e);

#endif
