/*
 * audit — proves from a run's ledger which samples it was trained on.
 *
 * A line of the ledger counts unless a later start line undoes it. The proof has four parts: the
 * lines that count follow each other without gap or overlap, from where the run began to where its
 * last generation begins or ends; in each line the replicas' shares tile the batch; all generations
 * have one order of samples (seed, seq, validation, sources with their weights and sizes); and so
 * each of the samples first … samples - 1 of that order counts exactly once, or is in `skips`,
 * which says who skipped it and why. `first` is 0 unless the run began from the checkpoint of
 * another run. data_audit_data also proves that the tokens in the data are those that each replica
 * read.
 *
 * Each contradiction is recorded as a finding, which is a text. A line that cannot be read is
 * ignored and noted; if it counted, its steps are then missing.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_AUDIT_H
#define MUSTER_AGENT_ENGINE_DATA_AUDIT_H

#include "agent/engine/data/ledger_lines.h"

enum { AUDIT_FINDINGS_MAX = 20 }; /* findings that are kept as text; all of them are counted */

struct audit_skip {
	int64_t first, count;
	int64_t generation; /* the first one that passed it */
	const char *reason; /* borrowed from the audit */
};

struct audit_generation {
	int64_t generation;
	int64_t step, samples;   /* where it began */
	int64_t position;        /* in the order: samples and those skipped before */
	struct audit_skip *list; /* what it skips, as its lines say */
	int n_list;
	struct ranges *skips; /* the same as a set; NULL: nothing */
	int64_t reached;      /* its last known step */
	int64_t undone;       /* how many of its steps later generations undid */
	json_t *order, *layout;
};

struct audit {
	int64_t first, samples, step; /* [first, samples) count or are skipped, after this step */
	struct audit_skip *skips;     /* what steps that count have passed, in order */
	int n_skips;
	int64_t skipped; /* the sum of their counts */
	char **reasons;  /* of all skip lines */
	int n_reasons;
	struct audit_generation *generations;
	int n_generations;
	struct ledger_line *steps; /* the lines that count, in order */
	int64_t n_steps;
	int64_t undone;     /* samples that were consumed and undone, as far as the lines show */
	int64_t unreadable; /* lines */
	char *findings[AUDIT_FINDINGS_MAX];
	int64_t n_findings;
};

/* Reads the ledger's text (ledger_parts.h). Fails only if there is no memory, no start line
 * (ERR_CORRUPT), or if a newer muster wrote it (ERR_UNSUPPORTED). */
int data_audit_open(const char *text, size_t size, struct audit **out, struct err *e);
void data_audit_close(struct audit *a); /* takes NULL */
/* The generation of that number whose start line came last; NULL: there is none. */
struct audit_generation *data_audit_generation(struct audit *a, int64_t number);
/* The position in the order after a step at which a line that counts, or a piece of it, ends; -1:
 * there is none. */
int64_t data_audit_position(struct audit *a, int64_t step);
/* Adds a finding. */
void data_audit_find(struct audit *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Reads from metrics.jsonl how far each generation came: steps after its last checkpoint are not in
 * the ledger. */
void data_audit_metrics(struct audit *a, const char *text, size_t size);

/* Opens the data of the last generation that counts, from its start line, or from `words` unless
 * that is NULL. */
int data_audit_dataset(struct audit *a, const char *words, struct dataset **out, struct err *e);
/* Reads all samples that count again and compares them with the digests; a difference is a finding.
 * Calls `moved` for each line with the number of samples read so far. -1: the data cannot be
 * read. */
int data_audit_data(struct audit *a, const struct dataset *d,
		    void (*moved)(int64_t samples, void *arg), void *arg, struct err *e);

#endif
