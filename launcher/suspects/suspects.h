/*
 * suspects — the list of nodes that may be sick, which is kept across runs.
 *
 * Every run appends what it has seen of a node (struct suspect_line) to a file of JSON lines, UID.jsonl
 * in the folder of the list, where UID is the number of the user. Nobody else writes to it, so that
 * several users can share a folder (mode 1777). The first of these names the folder:
 *
 *     [health] nodes_dir    of the job file
 *     MUSTER_NODES_DIR      of the environment, for a whole site
 *     $XDG_CACHE_HOME/muster/nodes, ~/.cache/muster/nodes
 *
 * Files in the last one are private (0600); in a folder that is named they can be read by all (0644). All
 * files of the folder are read, except those that do not belong to the user of their name.
 *
 * A line of kind `cleared` voids earlier lines about its node: its user's, and everybody's if root has
 * written it. Of several lines of one kind from one run only the last one counts, because they may have
 * one cause. Together the lines of a node make it a suspect with
 *
 *     sure = 1 − Π (1 − p · 2^(−age / SUSPECTS_HALF_LIFE))
 *
 * where p is the kind's share in SUSPECT_KINDS: in how many of such cases the node, not the program or
 * the job, is to blame. The shares are judgements, not measurements.
 *
 * Node names are those of a cluster (SLURM_CLUSTER_NAME; "local" without Slurm). A line counts for a
 * cluster if its own is the same, or one of both is unknown ("").
 */
#ifndef MUSTER_LAUNCHER_SUSPECTS_SUSPECTS_H
#define MUSTER_LAUNCHER_SUSPECTS_SUSPECTS_H

#include "base/err.h"
#include "base/fields.h"

#include <stdbool.h>

#define SUSPECTS_HALF_LIFE (7 * 86400.0)
/* From here on a node is a suspect. */
#define SUSPECTS_SURE  0.5
#define SUSPECTS_LOCAL "local"

enum { SUSPECTS_PATH = 4096, SUSPECTS_NODE = 256 };

/* clang-format off */

/* id, word, share of cases in which the node is to blame, what it says of a node */
#define SUSPECT_KINDS(X) \
	X(SUSPECT_SLOW,    "slow",    0.3, "a rank on it was slower than its peers") \
	X(SUSPECT_PAUSED,  "paused",  0.1, "a rank on it stood still several times") \
	X(SUSPECT_HANG,    "hang",    0.3, "a rank on it hung") \
	X(SUSPECT_SILENT,  "silent",  0.4, "its agents sent nothing, or it could not be reached") \
	X(SUSPECT_CRASH,   "crash",   0.2, "a process on it crashed") \
	X(SUSPECT_DOWN,    "down",    0.4, "Slurm took it out of service during a run") \
	X(SUSPECT_DEVICE,  "device",  0.8, "a device of it is lost or stuck") \
	X(SUSPECT_ERRORS,  "errors",  0.8, "its hardware counted errors") \
	X(SUSPECT_NUMBERS, "numbers", 0.6, "it computed wrong numbers") \
	X(SUSPECT_CHECK,   "check",   0.6, "it failed a check before a run") \
	X(SUSPECT_CLEARED, "cleared", 0.0, "a person has cleared it")

#define SUSPECT_LINE_FIELDS(F) \
	F(time,     NUMBER, REQUIRED, "seconds since 1970") \
	F(cluster,  TEXT,   REQUIRED, "the cluster of the node; \"\": unknown") \
	F(node,     TEXT,   REQUIRED, "the node's name") \
	F(kind,     TEXT,   REQUIRED, "a word of SUSPECT_KINDS") \
	F(evidence, LINE,   REQUIRED, "what was seen") \
	F(did,      LINE,   REQUIRED, "what the run did about it; \"\": nothing") \
	F(run,      LINE,   REQUIRED, "the run folder; \"\": none") \
	F(job,      TEXT,   OPTIONAL, "the id of the Slurm job")

enum suspect_kind {
	SUSPECT_NONE,
#define SUSPECT_ENUM(id, word, share, text) id,
	SUSPECT_KINDS(SUSPECT_ENUM)
#undef SUSPECT_ENUM
	SUSPECT_KIND_COUNT
};

/* clang-format on */

struct suspect_line {
	SUSPECT_LINE_FIELDS(FIELDS_MEMBER)
};

/* The word of a kind; "" for SUSPECT_NONE. */
const char *suspects_kind_word(enum suspect_kind kind);
/* SUSPECT_NONE: there is no such word. */
enum suspect_kind suspects_kind_of(const char *word);

struct suspects_place {
	char dir[SUSPECTS_PATH];
	bool shared; /* its files can be read by all */
};

/* key: the value of [health] nodes_dir. ERR_NOTFOUND: no folder is named, and there is no home. */
int suspects_place(const char *key, struct suspects_place *out, struct err *e);
/* This host's value of `cluster`. slurm: the node is one of Slurm. */
const char *suspects_cluster(bool slurm);

/* Appends a line to the user's file and creates the folder if it is missing. Old lines of a large file
 * are removed. */
int suspects_append(const struct suspects_place *p, const struct suspect_line *line, struct err *e);

struct suspects_entry {
	struct suspect_line line; /* its texts are borrowed from `documents` */
	enum suspect_kind kind;
	unsigned user; /* who has written it */
	bool counts;   /* nobody has cleared its node since; set by suspects_rate() */
};

struct suspects {
	struct suspects_entry *entries; /* in the order of their time */
	int n;
	json_t *documents;
};

/* Reads all files of the folder. A folder that does not exist has none. A file that cannot be read is
 * skipped. ERR_NOMEM. Free the list with suspects_free(). */
int suspects_read(const struct suspects_place *p, struct suspects *out, struct err *e);
void suspects_free(struct suspects *s);

/* For suspects_read(): adds the lines of a user's file to a list, which is empty or was filled by this
 * function; the list is then not sorted. ERR_NOMEM. */
int suspects_parse(const char *text, size_t len, unsigned user, struct suspects *out,
		   struct err *e);

struct suspect_node {
	char name[SUSPECTS_NODE];
	const char *cluster;                 /* borrowed from the list, as `latest` */
	double sure;                         /* 0 to 1 */
	int lines;                           /* that count */
	const struct suspects_entry *latest; /* of those */
};

/* Rates the nodes of a cluster ("": unknown) that have lines which count at the time `now`: those that
 * are most suspect first. Returns their number, -1 without memory. The caller frees *out. */
int suspects_rate(struct suspects *s, const char *cluster, double now, struct suspect_node **out);

#endif
