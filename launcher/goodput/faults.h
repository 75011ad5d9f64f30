/*
 * faults — what breaks on a cluster: the kinds of faults, and how often each comes.
 *
 * Three lists are built in:
 *
 *     llama3   the interruptions of Llama 3 405B in 54 days on 16,384 H100s: 419 that nobody planned, and
 *              47 planned ones (Grattafiori et al., "The Llama 3 Herd of Models", arXiv 2407.21783,
 *              section 3.3.4 and table 5)
 *     rsc1     the same mixture at the rates of two of Meta's clusters for research, on A100s: 6.5 and
 *     rsc2     2.34 faults in a thousand node-days (Kokolis et al., "Revisiting Reliability in Large-Scale
 *              Machine Learning Research Clusters", arXiv 2410.21680)
 *
 * The paper counts causes. How each kind shows itself, and how long a node is away, are assumptions of
 * muster; `muster simulate --show-faults NAME` prints them as a file to change and to give back:
 *
 *     { "name": "ours", "faults": [ { "name": "gpu", "per_node_year": 0.49, "shows": "closed",
 *                                     "node_out_h": 24, "doc": "a GPU fails" },
 *                                   { "name": "hot", "per_node_year": 0.02, "shows": "slow",
 *                                     "slowdown": 1.3, "node_out_h": 24 }, … ] }
 *
 * The supervisor blames a node for a device that fails, a crash, a hang, a silence and wrong numbers, but not for
 * an error that a process reports. So a fault that closes a process counts against its node if the node needs a
 * repair or a reset; "blames_node" says something else.
 *
 * Faults of a kind come at random, independently of each other (a Poisson process), on each node that
 * the run uses.
 */
#ifndef MUSTER_LAUNCHER_GOODPUT_FAULTS_H
#define MUSTER_LAUNCHER_GOODPUT_FAULTS_H

#include "base/err.h"
#include "base/fields.h"

#include <jansson.h>

/* How a fault shows itself, which decides how it is detected and what is lost. */
#define GOODPUT_SHOWS(X) \
	X(CLOSED, "closed", "a process of the rank ends, or reports an error") \
	X(SILENT, "silent", "the node is gone, and closes nothing") \
	X(HANG, "hang", "ranks stand still") \
	X(NUMBERS, "numbers", \
	  "a device computes wrongly; the steps from then on count for nothing") \
	X(SLOW, "slow", "the node computes more slowly, and all others wait for it") \
	X(PLANNED, "planned", "the run is asked to stop, and begins again")

enum goodput_shows {
#define GOODPUT_SHOWS_ENUM(id, ...) SHOWS_##id,
	GOODPUT_SHOWS(GOODPUT_SHOWS_ENUM)
#undef GOODPUT_SHOWS_ENUM
		SHOWS_COUNT
};

const char *goodput_shows_word(enum goodput_shows s);

/* A kind of fault, as in a file. */
#define GOODPUT_FAULT_FIELDS(F) \
	F(name, TEXT, REQUIRED, "a word") \
	F(per_node_year, NUMBER, REQUIRED, "how many a node has in a year (8,760 hours) of use") \
	F(shows, TEXT, REQUIRED, "closed, silent, hang, numbers, slow or planned") \
	F(node_out_h, NUMBER, REQUIRED, \
	  "hours until its node can be used again; 0: it can at once") \
	F(slowdown, NUMBER, OPTIONAL, \
	  "slow: how many times longer a step takes; 1.3 if it is absent") \
	F(blames_node, FLAG, OPTIONAL, \
	  "whether it counts as a fault of its node (restart.exclude_after); if it is absent: " \
	  "closed does if node_out_h is above 0, silent, hang and numbers do") \
	F(doc, LINE, OPTIONAL, "what it is, for people")

struct goodput_fault_fields {
	GOODPUT_FAULT_FIELDS(FIELDS_MEMBER)
};

enum { GOODPUT_KINDS = 64, GOODPUT_NAME = 32, GOODPUT_DOC = 160 };

struct goodput_fault {
	char name[GOODPUT_NAME], doc[GOODPUT_DOC];
	double rate; /* of a node, per second */
	enum goodput_shows shows;
	double node_out; /* seconds */
	double slowdown; /* SHOWS_SLOW: above 1 */
	bool blames;     /* it counts as a fault of its node */
};

struct goodput_faults {
	char name[GOODPUT_NAME];
	struct goodput_fault of[GOODPUT_KINDS];
	int n;
};

/* word: a list that is built in, or a file. ERR_USAGE, ERR_IO: it cannot be read. */
int goodput_faults_open(const char *word, struct goodput_faults *out, struct err *e);
/* text: of a file; name: of it, for errors, which are ERR_USAGE. */
int goodput_faults_parse(const char *text, size_t len, const char *name, struct goodput_faults *out,
			 struct err *e);
/* As in a file; a new reference. NULL: no memory. */
json_t *goodput_faults_json(const struct goodput_faults *f);
/* The rate of all kinds together: faults of a node per second. */
double goodput_faults_rate(const struct goodput_faults *f);

#endif
