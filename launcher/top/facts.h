/*
 * facts — all that `muster top` knows about a run at one moment.
 *
 * launcher/top/source.h gathers them on a thread of its own and hands each version over whole; the
 * layout only reads them.
 */
#ifndef MUSTER_LAUNCHER_TOP_FACTS_H
#define MUSTER_LAUNCHER_TOP_FACTS_H

#include "launcher/console/look.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	TOP_SAMPLES = 600, /* steps that the curves show */
	TOP_NODE = 256,
	TOP_PLACE = 32,
	TOP_LOG = 48 << 10 /* bytes of a log that are read */
};

/* A rank. Numbers that are not known are NAN, or -1. */
struct top_rank {
	char node[TOP_NODE];
	char place[TOP_PLACE]; /* its coordinates in the layout: "0.1.1" */
	char phase[32];        /* "": it is not connected */
	int64_t step;
	double silent_s, still_s, own_s, peers_s, wait_s, peak_bytes;
	bool slow, heard; /* heard: a supervisor has answered for it in this generation */
};

/* A step. */
struct top_sample {
	int64_t step;
	double loss, tokens_s;
};

struct top_facts {
	struct look look;  /* owns its object */
	char trouble[800]; /* why there is no look; "": there is one */
	struct top_rank *ranks;
	int world;
	char place_head[TOP_PLACE]; /* what the coordinates are: "tp.pp.dp" */
	struct top_sample *samples; /* in the order of their steps */
	int n_samples;
	int log_rank; /* whose log it is; -1: of none */
	char *log;    /* its end; NULL: none was read */
	char log_trouble[500];
};

/* A new one that knows nothing; NULL: no memory. */
struct top_facts *top_facts_new(void);
/* A copy; NULL: no memory. */
struct top_facts *top_facts_copy(const struct top_facts *f);
/* Takes NULL. */
void top_facts_free(struct top_facts *f);

/* Sets the number of ranks. Ranks that there are already keep what is known of them. ERR_NOMEM. */
int top_facts_set_world(struct top_facts *f, int world, struct err *e);
/* Fills in ranks from the list `ranks` of an answer, whose first rank is `first`. Elements that are
 * damaged or of other ranks are skipped. */
void top_facts_take_ranks(struct top_facts *f, int first, const json_t *list);
/* Fills in the node and the place of every rank from the plan of the generation; nothing if the plan
 * is of another form. */
void top_facts_take_plan(struct top_facts *f, const json_t *plan);
/* Fills in steps from lines of metrics.jsonl: a step that comes again replaces itself and all later
 * ones. Damaged lines are skipped. */
void top_facts_take_metrics(struct top_facts *f, const char *text, size_t len);

#endif
