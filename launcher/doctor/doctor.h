/*
 * doctor — what a machine lacks for muster, and what mends it.
 *
 *     checks.c    the table of checks: one row each
 *     run.c       runs them: each in a process of its own, all at once, for so long and no longer
 *     nodes.c     the same on every node of an allocation
 *     findings.c  what was found, as JSON between processes, nodes and programs
 *     page.c      the page for people
 *     needs_job.c what a job needs of a node; needs.c: told to another process
 *     programs.c limits.c gpus.c network.c disk.c slurm.c job.c    the checks
 *
 * To add a check: a function that reports at least one finding, its prototype below and its row in
 * checks.c. It runs in a process of its own, so it may load any library, hang, or crash: that is a
 * finding then.
 */
#ifndef MUSTER_LAUNCHER_DOCTOR_DOCTOR_H
#define MUSTER_LAUNCHER_DOCTOR_DOCTOR_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/spec/job/job.h"
#include "topo/hostlist.h"

#include <jansson.h>
#include <stdbool.h>

enum finding_level { FINDING_OK, FINDING_WARN, FINDING_FAIL, FINDING_LEVELS };
const char *doctor_finding_word(enum finding_level level); /* "ok", "warn", "fail" */

struct finding {
	enum finding_level level;
	char check[16];  /* its row's name */
	char object[80]; /* what it is about: "GPU3", "/dev/shm" */
	char found[320];
	char remedy[320]; /* "" where all is well */
	bool whole;       /* of all nodes together: its check is `once` */
};

struct findings {
	struct finding *rows;
	int n, cap;
	bool lost;         /* no memory for some */
	const char *check; /* of what is added from now on */
	/* for programs, by check: figures of what was looked at; NULL: none */
	json_t *facts;
};
void doctor_findings_fini(struct findings *f);

/* Adds one; texts are made plain and cut to fit. */
void doctor_found_ok(struct findings *f, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_found_bad(struct findings *f, enum finding_level level, const char *object,
		      const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
enum finding_level doctor_findings_worst(const struct findings *f);
/* Takes the reference over: figures of the check that is at work. */
void doctor_found_facts(struct findings *f, json_t *facts);
/* {"findings": […], "facts": {…}}; and adds those of such a document: -1, and nothing added,
 * where it is none. */
json_t *doctor_findings_json(const struct findings *f);
int doctor_findings_take(struct findings *f, const json_t *doc);

struct gpu_states;
json_t *doctor_gpu_facts(const struct gpu_states *s);

/* What a job needs of each node that it runs on, the fullest one's figures; without a job all is
 * 0 or "". */
struct needs {
	bool job, cuda;
	bool slurm; /* in an allocation, of several nodes perhaps */
	int ranks;  /* agents on a node */
	/* bytes of device memory that a rank takes; 0: unknown, or the device is the CPU */
	double memory;
	double host_memory; /* bytes that the ranks of a node take of its own memory */
	double checkpoint;  /* bytes of all checkpoints that are kept together */
	char run_dir[JOB_PATH], ckpt_dir[JOB_PATH];
	char data[JOB_PATH];      /* data.path */
	char interface[JOB_TEXT]; /* network.interface */
	char trouble[480];        /* why the job cannot be planned here, or "" */
	const struct job *given;  /* in the process that has read it: the job, and the name of */
	const char *file;         /* its file; else NULL */
};
/* Of a job on the machine that it would be run on; `slurm` is set before. */
void doctor_needs_of_job(const struct job *job, const char *file, struct needs *out);
json_t *doctor_needs_json(const struct needs *n);
/* -1, and nothing taken, where it is none */
int doctor_needs_take(const json_t *doc, struct needs *out);
int doctor_needs_read(const char *text, struct needs *out, struct err *e);

typedef void doctor_check(const struct needs *n, struct findings *f);
struct check {
	const char *name;
	double seconds;    /* that it may take */
	bool once;         /* of the whole, not of each node */
	const char *about; /* for --help */
	doctor_check *fn;
};
/* Ends with a NULL name. */
extern const struct check doctor_checks[];

/* For checks: the first line of a file of the kernel's, "" where it cannot be read. */
void doctor_first_line(const char *path, char *out, size_t size);
/* Whether a driver of NVIDIA's runs here. */
bool doctor_has_driver(void);

doctor_check doctor_check_agent, doctor_check_libraries, doctor_check_pmix, doctor_check_blas,
	doctor_check_driver, doctor_check_cuda, doctor_check_limits, doctor_check_memory,
	doctor_check_shm, doctor_check_cpu, doctor_check_gpus, doctor_check_adapters,
	doctor_check_near, doctor_check_name, doctor_check_disk, doctor_check_slurm,
	doctor_check_munge, doctor_check_job, doctor_check_data;

/* Runs checks here and adds what they found in the table's order. */
enum doctor_which { DOCTOR_ALL, DOCTOR_OF_NODE, DOCTOR_ONCE };
void doctor_run(const struct check *checks, const struct needs *n, enum doctor_which which,
		struct findings *f);

/* Asks each node: node[i] gets what it found. 0, or -1 with the reason when none told anything. */
struct doctor_node {
	char name[HOSTLIST_NAME];
	struct findings found;
};
int doctor_ask(const struct needs *n, const struct hostlist *names, struct doctor_node *nodes,
	       struct err *e);
/* On a node: its lines. */
int doctor_report(const char *needs, struct buf *out, struct err *e);

/* The page. nodes: what was found on each; of a single one no names are shown. quiet: without
 * what is well. */
void doctor_page(const struct doctor_node *nodes, int n, bool colour, bool quiet, int columns,
		 struct buf *out);
json_t *doctor_json(const struct doctor_node *nodes, int n);

#endif
