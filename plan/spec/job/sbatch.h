/*
 * job_sbatch — the table that connects the keys of a job with the options of sbatch.
 *
 * A row is an option that the batch script of `muster submit` may contain. Four readers use the
 * table: the script writer (launcher/slurm/script.c), the check of [slurm] options, the hints for
 * unknown keys, and the help pages. To add a key that sbatch gets unchanged: add the key
 * (plan/spec/job/job.h) and a row to the table in sbatch.c.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_SBATCH_H
#define MUSTER_PLAN_SPEC_JOB_SBATCH_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct job;

enum sbatch_kind {
	SBATCH_VALUE,  /* the key's text is the value; an empty text leaves the option out */
	SBATCH_CHOICE, /* the key's word: no leaves the option out, yes gives it without a value */
	SBATCH_SET,    /* muster computes the value from the key */
	SBATCH_BARRED, /* no key: the script must not contain it, for the reason in `why` */
};

struct job_sbatch {
	const char *option; /* without "--" */
	enum sbatch_kind kind;
	size_t key;      /* offset in struct job; not of SBATCH_BARRED */
	const char *why; /* "cause; remedy" of SBATCH_BARRED */
};

extern const struct job_sbatch job_sbatch_table[];
extern const int job_n_sbatch;

/* Reads the next word of [slurm] options and moves *text behind it. false: there is none. The word
 * is not terminated: it has *len bytes. */
bool job_sbatch_word(const char **text, const char **word, size_t *len);

/* Checks a word of [slurm] options. Returns 0, or -1 after appending "cause; remedy" to `why`. */
int job_sbatch_check(const char *word, size_t len, struct buf *why);

/* If `name` is an option without a key, in sbatch's spelling or with '_' in place of '-', appends
 * "cause; remedy". false: it is not. */
bool job_sbatch_hint(const char *name, struct buf *out);

/* Writes the name of the key at this offset, such as "slurm.mem". */
void job_key_name(size_t key, char *out, size_t size);

/* The option that the key at this offset becomes; NULL: none. */
const char *job_sbatch_option(size_t key);

#endif
