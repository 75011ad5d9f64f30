/*
 * job_keys — the table of job-file keys, and how a value is read, written and refused.
 *
 * For plan/spec/job/ and plan/search/config.c. All others use struct job (plan/spec/job/job.h);
 * launcher/slurm and launcher/cli/cmd_queue.c also use job_time_seconds(), and launcher/rundir/find.c
 * job_nearest() and the default of a key.
 */
#ifndef MUSTER_PLAN_SPEC_JOB_KEYS_H
#define MUSTER_PLAN_SPEC_JOB_KEYS_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"

#include <stdbool.h>
#include <stddef.h>

enum job_type {
	JOB_INT,   /* int64_t */
	JOB_RANGE, /* struct job_range; one number stands for both ends */
	JOB_SEED,  /* uint64_t, all of it */
	JOB_REAL,  /* double, finite */
	JOB_BOOL,
	JOB_ENUM, /* an enum; its value is the index in `words` */
	JOB_WORD, /* text that is one of `words` */
	JOB_NAME, /* text that can be the name of a file */
	JOB_ATOM, /* text without blanks and shell characters */
	JOB_TIME, /* text that Slurm accepts as a time limit */
	JOB_LINE, /* printable text, such as a path */
};

struct job_key {
	const char *section, *name;
	size_t offset, size; /* in struct job */
	enum job_type type;
	const char *def;          /* as in a file; "" only if an empty value is allowed */
	double lo, hi;            /* of numbers */
	bool above, below;        /* lo, hi are excluded */
	const char *const *words; /* the last one is NULL */
	const char *doc;
};

enum { JOB_KEYS_MAX = 256 };

extern const struct job_key job_keys[];
extern const int job_n_keys;

/* Where each key's value comes from, for the errors. */
struct job_source {
	const char *name; /* the file's */
	/* 0: the default; > 0: that line of the file; -1: the command line */
	int line[JOB_KEYS_MAX];
};

/* A word for errors: control characters become '?', and a long end is cut. */
enum { JOB_SHOWN = 64 };
const char *job_shown(const char *text, char out[JOB_SHOWN]);
/* The first byte of s[0, n) that is not part of printable UTF-8 text, or NULL. Tabs are
 * printable. */
const char *job_unprintable(const char *s, size_t n);

/* Removes blanks from both ends of s[0, *n). Returns its new begin. */
const char *job_trim(const char *s, size_t *n);
/* Copies as much of from[0, n) as fits to[size], and ends it with a NUL. */
void job_copy(char *to, size_t size, const char *from, size_t n);

/* The index of the key; -1: there is none. */
int job_key_find(const char *section, const char *name);
int job_key_at(size_t offset);
/* The key's bit of enum job_open, which the value `auto` sets; 0: no search decides the key. */
uint32_t job_key_open(const struct job_key *key);
bool job_section_known(const char *section);

/* Sets the field from text without blanks around it. On failure appends "cause; remedy" to
 * `why`. */
int job_value_read(const struct job_key *key, const char *text, struct job *job, struct buf *why);
/* Writes the value as a file has it. */
void job_value_write(const struct job_key *key, const struct job *job, struct buf *out);
/* Writes the type and range as text, such as "whole number from 1 to 4096". */
void job_value_domain(const struct job_key *key, struct buf *out);
/* Seconds of a Slurm time limit; 0: no limit; -1: the text is not a time limit. */
int64_t job_time_seconds(const char *text);

/* Writes "cause; remedy" for a name that does not exist. */
void job_hint_section(const char *section, struct buf *out);
void job_hint_key(const char *section, const char *name, struct buf *out);
/* The word of the list that is nearest to `text`; NULL if none is near. */
const char *job_nearest(const char *text, const char *const *words);

/* The steps of reading a job: set every default; set a key's value from a line of src (as in
 * job_source); take the words, which override the file, and make all checks. */
void job_defaults(struct job *job);
int job_set(struct job *job, struct job_source *src, int key, int line, const char *value,
	    struct err *e);
int job_take_words(struct job *job, struct job_source *src, const char *const *words, int n,
		   struct err *e);

/* Finds contradictions between keys whose values are valid. */
int job_check(const struct job *job, const struct job_source *src, struct err *e);
/* Sets an error with the source of the key in front: "file:line: [section] key: " or "command line:
 * section.key: ". */
int job_refuse(const struct job_source *src, int key, struct err *e, const char *why);

#endif
