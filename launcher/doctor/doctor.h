/*
 * doctor — finds what a machine lacks for muster, and names the remedy.
 *
 *     checks.c     the table of checks, one row each
 *     run.c        runs the checks: all at once, each in its own process with a time limit
 *     nodes.c      runs them on every node of an allocation
 *     findings.c   the list of findings; as JSON it passes between processes and nodes
 *     page.c       prints the report for people
 *     needs_job.c  what a job needs of a node; needs.c passes it to other processes
 *     programs.c limits.c gpus.c network.c names.c disk.c slurm.c job.c    the checks
 *
 * To add a check:
 *   1. write a function that reports at least one finding, and its prototype below;
 *   2. add its row to checks.c.
 * A check runs in its own process, so it may load any library. If it hangs or crashes, that is a
 * finding.
 */
#ifndef MUSTER_LAUNCHER_DOCTOR_DOCTOR_H
#define MUSTER_LAUNCHER_DOCTOR_DOCTOR_H

#include "base/buf.h"
#include "base/err.h"
#include "plan/plan.h"
#include "plan/spec/job/job.h"
#include "topo/hostlist.h"

#include <jansson.h>
#include <stdbool.h>

enum finding_level { FINDING_OK, FINDING_WARN, FINDING_FAIL, FINDING_LEVELS };
const char *doctor_finding_word(enum finding_level level); /* "ok", "warn", "fail" */

struct finding {
	enum finding_level level;
	char check[16];  /* name of the check's row */
	char object[80]; /* such as "GPU3" or "/dev/shm" */
	char found[320];
	char remedy[320]; /* "" if the level is FINDING_OK */
	bool whole;       /* about all nodes together: the check is `once` */
};

struct findings {
	struct finding *rows;
	int n, cap;
	bool lost;         /* there was no memory for some findings */
	const char *check; /* the check that added findings belong to */
	/* machine-readable values by check; NULL: none */
	json_t *facts;
};
void doctor_findings_fini(struct findings *f);

/* Each call adds one finding. It removes control characters from the texts and cuts them to fit. */
void doctor_found_ok(struct findings *f, const char *object, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
void doctor_found_bad(struct findings *f, enum finding_level level, const char *object,
		      const char *remedy, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
enum finding_level doctor_findings_worst(const struct findings *f);
/* Steals the reference. The values belong to the current check. */
void doctor_found_facts(struct findings *f, json_t *facts);
/* doctor_findings_json() returns {"findings": […], "facts": {…}}, a new reference.
 * doctor_findings_read() adds the findings and values of such a document. It returns -1 and adds no
 * finding if the document is malformed. */
json_t *doctor_findings_json(const struct findings *f);
int doctor_findings_read(struct findings *f, const json_t *doc);

struct gpu_states;
json_t *doctor_gpu_facts(const struct gpu_states *s);

/* What a job needs of each node: the values of the node that needs most. Without a job all members
 * but `slurm` are 0 or "". */
struct needs {
	bool job, cuda;
	bool fp32;    /* the job's type: it uses no cuDNN */
	bool program; /* it runs a program of the user, and nothing of the built-in training */
	bool slurm;   /* inside an allocation, possibly of several nodes */
	int ranks;    /* agents per node */
	/* bytes of device memory that a rank needs; 0: unknown, or the device is the CPU */
	double memory;
	double host_memory; /* bytes of host memory that the ranks of a node need */
	double checkpoint;  /* bytes of all checkpoints that are kept at the same time */
	char run_dir[JOB_PATH], ckpt_dir[JOB_PATH];
	char data[JOB_PATH];      /* data.path */
	char interface[JOB_TEXT]; /* network.interface */
	char trouble[480];        /* why the job cannot be planned or run here, or "" */
	const struct job *given;  /* the job, in the process that has read it; otherwise NULL */
	const char *file;         /* name of the job's file; otherwise NULL */
};
/* Plans the job on the machine where it would run. The caller has set `slurm`. */
void doctor_needs_of_job(const struct job *job, const char *file, struct needs *out);
/* The needs of a plan that runs on n_nodes nodes of an allocation, as a word for `muster doctor
 * --node`; to be freed. NULL: no memory. */
char *doctor_needs_of_plan(const struct job *job, const struct plan *p, int n_nodes);
json_t *doctor_needs_json(const struct needs *n);
/* -1: the document is malformed, and *out is unchanged */
int doctor_needs_from_json(const json_t *doc, struct needs *out);
int doctor_needs_read(const char *text, struct needs *out, struct err *e);

typedef void doctor_check(const struct needs *n, struct findings *f);
struct check {
	const char *name;
	double seconds;    /* time limit */
	bool once;         /* runs once, not on each node */
	const char *about; /* for --help */
	doctor_check *fn;
};
/* Ends with a NULL name. */
extern const struct check doctor_checks[];

/* For checks: reads the first line of a kernel file; "" if it cannot be read. */
void doctor_first_line(const char *path, char *out, size_t size);
/* Whether the NVIDIA driver is loaded on this host. */
bool doctor_has_driver(void);

doctor_check doctor_check_agent, doctor_check_libraries, doctor_check_debugger, doctor_check_pmix,
	doctor_check_blas, doctor_check_driver, doctor_check_cuda, doctor_check_limits,
	doctor_check_memory, doctor_check_shm, doctor_check_cpu, doctor_check_gpus,
	doctor_check_adapters, doctor_check_near, doctor_check_name, doctor_check_disk,
	doctor_check_slurm, doctor_check_munge, doctor_check_job, doctor_check_data,
	doctor_check_names;

/* Runs checks on this host and adds their findings in the table's order. */
enum doctor_which { DOCTOR_ALL, DOCTOR_OF_NODE, DOCTOR_ONCE };
void doctor_run(const struct check *checks, const struct needs *n, enum doctor_which which,
		struct findings *f);

/* Runs the checks on each node; nodes[i] gets the findings of node i. -1: no node has answered. */
struct doctor_node {
	char name[HOSTLIST_NAME];
	struct findings found;
};
int doctor_check_nodes(const struct needs *n, const struct hostlist *names,
		       struct doctor_node *nodes, struct err *e);
/* Runs on a node: prints its findings as the lines that doctor_check_nodes() reads. */
int doctor_report_node(const char *needs, struct buf *out, struct err *e);

/* Checks this host alone: appends its line of struct check_request (launcher/launch.h). */
int doctor_check_own_node(const char *needs, struct buf *out, struct err *e);

/* Prints the report. nodes: the findings of each node; a single node's name is not repeated. quiet:
 * leaves out findings with the level FINDING_OK. */
void doctor_print(const struct doctor_node *nodes, int n, bool colour, bool quiet, int columns,
		  struct buf *out);
json_t *doctor_json(const struct doctor_node *nodes, int n);

#endif
