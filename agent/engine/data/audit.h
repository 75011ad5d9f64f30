/*
 * audit — proves from a run's ledger which samples it was trained on.
 *
 * The lines that count are those that no later start took back. The proof: they follow each other
 * without gap or overlap, from where the run began to where its newest generation does or ends; in
 * each the replicas' shares tile the batch; and all their generations have one order of samples
 * (seed, seq, validation, sources with their weights and sizes). Then the samples that count are
 * first … samples - 1 of that order, each once. `first` is 0 unless the run began with the
 * checkpoint of another one. data_audit_data adds that what each replica says it was fed are the
 * tokens that the data has there.
 *
 * What is against the proof is a finding, in words. A line that cannot be read counts for nothing,
 * and is a note: what it held, if it counted, is then missing.
 */
#ifndef MUSTER_AGENT_ENGINE_DATA_AUDIT_H
#define MUSTER_AGENT_ENGINE_DATA_AUDIT_H

#include "agent/engine/data/ledger.h"

enum { AUDIT_FINDINGS_MOST = 20 }; /* kept in words; all are counted */

struct audit_generation {
	int64_t generation;
	int64_t step, samples; /* where it began */
	int64_t reached;       /* its last step that is known of */
	int64_t undone;        /* how many of its steps were taken back by later generations */
	json_t *order, *layout;
};

struct audit {
	int64_t first, samples, step; /* [first, samples) count; the step after which that is */
	struct audit_generation *generations;
	int n_generations;
	struct ledger_line *steps; /* those that count, in order */
	int64_t n_steps;
	/* samples that were consumed and taken back, as far as lines tell */
	int64_t undone;
	int64_t unreadable; /* lines */
	char *findings[AUDIT_FINDINGS_MOST];
	int64_t n_findings;
};

/* Reads the ledger's text. Fails only without memory, or when there is no start line at all
 * (ERR_CORRUPT). */
int data_audit_open(const char *text, size_t size, struct audit **out, struct err *e);
void data_audit_close(struct audit *a); /* takes NULL */
/* Adds a finding. */
void data_audit_find(struct audit *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* How far generations came, of metrics.jsonl: steps that a kill took before a checkpoint are in
 * no ledger. */
void data_audit_metrics(struct audit *a, const char *text, size_t size);

/* The data of what counts last, as that generation's start line has it, or of `words` when these
 * are not NULL. */
int data_audit_dataset(struct audit *a, const char *words, struct dataset **out, struct err *e);
/* Reads again what counts, and holds it against the digests: what differs is a finding. `moved`
 * hears of each line, with the samples read so far. -1: the data cannot be read. */
int data_audit_data(struct audit *a, const struct dataset *d,
		    void (*moved)(int64_t samples, void *arg), void *arg, struct err *e);

#endif
